"""The one pipeline that every run goes through, and the store of what it brings back."""

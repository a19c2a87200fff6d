"""The same work on several boards, and one piece of work divided between them."""

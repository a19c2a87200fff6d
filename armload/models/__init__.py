"""What a GGUF file holds, and models made to order."""

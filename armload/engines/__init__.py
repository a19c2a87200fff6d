"""What can run on a board: llama.cpp's programs, and any other program."""

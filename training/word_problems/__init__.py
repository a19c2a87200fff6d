"""A small Llama that solves generated word problems."""

"""Build language-model engines for ARM boards, run them there, say how fast, how good and why."""

__version__ = "0.1.0"

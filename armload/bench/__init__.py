"""Benchmarks: the options, single runs, repeats and sweeps."""

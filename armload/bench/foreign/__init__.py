"""Reading what other engines' own benchmarks print."""

"""From a pinned source, a target and a compiler to an inspected static binary."""

"""Plans, traces and runs: what was asked for, what happened, and what it means."""

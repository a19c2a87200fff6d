"""From steps to figures: statistics, causes, limit, verdict, comparison."""

"""Real processes, really killed (law 11 whole-tree)."""

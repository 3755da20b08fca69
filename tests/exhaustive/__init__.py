"""Every order of every input, for worlds of two and three calls."""

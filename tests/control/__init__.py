"""Other processes: stop, answer and look at a run from outside of the program that drives it."""

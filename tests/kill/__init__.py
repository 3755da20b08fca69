"""The kill matrix: real processes, killed in every phase of a call."""

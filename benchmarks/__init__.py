"""What a call costs, always measured beside its floor in the same run.

Run with `python -m benchmarks` (or `scripts/bench`). Nothing here is imported by the library.
"""

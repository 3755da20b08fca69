"""The journals: the ordered record of each run.

A store appends, reads and refuses stale writers. It knows nothing of tools, workers or drivers.
"""

"""The pure core: inputs in, events out.

Standard library only. No clock, no await, no I/O, no logging: what a function here needs to know
about the world comes in as an argument.
"""

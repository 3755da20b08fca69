"""Agents on top of the drivers: handles of delegated calls and the smallest model loop.

Nothing here may start a tool except through `endstop.run`.
"""

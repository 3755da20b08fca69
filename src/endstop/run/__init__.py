"""The drivers: they carry out what the events say.

They know how, never when: every decision is taken in `endstop.core` and recorded before a driver
acts on it. Nothing here may be imported by `core`, `tools`, `store` or `work`.
"""

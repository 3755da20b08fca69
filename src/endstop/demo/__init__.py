"""The demo: a story in a scratch directory, with real tools and a stop in the middle.

Everything that it tells it has read: from the runtime's own events and results, or from the world
(files, the ledger of a paid service, the process table). No outcome is written down beforehand, and
nothing is printed here; `endstop.cli.demo` draws what the story hands out.
"""

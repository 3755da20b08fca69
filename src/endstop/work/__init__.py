"""The workers: where a body runs.

Each kind keeps one protocol: start, ask, kill, proof. No worker decides that a call has ended; it
reports what happened to the body.
"""

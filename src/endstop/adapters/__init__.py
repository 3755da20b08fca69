"""Message formats and frameworks, each behind one thin file.

An adapter translates. It imports no SDK of a model provider, and no law is decided here.
"""

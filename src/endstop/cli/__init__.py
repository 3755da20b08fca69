"""The command line.

The only room that may import typer and rich. It parses, calls the library and prints; it holds no
rule that a library user would miss.
"""

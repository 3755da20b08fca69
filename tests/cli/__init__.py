"""The command line, run as a program: real processes, real signals, a real terminal."""

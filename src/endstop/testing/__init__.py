"""Public test tools: the simulator, the contract suites, the conformance scenarios.

For tests of endstop and of code that uses it. Nothing outside this package imports it, except the
command line.
"""

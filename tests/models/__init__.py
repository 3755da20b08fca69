"""The models: real bytes from a real server on a loopback port, faults included."""

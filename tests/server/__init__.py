"""`endstop serve` as a process of its own, driven over its sockets."""

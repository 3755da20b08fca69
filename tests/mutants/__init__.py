"""Planted bugs, and a runner that shows which test catches which."""

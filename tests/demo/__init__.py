"""The demo, looked at from outside, and with the world meddled with."""

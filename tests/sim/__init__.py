"""Simulations: the real drivers on a virtual clock, in orders that seeds decide."""

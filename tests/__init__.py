"""The tests. A folder per scope; `tests.support` holds what they share."""

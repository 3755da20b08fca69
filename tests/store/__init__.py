"""One contract for every store, and what only the SQLite store promises."""

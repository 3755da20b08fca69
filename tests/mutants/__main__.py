"""`python -m tests.mutants [NAME …]`: plants bugs and prints which test caught which."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tests.mutants.planted import MUTANTS
from tests.mutants.runner import run, table


def main() -> int:
    names = set(sys.argv[1:])
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    if unknown := names - {mutant.name for mutant in chosen}:
        print(f"no such mutant: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, chosen))
    print(table(results))
    return int(any(caught.test is None for caught in results))


if __name__ == "__main__":
    raise SystemExit(main())

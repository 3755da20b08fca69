"""A cancel against every kind of body and of cancel(), on ours and on the stock handler."""

from __future__ import annotations

import tests.wire.rows_cancel as scripts
from tests.wire.rows import Case, Playing, controls, fails_on_stock, holds, ours


@controls(scripts.__name__)
def test_stock(servers: Playing, case: Case) -> None:
    fails_on_stock(servers, case)


@ours(scripts.__name__)
def test_ours(servers: Playing, case: Case) -> None:
    holds(servers, case)

"""The demo's paid service, asked over a real socket: it must be as unforgiving as real ones."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from endstop import InvalidArguments
from endstop.demo.service import ImageService, paint
from endstop.demo.tools import DESK, inside


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ImageService]:
    found = ImageService(tmp_path / "ledger.jsonl", draft_s=0.01, print_s=60)
    yield found
    found.close()


def talk(
    service: ImageService, method: str, path: str, body: object = None, key: str | None = None
) -> tuple[int, Any]:
    host, _, port = service.address.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        payload = None if body is None else json.dumps(body)
        headers = {} if key is None else {"Idempotency-Key": key}
        connection.request(method, path, payload, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_an_order_is_charged_once_per_key(service: ImageService) -> None:
    order = {"prompt": "a pier", "quality": "draft"}
    first = talk(service, "POST", "/images", order, key="k1")
    again = talk(service, "POST", "/images", order, key="k1")
    other = talk(service, "POST", "/images", order, key="k2")
    assert first == again
    assert first[0] == other[0] == 201
    assert other[1]["image"] != first[1]["image"]
    charges = service.read_ledger()
    assert [(one.key, one.amount) for one in charges] == [
        ("k1", Decimal("0.04")),
        ("k2", Decimal("0.04")),
    ]
    status, picture = talk(service, "GET", f"/images/{first[1]['image']}")
    assert status == 200
    assert picture["svg"] == paint("a pier")


def test_nothing_is_taken_back(service: ImageService) -> None:
    order = {"prompt": "a pier", "quality": "print"}
    _, placed = talk(service, "POST", "/images", order, key="k1")
    status, said = talk(service, "DELETE", f"/images/{placed['image']}")
    assert status == 409
    assert "already charged" in said["error"]
    assert service.refused == 1
    assert len(service.read_ledger()) == 1


@pytest.mark.parametrize(
    ("body", "key", "status"),
    [
        ({"prompt": "a pier", "quality": "draft"}, None, 404),
        ({"prompt": "a pier", "quality": "poster"}, "k1", 400),
        ({"quality": "draft"}, "k1", 400),
        ([1], "k1", 400),
    ],
)
def test_a_bad_order_is_refused_and_not_charged(
    service: ImageService, body: object, key: str | None, status: int
) -> None:
    assert talk(service, "POST", "/images", body, key=key)[0] == status
    assert service.read_ledger() == []


def test_the_silent_address_is_silent_until_it_hangs_up(service: ImageService) -> None:
    ended = threading.Event()
    errors: list[Exception] = []

    def ask() -> None:
        try:
            talk(service, "GET", "/reviews")
        except (http.client.HTTPException, OSError) as error:
            errors.append(error)
        ended.set()

    threading.Thread(target=ask, daemon=True).start()
    assert not ended.wait(0.3)
    assert service.hanging == 1
    service.hang_up()
    assert ended.wait(10)
    assert len(errors) == 1


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "site/../../secret"])
def test_tools_stay_in_the_scratch_directory(tmp_path: Path, path: str) -> None:
    token = DESK.set({"directory": str(tmp_path), "service": "", "pace_s": 0})
    try:
        with pytest.raises(InvalidArguments, match="leads out of the workspace"):
            inside(path)
        assert inside("site/menu.md") == tmp_path / "site" / "menu.md"
    finally:
        DESK.reset(token)

"""The demo's world: a paid image service that really runs, on a loopback port.

It is a stranger to the runtime: it imports nothing of endstop, keeps a ledger of its own, charges
when it accepts an order and takes nothing back, as real ones do. One of its addresses never
answers.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from dataclasses import dataclass
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PRICE = Decimal("0.04")
CURRENCY = "USD"
BODY_BYTES_MAX = 64_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One line of the ledger; `at_s` is wall time."""

    at_s: float
    key: str
    amount: Decimal
    image: str


@dataclass(slots=True, kw_only=True)
class _Order:
    image: str
    prompt: str
    ready_at: float


class ImageService:
    """`POST /images` charges and answers with an id, `GET /images/ID` waits for the picture.

    `DELETE /images/ID` is refused: what is charged stays charged. The `Idempotency-Key` of an order
    goes into the ledger, and an order with a known key is not charged again but noted in
    `repeated`. `GET /reviews` never answers until `hang_up()`. `draft_s` and `print_s` are the
    seconds that a picture takes; `charges` is how often one order is charged (above 1: a service
    that cheats).
    """

    def __init__(self, ledger: Path, *, draft_s: float, print_s: float, charges: int = 1) -> None:
        self.ledger = ledger
        self.seconds = {"draft": draft_s, "print": print_s}
        self.charges = charges
        self.refused = 0
        self.hanging = 0
        self.repeated: list[str] = []
        self._hang_up = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._orders: dict[str, _Order] = {}
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.service = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="demo-images", daemon=True
        )
        ledger.touch()
        self._thread.start()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def read_ledger(self) -> list[Charge]:
        """The charges as they lie in the file, oldest first."""
        lines = self.ledger.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        return [
            Charge(at_s=one["at"], key=one["key"], amount=Decimal(one["usd"]), image=one["image"])
            for one in found
        ]

    def finish(self) -> None:
        """From now on every picture is ready when it is asked for, whenever it was ordered."""
        with self._lock:
            self.seconds = dict.fromkeys(self.seconds, 0.0)
            for order in self._orders.values():
                order.ready_at = time.monotonic()

    def hang_up(self) -> None:
        """Close the connections that were never answered."""
        self._hang_up.set()

    def close(self) -> None:
        """Stop serving; nobody is waited for."""
        self._closing.set()
        self._hang_up.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    # -- what the handler asks

    def take_order(self, key: str, prompt: str, quality: str) -> _Order:
        """Charge an order, once per key, and begin to paint. Raises KeyError for the quality."""
        takes_s = self.seconds[quality]
        with self._lock:
            known = self._orders.get(key)
            if known is not None:
                self.repeated.append(key)
                return known
            image = f"img_{secrets.token_hex(4)}"
            order = _Order(image=image, prompt=prompt, ready_at=time.monotonic() + takes_s)
            self._orders[key] = order
            line = {"at": time.time(), "key": key, "usd": str(PRICE), "image": image}
            with self.ledger.open("a", encoding="utf-8") as file:
                for _ in range(self.charges):
                    file.write(json.dumps(line) + "\n")
        return order

    def find(self, image: str) -> _Order | None:
        """The order of a picture."""
        with self._lock:
            return next((one for one in self._orders.values() if one.image == image), None)

    def painted(self, order: _Order) -> bool:
        """Wait until a picture is ready; false if the service closes before."""
        return not self._closing.wait(max(0.0, order.ready_at - time.monotonic()))

    def refuse_cancel(self) -> None:
        """Count a cancel that came too late, as every cancel does here."""
        with self._lock:
            self.refused += 1

    def wait_for_hang_up(self) -> None:
        """Keep a caller waiting."""
        with self._lock:
            self.hanging += 1
        self._hang_up.wait()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    service: ImageService

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that is gone is no news here."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """The story tells what happens."""

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), BODY_BYTES_MAX)
        key = self.headers.get("Idempotency-Key", "")
        if self.path != "/images" or not key:
            self._say(404, {"error": "POST /images with an Idempotency-Key"})
            return
        try:
            asked = json.loads(self.rfile.read(length))
            order = self.server.service.take_order(key, str(asked["prompt"]), asked["quality"])
        except (KeyError, TypeError, ValueError) as problem:
            self._say(400, {"error": f"an order has a prompt and a quality: {problem!r}"})
            return
        self._say(201, {"image": order.image, "charged": str(PRICE), "currency": CURRENCY})

    def do_GET(self) -> None:
        service = self.server.service
        if self.path == "/reviews":
            service.wait_for_hang_up()
            self.close_connection = True
            return
        order = service.find(self.path.rpartition("/")[2])
        if order is None:
            self._say(404, {"error": "no such picture"})
        elif service.painted(order):
            self._say(200, {"image": order.image, "svg": paint(order.prompt)})

    def do_DELETE(self) -> None:
        self.server.service.refuse_cancel()
        self._say(409, {"error": "already charged; an order cannot be taken back"})

    def _say(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def paint(prompt: str) -> str:
    """A picture of the prompt: the same prompt gives the same picture."""
    hue = sum(prompt.encode()) % 360
    words = prompt.replace("&", "&amp;").replace("<", "&lt;")
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="480" height="320">'
        f'<rect width="480" height="320" fill="hsl({hue} 60% 80%)"/>'
        f'<circle cx="240" cy="150" r="90" fill="hsl({(hue + 40) % 360} 70% 45%)"/>'
        f'<text x="240" y="300" text-anchor="middle">{words}</text></svg>\n'
    )

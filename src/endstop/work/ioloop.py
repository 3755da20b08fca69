"""One thread that does a worker's waiting: sockets, timers and messages from other threads.

Callbacks run on that thread, one at a time, and must not block; what blocks gets a short-lived
thread of its own. A callback that raises is logged and changes nothing for the others.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from endstop.work.wire import FRAME_BYTES, Unpacker, WireBroken, pack

_CHUNK = 1 << 18

log = logging.getLogger("endstop.work")


class IoLoop:
    """Started by the first `post`; a daemon, so that it never holds up the end of the program."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._selector = selectors.DefaultSelector()
        self._posted: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = False
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._drain_wake)

    def post(self, callback: Callable[[], None]) -> bool:
        """Run `callback` on the loop's thread soon; from any thread. False after `end`."""
        with self._lock:
            if self._ending:
                return False
            self._posted.append(callback)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._rouse()
        return True

    def after(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Run `callback` in `delay_s` seconds; on the loop's thread only."""
        due = time.monotonic() + delay_s
        heapq.heappush(self._timers, (due, next(self._count), callback))

    def watch(self, sock: socket.socket, events: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` whenever `sock` is ready; replaces an earlier watch."""
        try:
            self._selector.modify(sock, events, callback)
        except KeyError:
            self._selector.register(sock, events, callback)

    def unwatch(self, sock: socket.socket) -> None:
        """Forget a socket; a no-op for one that is not watched."""
        try:
            self._selector.unregister(sock)
        except (KeyError, ValueError):
            return

    def end(self) -> None:
        """Stop after what is posted now; from any thread, as often as one likes."""
        with self._lock:
            self._ending = True
            if self._thread is None:
                self._close()
                return
        self._rouse()

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the thread to end; true if it has (or never began)."""
        thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def forget_in_child(self) -> None:
        """After a fork, in the child: the thread is not here, and no descriptor may be shared."""
        self._ending = True
        self._close()

    def _rouse(self) -> None:
        try:
            self._waker.send(b"\0")
        except OSError:
            # Full: it will wake anyway. Closed: it has ended.
            return

    def _drain_wake(self, events: int) -> None:
        try:
            while len(self._wake.recv(4096)) == 4096:
                continue
        except BlockingIOError:
            return

    def _run(self) -> None:
        while True:
            if not self._posted and self._ending:
                self._close()
                return
            limit_s = None
            if self._timers:
                limit_s = max(0.0, self._timers[0][0] - time.monotonic())
            ready = self._selector.select(0 if self._posted else limit_s)
            for key, events in ready:
                # An earlier callback of this round may have taken the socket away.
                current = self._selector.get_map().get(key.fd)
                if current is not None and current.fileobj is key.fileobj:
                    self._safely(partial(current.data, events))
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                self._safely(heapq.heappop(self._timers)[2])
            for _ in range(len(self._posted)):
                self._safely(self._posted.popleft())

    def _safely(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("a callback of %s failed", self._name)

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        self._waker.close()


class Line:
    """One socket with frames on it. Everything but the constructor runs on the loop's thread."""

    def __init__(
        self,
        loop: IoLoop,
        sock: socket.socket,
        on_frame: Callable[[dict[str, object]], None],
        on_lost: Callable[[str], None],
        limit: int = FRAME_BYTES,
    ) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.open = True
        self._loop = loop
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._limit = limit
        self._frames = Unpacker(limit + 4096)
        self._out = bytearray()
        loop.watch(sock, selectors.EVENT_READ, self._ready)

    def send(self, frame: dict[str, object]) -> None:
        """Write a frame, now as far as it goes. Raises `FrameTooLong` and ValueError."""
        data = pack(frame, self._limit)
        if not self.open:
            return
        self._out += data
        self._flush()

    def read(self) -> None:
        """Hand on every frame that is here now."""
        while self.open:
            try:
                data = self.sock.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(f"the connection broke: {error}")
                return
            if not data:
                self._lose("the connection was closed")
                return
            try:
                for frame in self._frames.feed(data):
                    if not self.open:
                        return
                    self._on_frame(frame)
            except WireBroken as error:
                self._lose(str(error))
                return
            if len(data) < _CHUNK:
                return

    def release(self) -> socket.socket:
        """Stop watching and give the socket away, to be closed by who gets it."""
        self.open = False
        self._loop.unwatch(self.sock)
        return self.sock

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ and self.open:
            self.read()

    def _flush(self) -> None:
        try:
            while self._out:
                sent = self.sock.send(self._out)
                del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            # The reading side will say that the connection is gone; until then drop what is left.
            self._out.clear()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        self._loop.watch(self.sock, wanted, self._ready)

    def _lose(self, why: str) -> None:
        self.release().close()
        self._on_lost(why)

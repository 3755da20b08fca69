"""The runner: the process that a host forks, in which bodies run, one at a time.

Sync bodies run on the main thread, async ones on a loop of their own there; a second thread reads
what the runtime says, so that a stop reaches a busy body. Nothing here may decide whether a body
starts (it asks, immediately before the body: law 1 one-door), let anything that a body raises out
(law 19 any-payload), or write to the channel from any process but this one.

Heavy things (pydantic, the tools) are imported when the first tool is loaded.

Frames on the channel. In: `load`, `call`, `stop`, `answer`, `answered`. Out: `claim`, `tell`,
`heard`, `partial`, `detach`, `unstartable`, `end`; a frame with `n` wants an answer.
"""

from __future__ import annotations

import contextvars
import importlib
import importlib.util
import inspect
import itertools
import os
import queue
import resource
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple, TextIO

from endstop.work.loading import loading
from endstop.work.wire import FrameTooLong, Unpacker, WireBroken, pack

_TRACEBACK_CHARS = 4000
_HERE = os.path.dirname(os.path.abspath(__file__))


class Channel:
    """The frames between this process and the runtime; a forked child has no part in it."""

    def __init__(self, sock: socket.socket, limit: int) -> None:
        self.limit = limit
        self.inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.on_stop: Callable[[str], None] = lambda call: None
        self.on_answer: Callable[[str, str, str], None] = lambda call, question, text: None
        # Raising into the middle of a frame would leave half of it on the wire: while the main
        # thread writes, an interruption is put off.
        self.writing = False
        self.put_off: Callable[[], None] | None = None
        self._sock = sock
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        # A child that a body forks would hold the channel open and could write into it.
        os.register_at_fork(after_in_child=self._leave)

    def _leave(self) -> None:
        self._sock.close()

    def send(self, frame: dict[str, Any]) -> None:
        """Write one frame; raises `FrameTooLong`."""
        data = pack(frame, self.limit)
        if os.getpid() != self._pid:
            # A body forked and its child came back here: there is nothing for it to go on with.
            os._exit(0)
        if threading.current_thread() is not threading.main_thread():
            with self._lock:
                self._sock.sendall(data)
            return
        self.writing = True
        try:
            with self._lock:
                self._sock.sendall(data)
        finally:
            self.writing = False
        if self.put_off is not None:
            late, self.put_off = self.put_off, None
            late()

    def ask(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Write one frame and wait for its answer."""
        mine: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        number = next(self._numbers)
        self._answers[number] = mine
        self.send({**frame, "n": number})
        return mine.get()

    def read(self) -> None:
        """The reading thread: hands frames on until the runtime is gone."""
        frames = Unpacker(self.limit + 4096)
        try:
            while data := self._sock.recv(1 << 18):
                for frame in frames.feed(data):
                    self._take(frame)
        except (OSError, WireBroken):
            pass
        # Without a runtime there is no one to answer to; the host above ends this process.
        self.inbox.put(None)

    def _take(self, frame: dict[str, Any]) -> None:
        match frame["t"]:
            case "answer":
                waiting = self._answers.pop(frame["n"], None)
                if waiting is not None:
                    waiting.put(frame)
            case "stop":
                self.on_stop(frame["call"])
            case "answered":
                self.on_answer(frame["call"], frame["question"], frame["text"])
            case _:
                self.inbox.put(frame)


class Loaded(NamedTuple):
    """What a body needs of its tool."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    context_param: str | None
    interrupt: Callable[..., object] | None
    kwargs: dict[str, Any]


class Shelf:
    """The tools and functions that this process has loaded, by address."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}
        self._files: dict[str, Any] = {}

    def load(self, frame: dict[str, Any]) -> Loaded:
        """The tool that a call is for. Raises what loading and validating raise.

        A tool that was built around a plain function elsewhere (from a given schema, or under
        another name) is that function here, with the arguments as they were validated there; its
        `interrupt` stays behind.
        """
        found = self.get(frame["address"])
        from endstop.tools.tool import Tool

        if isinstance(found, Tool) and found.name == frame["tool"]:
            return Loaded(
                found.name,
                found.fn,
                found.is_async,
                found.context_param,
                found.interrupt,
                found.bind(frame["arguments"]),
            )
        function = found.fn if isinstance(found, Tool) else found
        if not callable(function):
            raise LookupError(f"{frame['address']!r} is a {type(found).__name__}, not a tool")
        if frame["kwargs"] is None:
            raise LookupError(
                f"the tool {frame['tool']!r} is not the one at {frame['address']!r}, and its"
                " validated arguments are not plain data: declare it with @tool at that address"
            )
        is_async = inspect.iscoroutinefunction(function)
        context = frame["context_param"]
        return Loaded(frame["tool"], function, is_async, context, None, frame["kwargs"])

    def get(self, address: str) -> Any:
        """What lies at `module:qualname` or `/a/file.py:qualname`. Raises what loading raises."""
        if address in self._found:
            return self._found[address]
        where, _, qualname = address.rpartition(":")
        if not where or not qualname:
            raise LookupError(f"{address!r} is not an address: expected 'module:name'")
        found: Any = self._module(where)
        for part in qualname.split("."):
            if part == "<locals>":
                raise LookupError(
                    f"{address!r} is defined inside a function, where no other process can find"
                    " it: define the tool at the top of a module"
                )
            found = getattr(found, part)
        self._found[address] = found
        return found

    def _module(self, where: str) -> Any:
        if not where.endswith(".py"):
            with loading(where):
                return importlib.import_module(where)
        if where not in self._files:
            # The stem is kept, so that a traceback and a pickled class show a name one knows.
            stem = os.path.splitext(os.path.basename(where))[0]
            label = f"endstop_tools_{len(self._files)}_{stem}"
            spec = importlib.util.spec_from_file_location(label, where)
            if spec is None or spec.loader is None:
                raise LookupError(f"{where!r} cannot be loaded as a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[label] = module
            try:
                with loading(where):
                    spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[label]
                raise
            self._files[where] = module
        return self._files[where]


class Forks:
    """Whether children were started since `mark`, at the cost of two system calls.

    Counted is what was waited for (page faults of dead children only grow) and what is still
    there; a process that sees to it that its dead children count nowhere is seen by the host.
    """

    def __init__(self) -> None:
        self.mark()

    def mark(self) -> None:
        self._faults = self._count()

    def _count(self) -> tuple[int, int]:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_minflt, used.ru_majflt

    def any(self) -> bool:
        if signal.getsignal(signal.SIGCHLD) not in (signal.SIG_DFL, None):
            return True
        if self._count() != self._faults or not hasattr(os, "waitid"):
            return True
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True


class Runner:
    """Runs the calls that come, one after the other."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.shelf = Shelf()
        self.forks = Forks()
        self.body: Any = None
        self._early: set[str] = set()
        self._entering = threading.Lock()
        channel.on_stop = self.stop
        channel.on_answer = self.answer

    def stop(self, call: str) -> None:
        """The cooperative message, on the reading thread."""
        with self._entering:
            body = self.body
            if body is None or body.call != call:
                # It came while its tool was being loaded; most often the claim will be refused.
                self._early.add(call)
                return
        body.stop()

    def answer(self, call: str, question: str, text: str) -> None:
        """A human has answered what the body asked; on the reading thread."""
        body = self.body
        if body is not None and body.call == call:
            body.ctx.answered(question, text)

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM, on the main thread: unwinds a blocked body once, so that it can clean up."""
        if self.body is None:
            return
        if self.channel.writing:
            self.channel.put_off = self.body.terminate
        else:
            self.body.terminate()

    def serve(self) -> None:
        """The main thread: take calls until the runtime is gone."""
        while (frame := self.channel.inbox.get()) is not None:
            match frame["t"]:
                case "load":
                    self._load(frame["addresses"])
                case "call":
                    self._call(frame)
                case other:
                    raise AssertionError(f"unknown frame {other!r}")

    def _load(self, addresses: list[str]) -> None:
        for address in addresses:
            try:
                self.shelf.get(address)
            except BaseException:
                continue

    def _call(self, frame: dict[str, Any]) -> None:
        from endstop.work.body import Body

        call = frame["call"]
        try:
            if os.getcwd() != frame["cwd"]:
                os.chdir(frame["cwd"])
            tool = self.shelf.load(frame)
            body = Body(self.channel, frame, tool, self._carried(frame["carry"]))
        except BaseException as error:
            message = f"the tool {frame['address']!r} could not be loaded: {describe(error)}"
            self.channel.send({"t": "unstartable", "call": call, "error": message})
            return
        # A body of an earlier call may have replaced it.
        signal.signal(signal.SIGTERM, self.terminate)
        self.forks.mark()
        threads = set(threading.enumerate())
        with self._entering:
            self.body = body
            early = call in self._early
        if early:
            body.stop()
        try:
            end = body.run()
        finally:
            with self._entering:
                self.body = None
                self._early.clear()
        if end is None:
            return
        end["forked"] = self.forks.any()
        end["threads"] = sum(t.is_alive() for t in set(threading.enumerate()) - threads)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                continue
        self._send_end(end)

    def _send_end(self, end: dict[str, Any]) -> None:
        try:
            self.channel.send(end)
        except (FrameTooLong, ValueError, RecursionError) as error:
            what = "result: " if end["how"] == "returned" else ""
            how = "unserialisable" if end["how"] == "returned" else end["how"]
            self.channel.send(
                {**end, "how": how, "value": None, "output": None, "error": f"{what}{error}"[:4000]}
            )

    def _carried(self, values: dict[str, Any]) -> contextvars.Context:
        context = contextvars.copy_context()
        for name, value in values.items():
            module, _, variable = name.rpartition(":")
            found = getattr(importlib.import_module(module), variable)
            context.run(found.set, value)
        return context


def describe(error: BaseException) -> str:
    """An exception as bounded text: type and message, then where in foreign code it came from."""
    from endstop.core.text import safe_text
    from endstop.work.ending import words_of

    trace = error.__traceback__
    while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == _HERE:
        trace = trace.tb_next
    where = "".join(traceback.format_tb(trace, limit=-8))[-_TRACEBACK_CHARS:]
    said = words_of(error)
    return safe_text(f"{said}\n{where}".strip(), 2 * _TRACEBACK_CHARS)


def _stream(number: int) -> TextIO:
    return open(number, "w", 1, "utf-8", errors="backslashreplace", closefd=False)


_current: Runner | None = None


def current() -> Runner | None:
    """The runner of this process, or None in a process that is not one."""
    return _current


def main(sock: socket.socket, boot: dict[str, Any]) -> None:
    """Run until the runtime is gone."""
    global _current
    sys.path[:] = boot["path"]
    # Made anew: the ones from the start of the interpreter believe that they can seek. By line, so
    # that little is lost in a kill.
    sys.stdout = _stream(1)
    sys.stderr = _stream(2)
    channel = Channel(sock, boot["frame_bytes"])
    _current = Runner(channel)
    signal.signal(signal.SIGTERM, _current.terminate)
    threading.Thread(target=channel.read, name="endstop-channel", daemon=True).start()
    # Needed by every call: a host that waits for its first one has it ready.
    import endstop.work.body  # noqa: F401

    _current.serve()

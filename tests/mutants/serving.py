"""Planted bugs in the server: its door, its patience, its way down."""

from __future__ import annotations

from tests.mutants.runner import Mutant

HOSTILE = "tests/server/test_hostile.py"
LIFE = "tests/server/test_life.py"
BINDINGS = "tests/server/test_bindings.py"
RPC = "tests/server/test_rpc.py"
STREAM = "tests/server/test_rpc_stream.py"


def planted(name: str, law: str, file: str, old: str, new: str, test: str) -> Mutant:
    """One planted bug."""
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=(test,))


SERVING: tuple[Mutant, ...] = (
    planted(
        "a silent client keeps its connection",
        "18 audience-free",
        "server/connection.py",
        "        self._head = self.loop.call_later(self.limits.header_s, self._refuse, "
        "_TOO_SLOW)\n",
        "        self._head = None\n",
        f"{HOSTILE}::test_law_18_slow_heads_and_bodies_do_not_stay",
    ),
    planted(
        "a server goes down without a word to its readers",
        "16 survives-restart",
        "server/serve.py",
        "        self._guarded.go_down()\n",
        "",
        f"{LIFE}::test_law_16_a_signal_ends_streams_honestly_and_leaves_nothing_working",
    ),
    planted(
        "a second signal changes nothing",
        "6 bounded-stop",
        "server/serve.py",
        "        if self._asked == 2 and self._runtime is not None:\n",
        "        if self._asked == 0 and self._runtime is not None:\n",
        f"{LIFE}::test_law_6_bounded_stop_a_second_signal_does_not_wait",
    ),
    planted(
        "any token will do",
        "2 right-target",
        "server/auth.py",
        "            if hmac.compare_digest(digest, known):\n",
        "            if known:\n",
        BINDINGS,
    ),
    planted(
        "a request of any version is an everyday one",
        "19 any-payload",
        "server/rpc_read.py",
        "        or headers.get(_VERSION) != PROTOCOL_VERSION_1_0\n",
        "",
        f"{RPC}::test_versions_are_the_same",
    ),
    planted(
        "a part that holds two things is read as one of them",
        "19 any-payload",
        "server/rpc_read.py",
        "    if len(made.keys() & _CONTENTS) > 1:\n",
        "    if False:\n",
        "tests/server/test_rpc_params.py::test_odd_parts_are_read_the_same",
    ),
    planted(
        "an error of a handler is answered as a result",
        "5 honest-effect",
        "server/rpc_answer.py",
        "        return _result(asked, await _ask(handler, asked, context))\n"
        "    except A2AError as error:\n"
        "        return build_error_response(asked.id, error)\n",
        "        return _result(asked, await _ask(handler, asked, context))\n"
        "    except A2AError:\n"
        "        return _result(asked, {})\n",
        f"{RPC}::test_answers_and_errors_are_the_same",
    ),
    planted(
        "a client that leaves does not end its stream",
        "18 audience-free",
        "server/rpc_stream.py",
        "            self._stream.cancel()\n",
        "",
        f"{STREAM}::test_law_18_a_client_that_leaves_ends_its_stream_at_once",
    ),
    planted(
        "whoever cancels a stream is taken for its client",
        "7 every-wait-listens",
        "server/rpc_stream.py",
        "        if not client.gone or task.cancelling() > 1:\n            raise\n",
        "        pass\n",
        f"{STREAM}::test_a_cancel_from_elsewhere_stays_one",
    ),
    planted(
        "a number that JSON has no word for is written",
        "19 any-payload",
        "a2a/encoding.py",
        "            if not isfinite(value.number_value):\n",
        "            if False:\n",
        "tests/a2a/test_encoding.py::test_what_has_no_json_is_an_error_in_the_same_words",
    ),
)

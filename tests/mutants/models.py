"""The planted bugs in how models are asked over HTTP, and in what counts as a reply."""

from __future__ import annotations

from tests.mutants.runner import Mutant

FOLDER = "agents/models/"
TESTS = "tests/models/"
HTTP = (f"{TESTS}test_http.py::test_a_cut_stream_is_no_reply",)
UNFINISHED = (f"{TESTS}test_http.py::test_done_without_a_finish_reason_is_no_reply",)
TRICKLE = (f"{TESTS}test_http.py::test_a_trickle_that_never_ends_is_given_up",)
BEGUN = (f"{TESTS}test_retries.py::test_a_reply_that_has_begun_is_not_asked_again",)
END = (f"{TESTS}test_retries.py::test_there_is_an_end_to_asking_again",)
REST = (f"{TESTS}test_retries.py::test_a_rest_over_the_bound_is_not_kept_but_told",)
CANCEL = (f"{TESTS}test_cancel.py::test_a_cancel_ends_a_rest_and_nothing_is_asked_after_it",)
CALLS = (f"{TESTS}test_chat_calls.py",)
ANTHROPIC = (f"{TESTS}test_anthropic_stream.py",)
KEYS = (
    f"{TESTS}test_providers.py::test_a_key_of_the_environment_never_goes_to_another_server_unasked",
)
SSE = (f"{TESTS}test_sse.py",)


def _planted(name: str, law: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    return Mutant(name=name, law=law, file=FOLDER + file, old=old, new=new, tests=tests)


MODELS: tuple[Mutant, ...] = (
    _planted(
        "a chat stream that was cut counts as whole",
        "1 one-door",
        "chat_stream.py",
        "        if not self.done and self._needs_done:\n",
        "        if False:\n",
        HTTP,
    ),
    _planted(
        "a chat stream without a finish reason counts as whole",
        "1 one-door",
        "chat_stream.py",
        "        if any(not choice.finish for choice in self._choices.values()):\n",
        "        if False:\n",
        UNFINISHED,
    ),
    _planted(
        "a message that was cut counts as whole",
        "1 one-door",
        "anthropic_stream.py",
        "        if not self.done:\n",
        "        if False:\n",
        ANTHROPIC,
    ),
    _planted(
        "a block of content that was cut counts as whole",
        "1 one-door",
        "anthropic_stream.py",
        "        if self._open:\n",
        "        if False:\n",
        ANTHROPIC,
    ),
    _planted(
        "a whole call that comes twice is two calls",
        "5 honest-effect",
        "chat_calls.py",
        "        if name == current.name and made_id:\n            return False\n",
        "",
        CALLS,
    ),
    _planted(
        "a cancel in a rest is taken for its end",
        "7 every-wait-listens",
        "http.py",
        "            await asyncio.sleep(rest_s)\n",
        "            with contextlib.suppress(asyncio.CancelledError):\n"
        "                await asyncio.sleep(rest_s)\n",
        CANCEL,
    ),
    _planted(
        "there is no end to asking again",
        "6 bounded-stop",
        "http.py",
        "        if not failed.again or tried > limits.retries:\n",
        "        if not failed.again:\n",
        END,
    ),
    _planted(
        "a provider decides how long to wait",
        "6 bounded-stop",
        "http.py",
        "        if wanted_s is not None and wanted_s > limits.retry_after_s:\n",
        "        if False:\n",
        REST,
    ),
    _planted(
        "a reply has no total limit",
        "6 bounded-stop",
        "http.py",
        "        scope = asyncio.timeout(total_s)\n",
        "        scope = asyncio.timeout(None)\n",
        TRICKLE,
    ),
    _planted(
        "a reply that was shown is asked for again",
        "10 no-blind-retry",
        "reading.py",
        "            raise Failed(error, again=again and not self._assembler.begun)",
        "            raise Failed(error, again=again)",
        BEGUN,
    ),
    _planted(
        "a line of a stream has no bound",
        "19 any-payload",
        "sse.py",
        "            if len(self._line) + len(line) > self._limit:\n",
        "            if False:\n",
        SSE,
    ),
    _planted(
        "a key of the environment goes to any server",
        "1 one-door",
        "openai.py",
        "        elif host_of(base_url) == host_of(OPENAI_URL):\n",
        "        else:\n",
        KEYS,
    ),
)

"""Asking again: bounded in number and time, as the provider says, and only while it is harmless."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, formatdate
from http import HTTPStatus
from itertools import pairwise
from typing import Any

import pytest

from endstop.adapters import read_reply
from endstop.agents.models import (
    Anthropic,
    Ask,
    Delta,
    HttpLimits,
    ModelError,
    ModelReply,
    OpenAICompatible,
)
from endstop.agents.models.failures import retry_after_s
from endstop.errors import CallerError
from tests.models.server import (
    WAIT_S,
    Answer,
    Line,
    Request,
    Server,
    answers,
    chat,
    chunk,
    event,
    hangs_up,
    play,
    resets,
    serving,
    streams,
)

ASK = Ask(messages=[{"role": "user", "content": "hello"}])
QUICK = HttpLimits(first_s=0.01, most_s=0.03, retries=3)
BUSY = answers({"error": {"message": "busy"}}, "503 Service Unavailable")
GOOD = streams(*chat())


def asked(
    *given: Answer, limits: HttpLimits = QUICK, shown: list[Delta] | None = None
) -> tuple[ModelReply | ModelError, int]:
    """How one ask ends at a server that gives these answers, and how often it was asked."""
    deltas = [] if shown is None else shown

    async def scenario() -> tuple[ModelReply | ModelError, int]:
        async with serving(*given) as server:
            model = OpenAICompatible("m", base_url=server.url, limits=limits)
            try:
                async with model, asyncio.timeout(WAIT_S):
                    return await model.reply(ASK, deltas.append), len(server.requests)
            except ModelError as error:
                return error, len(server.requests)

    return play(scenario)


def status(line: str, **headers: str) -> Answer:
    return answers({"error": {"message": "the words"}}, line, **headers)


@pytest.mark.parametrize(
    "first",
    [
        "408 Request Timeout",
        "409 Conflict",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "502 Bad Gateway",
        "503 Service Unavailable",
        "504 Gateway Timeout",
        "520 Web Server Returned an Unknown Error",
        "529 Overloaded",
    ],
)
def test_what_may_pass_is_asked_again(first: str) -> None:
    reply, times = asked(status(first), status(first), GOOD)
    assert isinstance(reply, ModelReply), reply
    assert read_reply(reply.body).text == "hello"
    assert times == 3


@pytest.mark.parametrize("first", [resets, hangs_up, streams(), streams(b": hello\n\n")])
def test_a_connection_that_breaks_before_the_reply_is_asked_again(first: Answer) -> None:
    reply, times = asked(first, GOOD)
    assert isinstance(reply, ModelReply), reply
    assert times == 2


@pytest.mark.parametrize("end", ["whole", "hang up", "reset"])
def test_a_stream_that_breaks_before_anything_of_the_reply_is_asked_again(end: str) -> None:
    empty = chunk({"role": "assistant", "content": ""})
    reply, times = asked(streams(b": wait\n\n", empty, end=end), GOOD)
    assert isinstance(reply, ModelReply), reply
    assert times == 2


@pytest.mark.parametrize("end", ["whole", "hang up", "reset"])
@pytest.mark.parametrize(
    "began",
    [
        {"content": "a"},
        {"reasoning_content": "a"},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]},
        {"function_call": {"name": "f"}},
    ],
)
def test_a_reply_that_has_begun_is_not_asked_again(began: Any, end: str) -> None:
    """What was shown would be shown twice."""
    error, times = asked(streams(chunk(began), end=end), GOOD)
    assert isinstance(error, ModelError)
    assert error.kind == "broken_stream"
    assert times == 1


def test_an_error_in_the_stream_before_the_reply_is_asked_again() -> None:
    busy = event({"error": {"message": "overloaded", "code": 503}})
    reply, times = asked(streams(busy), answers({"error": {"code": 503}}), GOOD)
    assert isinstance(reply, ModelReply), reply
    assert times == 3
    began, times = asked(streams(chunk({"content": "a"}), busy), GOOD)
    assert isinstance(began, ModelError)
    assert (began.kind, times) == ("overloaded", 1)


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        ("400 Bad Request", "bad_request"),
        ("401 Unauthorized", "auth"),
        ("402 Payment Required", "auth"),
        ("403 Forbidden", "auth"),
        ("404 Not Found", "bad_request"),
        ("405 Method Not Allowed", "bad_request"),
        ("413 Content Too Large", "too_large"),
        ("422 Unprocessable Content", "bad_request"),
        ("501 Not Implemented", "unavailable"),
    ],
)
def test_what_will_not_pass_is_asked_once(first: str, kind: str) -> None:
    error, times = asked(status(first), GOOD)
    assert isinstance(error, ModelError)
    assert (error.kind, error.status, times) == (kind, int(first[:3]), 1)
    code = int(first[:3])
    # The words for some codes differ between versions of Python.
    assert f"answered {code} {HTTPStatus(code).phrase}: the words." in str(error)
    assert "Tried" not in str(error)


def test_an_empty_account_is_asked_once() -> None:
    body = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    error, times = asked(answers(body, "429 Too Many Requests"), GOOD)
    assert isinstance(error, ModelError)
    assert (error.kind, error.status, times) == ("auth", 429, 1)


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("it is too long", {"code": "context_length_exceeded"}),
        ("prompt is too long: 210000 tokens > 200000 maximum", {"type": "invalid_request_error"}),
        ("This model's maximum context length is 4096 tokens.", {"code": 400}),
        ("the request exceeds the available context size", {}),
    ],
)
def test_a_transcript_over_the_context_is_told_apart(words: str, more: dict[str, Any]) -> None:
    body = {"error": {"message": words, **more}}
    error, times = asked(answers(body, "400 Bad Request"), GOOD)
    assert isinstance(error, ModelError)
    assert (error.kind, times) == ("too_large", 1)


def test_a_server_that_says_not_to_is_asked_once() -> None:
    error, times = asked(status("503 Service Unavailable", x_should_retry="false"), GOOD)
    assert isinstance(error, ModelError)
    assert times == 1


def test_there_is_an_end_to_asking_again() -> None:
    """Law 6 bounded-stop."""
    error, times = asked(status("500 Internal Server Error"))
    assert isinstance(error, ModelError)
    assert (error.kind, error.status, times) == ("unavailable", 500, 1 + QUICK.retries)
    assert str(error).endswith("(Tried 4 times.)")


def test_nobody_there_is_asked_again_until_the_bound() -> None:
    async def scenario() -> None:
        async with serving(resets) as server:
            url = server.url
        async with OpenAICompatible("m", base_url=url, limits=QUICK) as model:
            with pytest.raises(ModelError, match=r"Tried 4 times"):
                await model.reply(ASK, lambda _: None)

    play(scenario)


def test_no_retries_is_one_attempt() -> None:
    _, times = asked(BUSY, limits=HttpLimits(retries=0))
    assert times == 1


@pytest.mark.parametrize("header", ["retry_after", "retry_after_ms"])
def test_the_rest_that_the_provider_wants_is_kept(header: str) -> None:
    wanted = {"retry_after": "1", "retry_after_ms": "400"}[header]
    least_s = {"retry_after": 1.0, "retry_after_ms": 0.4}[header]
    began = time.monotonic()
    reply, times = asked(status("429 Too Many Requests", **{header: wanted}), GOOD)
    assert isinstance(reply, ModelReply)
    assert times == 2
    assert least_s <= time.monotonic() - began < least_s + 5


def test_a_date_to_come_back_at_is_kept() -> None:
    async def scenario() -> tuple[float, Server]:
        # The header has whole seconds: at least one of these is still to come.
        at = datetime.now(UTC) + timedelta(seconds=2)
        late = status("429 Too Many Requests", retry_after=format_datetime(at, usegmt=True))
        async with serving(late, GOOD) as server:
            model = OpenAICompatible("m", base_url=server.url, limits=QUICK)
            began = time.monotonic()
            await model.reply(ASK, lambda _: None)
            return time.monotonic() - began, server

    took_s, server = play(scenario)
    assert len(server.requests) == 2
    assert 0.9 <= took_s < 7


@pytest.mark.parametrize(
    "value", ["61", "3600", "1e300", formatdate(time.time() + 4000, usegmt=True)]
)
def test_a_rest_over_the_bound_is_not_kept_but_told(value: str) -> None:
    """Law 6 bounded-stop: a provider cannot make us wait for longer than was allowed."""
    began = time.monotonic()
    error, times = asked(status("429 Too Many Requests", retry_after=value), GOOD)
    assert isinstance(error, ModelError)
    assert time.monotonic() - began < 10
    assert (error.kind, times) == ("rate_limited", 1)
    assert error.retry_after_s is not None
    assert error.retry_after_s > 60


def test_a_rest_that_ends_after_the_total_limit_is_not_begun() -> None:
    limits = HttpLimits(total_s=5.0)
    began = time.monotonic()
    error, times = asked(status("429 Too Many Requests", retry_after="30"), GOOD, limits=limits)
    assert isinstance(error, ModelError)
    assert (error.kind, times) == ("rate_limited", 1)
    assert time.monotonic() - began < 4


def test_the_total_limit_ends_a_row_of_attempts() -> None:
    limits = HttpLimits(total_s=2.0, retries=10**6, first_s=0.01, most_s=0.01)
    began = time.monotonic()
    error, times = asked(BUSY, limits=limits)
    assert isinstance(error, ModelError)
    assert error.kind in ("overloaded", "timeout")
    assert times > 1
    assert time.monotonic() - began < 10


def test_rests_grow_up_to_their_bound() -> None:
    at: list[float] = []

    async def busy(line: Line, request: Request) -> None:
        at.append(time.monotonic())
        await BUSY(line, request)

    asked(busy, limits=HttpLimits(first_s=0.1, most_s=0.3, retries=5))
    rests = [later - earlier for earlier, later in pairwise(at)]
    assert len(rests) == 5
    for least_s, rest_s in zip([0.05, 0.1, 0.15, 0.15, 0.15], rests, strict=True):
        assert least_s <= rest_s < 0.3 + 5


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("0", 0.0),
        ("2.5", 2.5),
        (" 7 ", 7.0),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None),
        ("Wed, 21 Oct 99999999999 07:28:00 GMT", None),
    ],
)
def test_how_long_to_wait_is_read_or_left(value: str, wanted: float | None) -> None:
    assert retry_after_s({"retry-after": value}) == wanted


def test_milliseconds_are_more_exact() -> None:
    assert retry_after_s({"retry-after": "1", "retry-after-ms": "300"}) == 0.3
    assert retry_after_s({"retry-after": "1", "retry-after-ms": "x"}) == 1.0
    assert retry_after_s({}) is None


@pytest.mark.parametrize("name", ["connect_s", "idle_s", "total_s", "reply_bytes", "event_bytes"])
def test_a_limit_that_allows_nothing_is_refused(name: str) -> None:
    for value in (0, -1, float("nan"), "5", None, True):
        with pytest.raises(CallerError, match=f"{name} is .*: give more than 0"):
            HttpLimits(**{name: value})
    with pytest.raises(CallerError, match="retries is -1: give 0 or more"):
        HttpLimits(retries=-1)


def test_a_server_that_does_not_know_a_field_is_asked_without_it_from_then_on() -> None:
    seen: list[Any] = []

    async def strict(line: Line, request: Request) -> None:
        seen.append(request.body)
        if "stream_options" in request.body:
            words = {"detail": "extra fields not permitted: stream_options"}
            await answers(words, "422 Unprocessable Content")(line, request)
        elif "max_tokens" in request.body:
            words = {"error": {"message": "Use 'max_completion_tokens' instead."}}
            await answers(words, "400 Bad Request")(line, request)
        else:
            await GOOD(line, request)

    async def scenario() -> None:
        async with serving(strict) as server:
            model = OpenAICompatible("m", base_url=server.url, limits=QUICK)
            ask = Ask(messages=[], max_tokens=7)
            for _ in range(2):
                await model.reply(ask, lambda _: None)

    play(scenario)
    assert len(seen) == 4
    assert all("stream_options" not in body for body in seen[1:])
    assert [body.get("max_completion_tokens") for body in seen] == [None, None, 7, 7]


def test_anthropic_overloaded_in_the_stream_is_asked_again_before_content_only() -> None:
    start = event({"type": "message_start", "message": {"role": "assistant", "usage": {}}})
    ping = event({"type": "ping"}, name="ping")
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    stop = event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    good = streams(start, stop, event({"type": "message_stop"}))

    async def scenario() -> None:
        early = streams(start, ping, event(body, name="error"))
        late = streams(start, event(block), event(body, name="error"))
        async with serving(early, good, late, good) as server:
            model = Anthropic("m", base_url=server.url, limits=QUICK)
            async with model:
                await model.reply(ASK, lambda _: None)
                assert len(server.requests) == 2
                with pytest.raises(ModelError, match="Overloaded") as caught:
                    await model.reply(ASK, lambda _: None)
                assert caught.value.kind == "overloaded"
                assert len(server.requests) == 3

    play(scenario)


def test_an_attempt_that_is_not_the_last_is_logged_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        words = answers({"error": {"message": "no room for sk-secret-1"}}, "503 Busy")
        async with serving(words, GOOD) as server:
            model = OpenAICompatible("m", base_url=server.url, api_key="sk-secret-1", limits=QUICK)
            await model.reply(ASK, lambda _: None)

    with caplog.at_level("INFO", logger="endstop.agents"):
        play(scenario)
    (record,) = [one for one in caplog.records if one.name == "endstop.agents"]
    assert "no room for [secret]" in record.getMessage()
    assert "Asked again in 0." in record.getMessage()

"""The providers: what they send, whose key goes where, and what they count."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest

import endstop
from endstop import tool
from endstop.adapters import read_reply
from endstop.agents.models import (
    Anthropic,
    Ask,
    HttpLimits,
    Model,
    ModelError,
    ModelReply,
    OpenAICompatible,
    OpenAIResponses,
    Prices,
    Scripted,
    Usage,
)
from endstop.agents.models.provider import HttpModel
from endstop.core.terms import Money
from endstop.errors import CallerError
from tests.models.server import Request, answers, event, joined, play, serving, streams
from tests.models.server import chat as chat_stream

KEY = "sk-very-secret-0123456789"
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "hello \ud83d\ude00 é"}]


@tool(effect="read_only", resources=[])
async def weather(city: str, days: int = 1) -> str:
    """The weather in a city."""
    return city


@tool(effect="read_only", resources=[])
async def now() -> str:
    return ""


ASK = Ask(messages=MESSAGES, system="Be kind.", tools=[weather, now], max_tokens=99)


def block(kind: str, **more: Any) -> bytes:
    return event({"type": kind, **more}, name=kind)


ANTHROPIC_STREAM = [
    block(
        "message_start",
        message={
            "type": "message",
            "role": "assistant",
            "content": [],
            "usage": {
                "input_tokens": 10,
                "cache_read_input_tokens": 200,
                "cache_creation_input_tokens": 30,
                "output_tokens": 1,
            },
        },
    ),
    block("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    block("content_block_delta", index=0, delta={"type": "text_delta", "text": "hello"}),
    block("content_block_stop", index=0),
    block("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7}),
    block("message_stop"),
]
RESPONSE = {
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "hello"}]}],
    "usage": {
        "input_tokens": 40,
        "output_tokens": 6,
        "input_tokens_details": {"cached_tokens": 30},
    },
}
RESPONSES_STREAM = [event({"type": "response.completed", "response": RESPONSE})]
STREAM_OF: dict[type[HttpModel], list[bytes]] = {
    OpenAICompatible: chat_stream(),
    OpenAIResponses: RESPONSES_STREAM,
    Anthropic: ANTHROPIC_STREAM,
}
KINDS = list(STREAM_OF)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def asked(kind: type[Any], ask: Ask = ASK, **options: Any) -> tuple[Request, ModelReply]:
    """What a model sends to a server that answers well, and its reply."""

    async def scenario() -> tuple[Request, ModelReply]:
        async with serving(streams(joined(STREAM_OF[kind]))) as server:
            async with kind("m-1", base_url=server.url, **options) as model:
                reply = await model.reply(ask, lambda _: None)
            return server.requests[0], reply

    return play(scenario)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_what_a_chat_completion_asks() -> None:
    request, reply = asked(OpenAICompatible)
    assert request.path == "/v1/chat/completions"
    assert request.body == {
        "model": "m-1",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hello 😀 é"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "The weather in a city.",
                    "parameters": weather.parameters,
                },
            },
            {"type": "function", "function": {"name": "now", "parameters": now.parameters}},
        ],
        "max_tokens": 99,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert read_reply(reply.body).text == "hello"
    assert reply.usage == Usage(input_tokens=5, output_tokens=2)


def test_what_a_message_asks() -> None:
    request, reply = asked(Anthropic)
    assert request.path == "/v1/messages"
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert request.body == {
        "model": "m-1",
        "system": "Be kind.",
        "messages": [{"role": "user", "content": "hello 😀 é"}],
        "tools": [
            {
                "name": "weather",
                "description": "The weather in a city.",
                "input_schema": weather.parameters,
            },
            {"name": "now", "input_schema": now.parameters},
        ],
        "max_tokens": 99,
        "stream": True,
    }
    assert read_reply(reply.body).text == "hello"
    assert reply.usage == Usage(
        input_tokens=240, output_tokens=7, cached_tokens=200, cache_write_tokens=30
    )


def test_what_a_response_asks() -> None:
    request, reply = asked(OpenAIResponses)
    assert request.path == "/v1/responses"
    assert request.body == {
        "model": "m-1",
        "instructions": "Be kind.",
        "input": [{"role": "user", "content": "hello 😀 é"}],
        "tools": [
            {
                "type": "function",
                "strict": False,
                "name": "weather",
                "description": "The weather in a city.",
                "parameters": weather.parameters,
            },
            {
                "type": "function",
                "strict": False,
                "name": "now",
                "parameters": now.parameters,
            },
        ],
        "max_output_tokens": 99,
        "stream": True,
    }
    assert read_reply(reply.body).text == "hello"
    assert reply.usage == Usage(input_tokens=40, output_tokens=6, cached_tokens=30)


@each_kind
def test_what_is_not_asked_for_is_not_sent(kind: type[HttpModel]) -> None:
    request, _ = asked(kind, Ask(messages=MESSAGES))
    sent = set(request.body)
    assert not sent & {"tools", "system", "instructions", "max_output_tokens"}
    assert ("max_tokens" in sent) == (kind is Anthropic)


@each_kind
def test_extra_has_the_last_word(kind: type[HttpModel]) -> None:
    extra = {"temperature": 0, "model": "other", "stream_options": None, "tools": [{"type": "web"}]}
    request, _ = asked(kind, extra=extra)
    assert request.body["temperature"] == 0
    assert request.body["model"] == "other"
    assert "stream_options" not in request.body
    assert [one.get("type") for one in request.body["tools"]][-1] == "web"
    assert len(request.body["tools"]) == 3
    request, _ = asked(kind, Ask(messages=[]), extra=extra)
    assert request.body["tools"] == [{"type": "web"}]


def test_a_stream_that_extra_forbids_is_read_as_one_document() -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": "whole"}}]}

    async def scenario() -> None:
        async with serving(answers(body)) as server:
            model = OpenAICompatible("m", base_url=server.url, extra={"stream": False})
            reply = await model.reply(Ask(messages=[]), lambda _: None)
            assert server.requests[0].body["stream"] is False
            assert read_reply(reply.body).text == "whole"
            assert not reply.usage.reported

    play(scenario)


@each_kind
def test_a_key_goes_into_one_header(kind: type[HttpModel]) -> None:
    request, _ = asked(kind, api_key=f" {KEY}\n")
    holding = [name for name, value in request.headers.items() if KEY in value]
    assert holding == (["x-api-key"] if kind is Anthropic else ["authorization"])
    assert KEY not in str(request.body)


@each_kind
def test_a_key_of_the_environment_never_goes_to_another_server_unasked(
    kind: type[HttpModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    request, _ = asked(kind)
    assert KEY not in str(request.headers)
    monkeypatch.setenv("MY_KEY", "another-secret")
    request, _ = asked(kind, key_env="MY_KEY")
    assert "another-secret" in str(request.headers)


@each_kind
def test_a_key_of_the_environment_goes_to_its_own_server(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "ANTHROPIC" if kind is Anthropic else "OPENAI"

    async def scenario() -> None:
        async with serving(streams(joined(STREAM_OF[kind]))) as server:
            monkeypatch.setenv(f"{name}_BASE_URL", server.url)
            model = kind("m")
            with pytest.raises(ModelError, match=f"no API key .*set {name}_API_KEY") as caught:
                await model.reply(Ask(messages=[]), lambda _: None)
            assert caught.value.kind == "auth"
            # The key is read when it is needed: it may come later, or change.
            monkeypatch.setenv(f"{name}_API_KEY", KEY)
            await model.reply(Ask(messages=[]), lambda _: None)
            assert KEY in str(server.requests[0].headers)
            await model.aclose()

    play(scenario)


def test_the_default_servers_are_the_providers_own() -> None:
    assert OpenAICompatible("m").base_url == "https://api.openai.com/v1"
    assert OpenAIResponses("m").base_url == "https://api.openai.com/v1"
    assert Anthropic("m").base_url == "https://api.anthropic.com"
    ours = OpenAICompatible("m", base_url="https://api.openai.com/v1/")
    assert ours._key_env == "OPENAI_API_KEY"
    assert ours._request(Ask(messages=[], max_tokens=3))["max_completion_tokens"] == 3


def test_own_headers_come_before_ours() -> None:
    own = {"Authorization": "Basic abc", "X-Title": "t", "User-Agent": "mine"}
    request, _ = asked(OpenAICompatible, api_key=KEY, headers=own)
    assert request.headers["authorization"] == "Basic abc"
    assert request.headers["x-title"] == "t"
    assert request.headers["user-agent"] == "mine"
    assert KEY not in str(request.headers)


def test_a_proxy_for_the_world_is_not_asked_for_a_server_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    request, _ = asked(OpenAICompatible)
    assert request.path == "/v1/chat/completions"


def test_azure_takes_its_key_in_a_header_of_its_own() -> None:
    model = OpenAICompatible("m", base_url="https://x.openai.azure.com/openai/v1", api_key=KEY)
    assert model._all_headers()["api-key"] == KEY
    assert "authorization" not in model._all_headers()


@each_kind
@pytest.mark.parametrize("where", ["header", "body", "stream", "redirect"])
def test_no_error_ever_tells_a_secret(kind: type[Any], where: str) -> None:
    async def scenario() -> None:
        words = {"error": {"message": f"Incorrect API key provided: {KEY} \x1b[31m\n also pw-0815"}}
        given = {
            "header": answers("", "401 Unauthorized", www_authenticate=KEY),
            "body": answers(words, "401 Unauthorized"),
            "stream": streams(event(words)),
            "redirect": answers("", "302 Found", location=f"http://other/?key={KEY}"),
        }[where]
        async with serving(given) as server:
            url = server.url.replace("http://", "http://user:pw-0815@")
            limits = HttpLimits(retries=0)
            model = kind("m", base_url=f"{url}?token=tok-4711", api_key=KEY, limits=limits)
            with pytest.raises(ModelError) as caught:
                await model.reply(Ask(messages=[]), lambda _: None)
            told = f"{caught.value!r} {caught.value} {model!r}"
            cause: BaseException | None = caught.value
            while cause is not None:
                told += repr(cause) + str(cause)
                cause = cause.__cause__
            for secret in (KEY, "pw-0815", "tok-4711", "\x1b"):
                assert secret not in told
            assert "token=tok-4711" in server.requests[0].path
            if where == "body":
                assert "Incorrect API key provided: [secret]" in told
                assert caught.value.kind == "auth"
            if where == "redirect":
                assert "it points to http://other/?key=[secret]" in told
            assert len(server.requests) == 1

    play(scenario)


@pytest.mark.parametrize("bad", ["sk-a\nb", "sk-é", "sk-\x00"])
def test_a_key_that_is_none_is_refused_without_telling_it(bad: str) -> None:
    with pytest.raises(CallerError, match="The API key from api_key") as caught:
        OpenAICompatible("m", api_key=bad)
    assert bad not in str(caught.value)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "localhost:11434",
        "ftp://host/v1",
        "http://",
        "http:///v1",
        "http://[::1",
        "http://a b/v1",
        "http://host:99999/v1",
        "/v1",
        7,
    ],
)
@each_kind
def test_an_address_that_is_none_is_refused(kind: type[Any], bad: Any) -> None:
    with pytest.raises(CallerError, match="base_url is not the address of a server"):
        kind("m", base_url=bad)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h", "http://h/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ("https://h:1/d?api-version=3", "https://h:1/d/chat/completions?api-version=3"),
        ("http://[::1]:8000/v1#x", "http://[::1]:8000/v1/chat/completions"),
    ],
)
def test_where_it_posts(given: str, wanted: str) -> None:
    assert OpenAICompatible("m", base_url=given)._http._url == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("http://h", "http://h/v1/messages"),
        ("http://h/v1", "http://h/v1/messages"),
        ("http://h/v1/", "http://h/v1/messages"),
        ("http://h/v1/messages", "http://h/v1/messages"),
        ("http://h/anthropic", "http://h/anthropic/v1/messages"),
        ("http://h/v1?a=b", "http://h/v1/messages?a=b"),
    ],
)
def test_where_messages_go(given: str, wanted: str) -> None:
    assert Anthropic("m", base_url=given)._http._url == wanted


def test_other_bad_input_is_refused_in_words() -> None:
    with pytest.raises(CallerError, match="model is ''"):
        OpenAICompatible(" ".strip())
    with pytest.raises(CallerError, match="'a b' is no name of a header"):
        OpenAICompatible("m", headers={"a b": "x"})
    with pytest.raises(CallerError, match="the value of 'x' is not one line"):
        OpenAICompatible("m", headers={"x": "a\r\nb: c"})


@pytest.mark.parametrize("junk", [object(), float("nan"), {1, 2}])
def test_what_cannot_be_sent_is_refused_before_it_is(junk: Any) -> None:
    async def scenario() -> None:
        async with serving(streams(*chat_stream())) as server:
            model = OpenAICompatible("m", base_url=server.url)
            ask = Ask(messages=[{"role": "user", "content": junk}])
            with pytest.raises(CallerError, match="cannot be written as JSON"):
                await model.reply(ask, lambda _: None)
            assert not server.requests

    play(scenario)


def test_prices_make_money_of_tokens() -> None:
    prices = Prices(input="3", output="15", currency="USD", cached_input="0.30", cache_write="3.75")
    _, reply = asked(Anthropic, prices=prices)
    wanted = (10 * 3 + 200 * Decimal("0.30") + 30 * Decimal("3.75") + 7 * 15) / Decimal(10**6)
    assert reply.usage.cost == Money(amount=wanted, currency="USD")


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        [],
        "x",
        {"prompt_tokens": "many", "completion_tokens": -3},
        {"prompt_tokens": None},
    ],
)
def test_counts_that_are_none_do_no_harm(usage: Any) -> None:
    body = {
        "choices": [{"message": {"role": "assistant", "content": "a"}}],
        "usage": usage,
    }

    async def scenario() -> ModelReply:
        async with serving(answers(body)) as server:
            prices = Prices(input="3", output="15", currency="USD")
            model = OpenAICompatible("m", base_url=server.url, prices=prices)
            return await model.reply(Ask(messages=[]), lambda _: None)

    used = play(scenario).usage
    assert (used.input_tokens, used.output_tokens) == (0, 0)
    assert (used.cost is None) == (not used.reported)


def test_what_the_router_charged_is_taken_over_from_the_router_alone() -> None:
    usage = {"prompt_tokens": 888, "completion_tokens": 74, "cost": 0.0145476}
    routed = OpenAICompatible("m", base_url="https://openrouter.ai/api/v1")._used(usage)
    assert routed.cost == Money(amount=Decimal("0.0145476"), currency="USD")
    other = OpenAICompatible("m", base_url="https://example.com/v1")._used(usage)
    assert other.cost is None


@each_kind
def test_every_provider_is_a_model(kind: type[HttpModel]) -> None:
    def is_model(model: Model) -> str:
        return f"{model.name} {model.format}"

    told = {
        OpenAICompatible: is_model(OpenAICompatible("m")),
        OpenAIResponses: is_model(OpenAIResponses("m")),
        Anthropic: is_model(Anthropic("m")),
    }
    assert told[kind] == f"m {kind.format}"
    assert is_model(Scripted([])) == "scripted openai-chat"


def test_the_public_names_are_these() -> None:
    for name in (
        "Anthropic",
        "HttpLimits",
        "Model",
        "ModelError",
        "OpenAICompatible",
        "OpenAIResponses",
        "Prices",
        "Say",
        "Scripted",
        "Usage",
    ):
        assert name in endstop.__all__
        assert getattr(endstop, name).__module__.startswith("endstop.agents.models")


def run_python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_http_library_is_imported_before_the_first_request() -> None:
    script = """
import sys, endstop
assert "endstop.agents.models" not in sys.modules
endstop.OpenAICompatible("m"), endstop.Anthropic("m"), endstop.Scripted([])
print([name for name in ("httpx2", "httpx", "anyio", "ssl") if name in sys.modules])
"""
    assert run_python(script) in ("[]\n", "['ssl']\n")


def test_without_the_library_the_error_names_the_extra() -> None:
    script = """
import sys
sys.modules["httpx2"] = None
import endstop
endstop.Scripted([])
try:
    endstop.OpenAICompatible("m")
except endstop.CallerError as error:
    print(error)
"""
    assert 'pip install "endstop[models]"' in run_python(script)

"""Over TLS: a server is trusted or told apart, and a cancel closes the connection as fast."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from endstop.adapters import read_reply
from endstop.agents.models import Ask, HttpLimits, ModelError, OpenAICompatible
from tests.models.server import WAIT_S, Line, Request, chat, chunk, play, serving, streams

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")

ASK = Ask(messages=[])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of its own making for 127.0.0.1, with its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    made, key, both = folder / "cert.pem", folder / "key.pem", folder / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    both.write_text(made.read_text() + key.read_text())
    return both


def context(certificate: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate)
    return made


def test_a_server_that_nobody_vouches_for_is_told_and_not_asked_again(certificate: Path) -> None:
    async def scenario() -> None:
        async with serving(streams(*chat()), tls=context(certificate)) as server:
            limits = HttpLimits(retries=5, first_s=0.01)
            model = OpenAICompatible("m", base_url=server.url, api_key="sk-secret", limits=limits)
            with pytest.raises(ModelError, match=r"certificate verify failed") as caught:
                await model.reply(ASK, lambda _: None)
            assert caught.value.kind == "unavailable"
            assert "Tried" not in str(caught.value)
            assert not server.requests
            # The server has a task of its own for a greeting that failed.
            async with asyncio.timeout(WAIT_S):
                while len(asyncio.all_tasks()) > 1:
                    await asyncio.sleep(0.005)

    play(scenario)


def test_a_server_that_the_environment_vouches_for_is_asked(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def scenario() -> None:
        async with serving(streams(*chat()), tls=context(certificate)) as server:
            async with OpenAICompatible("m", base_url=server.url) as model:
                for _ in range(2):
                    reply = await model.reply(ASK, lambda _: None)
                    assert read_reply(reply.body).text == "hello"
            assert server.connections == 1
            await server.emptied()

    play(scenario)


def test_a_cancel_closes_the_connection_at_once(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 7 every-wait-listens: no farewell of the other side is waited for."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def scenario() -> None:
        waiting = asyncio.Event()

        async def waits(line: Line, request: Request) -> None:
            await line.stream_head()
            await line.chunk(chunk({"content": "a"}))
            waiting.set()
            await line.gone()

        async with serving(waits, tls=context(certificate)) as server:
            model = OpenAICompatible("m", base_url=server.url)
            task = asyncio.create_task(model.reply(ASK, lambda _: None))
            await asyncio.wait_for(waiting.wait(), WAIT_S)
            at = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.emptied()
            assert time.monotonic() - at < 5.0

    play(scenario)

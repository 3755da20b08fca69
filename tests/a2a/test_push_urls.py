"""Which URLs a server of ours posts to: the open internet, by an address that was judged."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

from a2a.types import TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError

from endstop.a2a import webhooks
from endstop.a2a.push import Pusher
from endstop.a2a.webhooks import Courier, Refused, check_url, is_public, look_up, parse_url
from endstop.store.memory import MemoryJournal
from tests.a2a.webhook import WAIT_S, Got, Webhook, answer, webhook

INSIDE = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::127.0.0.1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2001:0:53aa:64c:0:0:80ff:fffe",
    "2001:db8::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "100::1",
    "not an address",
    "",
]
OUTSIDE = [
    "8.8.8.8",
    "1.1.1.1",
    "172.32.0.1",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_outside_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "text of 1 to"),
        ("http://" + "a" * 3_000, "text of 1 to"),
        ("ftp://example.com/", "neither http nor https"),
        ("file:///etc/passwd", "neither http nor https"),
        ("gopher://127.0.0.1:6379/_x", "neither http nor https"),
        ("javascript:alert(1)", "neither http nor https"),
        ("//example.com/", "neither http nor https"),
        ("example.com/hook", "neither http nor https"),
        ("http://", "names no host"),
        ("http:///hook", "names no host"),
        ("http://alice:secret@example.com/", "user name or password"),
        ("http://@example.com/", "user name or password"),
        ("http://8.8.8.8@127.0.0.1/", "user name or password"),
        ("http://example.com\\@127.0.0.1/", "backslashes"),
        ("http://exa mple.com/", "spaces"),
        ("http://example.com/\r\nX-Evil: 1", "control characters"),
        ("http://example.com/\x85", "control characters"),
        ("http://example.com:0/", "no port"),
        ("http://example.com:99999/", "no port|cannot be read"),
        ("http://example.com:x/", "cannot be read"),
        ("http://[::1/", "cannot be read"),
        ("http://[fe80::1%25eth0]/", "a zone or an escape"),
        ("http://127.0.0.1%2f@example.com/", "user name or password"),
    ],
)
def test_what_is_no_plain_url_is_refused_in_words(url: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://0/",
        "http://0.0.0.0:8080/",
        "http://2130706433/",
        "http://0x7f.0.0.1/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://localhost/",
        "http://LOCALHOST:80/",
        "http://localhost./",
        "https://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
    ],
)
def test_every_spelling_of_an_inside_address_is_refused(url: str) -> None:
    with pytest.raises(Refused):
        asyncio.run(check_url(url, allow_private=False))


def test_a_name_that_resolves_to_inside_is_refused_whatever_else_it_has() -> None:
    def mixed(name: str, port: int) -> list[str]:
        return ["8.8.8.8", "10.0.0.1"]

    with pytest.raises(Refused, match=r"leads to 10\.0\.0\.1"):
        asyncio.run(check_url("https://example.com/", allow_private=False, resolve=mixed))
    asyncio.run(check_url("https://example.com/", allow_private=True, resolve=mixed))


def test_a_name_that_cannot_be_resolved_now_is_judged_when_it_is_used() -> None:
    def unknown(name: str, port: int) -> list[str]:
        raise socket.gaierror("no such name")

    async def scenario() -> None:
        target = await check_url("https://example.com/", allow_private=False, resolve=unknown)
        courier = Courier(target, answer_s=1.0, allow_private=False, resolve=unknown)
        with pytest.raises(OSError, match="no such name"):
            await courier.post(b"{}", {})
        await courier.aclose()

    asyncio.run(scenario())


def test_a_resolver_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import threading

    release = threading.Event()
    monkeypatch.setattr(webhooks, "LOOK_UP_S", 0.05)

    def wedged(name: str, port: int) -> list[str]:
        release.wait(WAIT_S)
        return ["8.8.8.8"]

    async def scenario() -> None:
        target = await check_url("https://example.com/", allow_private=False, resolve=wedged)
        courier = Courier(target, answer_s=1.0, allow_private=False, resolve=wedged)
        with pytest.raises(TimeoutError):
            await courier.post(b"{}", {})
        await courier.aclose()

    asyncio.run(scenario())
    release.set()


def test_a_name_that_changes_its_mind_is_judged_again_and_nothing_is_sent() -> None:
    """DNS rebinding: public while the config is set, loopback when it is used."""

    async def scenario() -> None:
        answers = [["8.8.8.8"], ["127.0.0.1"]]

        def rebinding(name: str, port: int) -> list[str]:
            return answers.pop(0)

        async with webhook() as hook:
            url = f"http://rebinding.example:{hook.port}/"
            target = await check_url(url, allow_private=False, resolve=rebinding)
            courier = Courier(target, answer_s=WAIT_S, allow_private=False, resolve=rebinding)
            with pytest.raises(Refused, match=r"leads to 127\.0\.0\.1"):
                await courier.post(b"{}", {})
            await courier.aclose()
            assert hook.connections == 0
            assert answers == [], "looked up once for each use"

    asyncio.run(scenario())


def test_the_connection_goes_to_the_judged_address_under_the_name() -> None:
    async def scenario() -> None:
        asked: list[str] = []

        def resolve(name: str, port: int) -> list[str]:
            asked.append(name)
            # The first refuses, as an address of a family without a route would.
            return ["::1" if socket.has_ipv6 else "127.0.0.2", "127.0.0.1"]

        async with webhook() as hook:
            target = parse_url(f"http://nowhere.invalid:{hook.port}/a%20b?c=d#e")
            courier = Courier(target, answer_s=WAIT_S, allow_private=True, resolve=resolve)
            first = await courier.post(b"{}", {"X-One": "1"})
            second = await courier.post(b"{}", {"X-One": "2"})
            await courier.aclose()
            assert first.ok
            assert second.ok
            assert asked == ["nowhere.invalid"] * 2
            got = hook.got[0]
            assert got.path == "/a%20b?c=d"
            assert got.headers["host"] == f"nowhere.invalid:{hook.port}"
            assert hook.connections == 1

    asyncio.run(scenario())


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9/")

    async def scenario() -> None:
        async with webhook() as hook:
            courier = Courier(parse_url(hook.url), answer_s=WAIT_S, allow_private=True)
            assert (await courier.post(b"{}", {})).ok
            await courier.aclose()

    asyncio.run(scenario())


def test_an_answer_that_drips_is_cut_off_in_time() -> None:
    async def scenario() -> None:
        async def drips(hook: Webhook, got: Got) -> bytes:
            for writer in hook._writers:
                for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 900:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.02)
            return answer(200)

        async with webhook(drips) as hook:
            courier = Courier(parse_url(hook.url), answer_s=0.4, allow_private=True)
            began = asyncio.get_running_loop().time()
            with pytest.raises(TimeoutError):
                await courier.post(b"{}", {})
            assert asyncio.get_running_loop().time() - began < WAIT_S / 4
            await courier.aclose()

    asyncio.run(scenario())


def test_the_certificate_is_checked_for_the_name_and_not_the_address(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"no openssl to make a certificate with: {made.stderr[-200:]!r}")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(cert, key)
    trusting = ssl.create_default_context(cafile=str(cert))

    async def post(url: str) -> bool:
        courier = Courier(
            parse_url(url),
            answer_s=WAIT_S,
            allow_private=True,
            resolve=lambda name, port: ["127.0.0.1"],
            tls=trusting,
        )
        try:
            return (await courier.post(b"{}", {})).ok
        finally:
            await courier.aclose()

    async def scenario() -> None:
        hook = Webhook()
        server = await asyncio.start_server(hook.serve, "127.0.0.1", 0, ssl=serving)
        port = server.sockets[0].getsockname()[1]
        assert await post(f"https://hook.example:{port}/")
        for other in ("other.example", "127.0.0.1"):
            with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
                await post(f"https://{other}:{port}/")
        assert len(hook.got) == 1
        server.close()

    asyncio.run(scenario())


def test_a_config_with_such_a_url_is_refused_by_the_protocols_error() -> None:
    async def scenario() -> None:
        pusher = Pusher(MemoryJournal())
        for url in ("http://127.0.0.1:1/", "http://localhost/", "ftp://example.com/", "nonsense"):
            with pytest.raises(InvalidParamsError, match="invalid push notification URL"):
                await pusher.set("alice", TaskPushNotificationConfig(task_id="t", url=url))
        await pusher.aclose()

    asyncio.run(scenario())


def test_names_are_looked_up_by_the_system() -> None:
    assert "127.0.0.1" in look_up("127.1", 80)

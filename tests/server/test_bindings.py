"""Who may ask, what is spoken, and what a card says; on every binding."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc

from tests.server.house import ALICE, BOB, Served, head, message
from tests.wire.harness import Caller

CARD = "/.well-known/agent-card.json"
NONE = "/tasks/00000000"


@contextmanager
def channel(served: Served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(str(served.said["grpc"])) as made:
        yield made


def ask_grpc(served: Served, token: str | None, version: str | None = "1.0") -> Any:
    """Get a task that is not there; returns the error."""
    metadata = []
    if token is not None:
        metadata.append(("authorization", f"Bearer {token}"))
    if version is not None:
        metadata.append(("a2a-version", version))
    with channel(served) as one, pytest.raises(grpc.RpcError) as caught:
        a2a_pb2_grpc.A2AServiceStub(one).GetTask(
            a2a_pb2.GetTaskRequest(id="none"), metadata=metadata, timeout=20
        )
    return caught.value


def test_the_card_is_for_everybody_and_says_where_and_how(served: Served) -> None:
    answer = served.http.get(CARD)
    assert answer.status_code == 200
    card = answer.json()
    assert card["name"] == "Agent"
    # In the words of both versions.
    scheme = card["securitySchemes"]["bearer"]
    assert scheme["httpAuthSecurityScheme"] == {"scheme": "bearer"}
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    offered = {(i["protocolBinding"], i["protocolVersion"]) for i in card["supportedInterfaces"]}
    assert offered == {
        (binding, version)
        for binding in ("JSONRPC", "HTTP+JSON", "GRPC")
        for version in ("1.0", "0.3")
    }
    # What a client of version 0.3 reads.
    assert card["url"].rstrip("/") == served.url.rstrip("/")
    assert card["protocolVersion"] == "0.3"


def test_a_card_that_is_known_is_not_sent_again(served: Served) -> None:
    first = served.http.get(CARD)
    tag, date = first.headers["etag"], first.headers["last-modified"]
    assert date.endswith("GMT")
    for known in (
        {"if-none-match": tag},
        {"if-none-match": f'"other", W/{tag}'},
        {"if-none-match": "*"},
        {"if-modified-since": date},
    ):
        again = served.http.get(CARD, headers=known)
        assert (again.status_code, again.content) == (304, b""), known
        assert again.headers["etag"] == tag
    for unknown in (
        {"if-none-match": '"other"'},
        # A tag is better than a date.
        {"if-none-match": '"other"', "if-modified-since": date},
        {"if-modified-since": "Mon, 01 Jan 2001 00:00:00 GMT"},
        {"if-modified-since": "yesterday"},
    ):
        assert served.http.get(CARD, headers=unknown).status_code == 200, unknown
    assert served.http.head(CARD).headers["etag"] == tag


@pytest.mark.parametrize("given", [None, "x", "x" * 22, ALICE[:-1], ALICE + "x", BOB.upper()])
def test_without_a_token_nothing_is_said_on_any_binding(served: Served, given: str | None) -> None:
    answers = [
        served.post({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}, token=given),
        served.post({"jsonrpc": "2.0", "id": 1, "method": "tasks/get"}, token=given),
        served.http.get("/tasks", headers=head(given)),
        served.http.get("/v1/card", headers=head(given)),
        served.http.get("/extendedAgentCard", headers=head(given)),
        served.http.get("/nothing/here", headers=head(given)),
        served.http.post("/message:send", json={}, headers=head(given)),
    ]
    for answer in answers:
        assert answer.status_code == 401, answer.request.url
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "bearer token" in answer.text
    assert ask_grpc(served, given).code() is grpc.StatusCode.UNAUTHENTICATED


def test_other_schemes_are_no_tokens(served: Served) -> None:
    for value in (ALICE, f"Basic {ALICE}", f"Bearer{ALICE}", "Bearer", f"Token {ALICE}"):
        answer = served.http.get("/tasks", headers={"authorization": value, "a2a-version": "1.0"})
        assert answer.status_code == 401, value
    answer = served.http.get("/tasks", headers=head(None, authorization=f"bearer  {ALICE}"))
    assert answer.status_code == 200


def test_the_tasks_of_one_owner_are_nobody_else_s(served: Served) -> None:
    task = served.send("echo mine")["id"]
    assert served.state(task) == "COMPLETED"
    for method in ("GetTask", "CancelTask"):
        assert served.rpc(method, {"id": task}, token=BOB)["error"]["code"] == -32001
    listed = served.rpc("ListTasks", token=BOB)["result"]["tasks"]
    assert task not in [one["id"] for one in listed]
    assert served.http.get(f"/tasks/{task}", headers=head(BOB)).status_code == 404


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
def test_every_binding_serves_the_official_client(
    served: Served, binding: str, version: str
) -> None:
    async def go() -> None:
        caller = Caller(served, binding, version)
        caller.http.headers["authorization"] = f"Bearer {ALICE}"
        async with caller:
            task = await caller.send("echo hello")
            assert [p.text for a in task.artifacts for p in a.parts] == ["hello"]
            seen = await caller.stream("echo there").end()
            assert seen.endings == ["COMPLETED"], seen
            assert await caller.state(seen.task_id) == "COMPLETED"

    if binding == "GRPC":
        call_grpc(served, version)
    else:
        asyncio.run(go())


def call_grpc(served: Served, version: str) -> None:
    """The same by hand: the client has no place for a token in gRPC."""
    told = [("authorization", f"Bearer {ALICE}"), ("a2a-version", version)]
    with channel(served) as one:
        if version == "1.0":
            asked = a2a_pb2.SendMessageRequest(
                message=a2a_pb2.Message(
                    message_id="g1", role="ROLE_USER", parts=[a2a_pb2.Part(text="echo hello")]
                )
            )
            new = a2a_pb2_grpc.A2AServiceStub(one)
            task = new.SendMessage(asked, metadata=told, timeout=20).task
            assert [p.text for a in task.artifacts for p in a.parts] == ["hello"]
            last = list(new.SendStreamingMessage(asked, metadata=told, timeout=20))[-1]
            assert last.status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED
            return
        before = a2a_v0_3_pb2.SendMessageRequest(
            request=a2a_v0_3_pb2.Message(
                message_id="g2", role="ROLE_USER", content=[a2a_v0_3_pb2.Part(text="echo hello")]
            ),
            configuration=a2a_v0_3_pb2.SendMessageConfiguration(blocking=True),
        )
        old = a2a_v0_3_pb2_grpc.A2AServiceStub(one)
        found = old.SendMessage(before, metadata=told, timeout=20).task
        assert [p.text for a in found.artifacts for p in a.parts] == ["hello"]


def test_a_version_that_is_not_spoken_is_refused_on_every_binding(served: Served) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "none"}}
    assert served.post(asked, a2a_version="99.0").json()["error"]["code"] == -32009
    old = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "none"}}
    assert "error" in served.post(old, a2a_version="99.0").json()
    rest = served.http.get(NONE, headers=head(ALICE, a2a_version="99.0"))
    assert rest.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    refused = ask_grpc(served, ALICE, "99.0")
    assert refused.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "99.0" in refused.details()
    assert ask_grpc(served, ALICE, "1.0").code() is grpc.StatusCode.NOT_FOUND
    assert ask_grpc(served, ALICE, None).code() is grpc.StatusCode.NOT_FOUND


def test_another_content_type_is_refused_in_the_words_of_the_binding(served: Served) -> None:
    asked = b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}'
    for kind in ("text/plain", "application/xml", "", "application/json; charset=latin-1"):
        answer = served.post(asked, content_type=kind)
        assert answer.json()["error"]["code"] == -32005, kind
        rest = served.http.post(
            "/message:send", content=b"{}", headers=head(ALICE, content_type=kind)
        )
        assert rest.status_code == 415, kind
        assert rest.json()["error"]["details"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"
    fine = served.post(asked, content_type='application/json; charset="UTF-8"')
    assert fine.json()["error"]["code"] == -32001


def test_http_json_is_spoken_in_its_own_media_type(served: Served) -> None:
    sent = served.http.post(
        "/message:send",
        json={"message": message("echo rest")},
        headers=head(ALICE, content_type="application/a2a+json"),
    )
    assert sent.status_code == 200
    assert sent.headers["content-type"] == "application/a2a+json"
    task = sent.json()["task"]["id"]
    got = served.http.get(f"/tasks/{task}", headers=head(ALICE))
    assert got.headers["content-type"] == "application/a2a+json"
    assert got.json()["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_message_with_a_part_that_holds_nothing_is_refused(served: Served) -> None:
    """No client of version 0.3 could read the task that it would make."""
    asked = {"message": {**message("echo x"), "parts": [{"text": "echo x"}, {}]}}
    error = served.rpc("SendMessage", asked)["error"]
    assert (error["code"], "holds one of" in error["message"]) == (-32602, True)


def test_json_rpc_is_at_the_root_and_nothing_is_redirected(served: Served) -> None:
    assert served.rpc("GetTask", {"id": "none"})["error"]["code"] == -32001
    for path in ("/tasks/", "//", "/message:send/", "/.well-known/agent-card.json/"):
        answer = served.http.get(f"{served.url.rstrip('/')}{path}", headers=head(ALICE))
        assert answer.status_code in (404, 405), path
        assert answer.json()["error"]["code"] == answer.status_code
    assert served.http.get("/", headers=head(ALICE)).status_code == 405

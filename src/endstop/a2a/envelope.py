"""What is posted to a webhook: the body as the task's stream shows it, bounded, and its headers.

Pure but for the clock of the signature.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from time import time
from typing import Any

from a2a.types import StreamResponse

from endstop.a2a.encoding import to_dict
from endstop.a2a.signing import DELIVERY, TOKEN, sign
from endstop.a2a.states import TERMINAL

BODY_BYTES = 1024 * 1024
"""A larger body is sent without its contents, and says so."""
MEDIA_TYPE = "application/a2a+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """One delivery, ready to be posted."""

    body: bytes
    headers: dict[str, str]
    shortened: bool


def is_terminal(response: StreamResponse) -> bool:
    """Whether nothing follows on this change."""
    match response.WhichOneof("payload"):
        case "status_update":
            return response.status_update.status.state in TERMINAL
        case "task":
            return response.task.status.state in TERMINAL
        case _:
            return False


def envelope(
    response: StreamResponse,
    config: Mapping[str, Any],
    name: str,
    secret: str | None,
    body_bytes: int = BODY_BYTES,
) -> Sealed:
    """A change as it is posted to a config; `name` is the same for every attempt.

    Signed with the config's token, else its credentials, else the server's `secret`.
    """
    body = _encode(response)
    shortened = len(body) > body_bytes
    if shortened:
        body = _encode(_without_contents(response, len(body)))
    headers = {"Content-Type": MEDIA_TYPE, "User-Agent": "endstop", DELIVERY: _ascii(name)}
    token = config.get("token", "")
    auth = config.get("authentication", {})
    scheme, credentials = auth.get("scheme", ""), auth.get("credentials", "")
    if token:
        headers[TOKEN] = token
    if scheme and credentials:
        headers["Authorization"] = f"{scheme} {credentials}"
    key = token or credentials or secret
    if key:
        headers |= sign(body, key, int(time()))
    return Sealed(body=body, headers=headers, shortened=shortened)


def _encode(response: StreamResponse) -> bytes:
    return json.dumps(to_dict(response), separators=(",", ":")).encode("ascii")


def _without_contents(response: StreamResponse, size: int) -> StreamResponse:
    """The same change with everything left out that may be large; ids and state stay."""
    words = f"{size} bytes are too large for a push notification; get the task to read them"
    short = StreamResponse()
    match response.WhichOneof("payload"):
        case "task":
            task = response.task
            short.task.id, short.task.context_id = task.id, task.context_id
            short.task.status.state = task.status.state
            short.task.status.timestamp.CopyFrom(task.status.timestamp)
            short.task.metadata.update({"endstop/leftOut": words})
        case "status_update":
            update = response.status_update
            new = short.status_update
            new.task_id, new.context_id = update.task_id, update.context_id
            new.status.state = update.status.state
            new.status.timestamp.CopyFrom(update.status.timestamp)
            new.metadata.update({"endstop/leftOut": words})
        case "artifact_update":
            artifact = response.artifact_update
            part = short.artifact_update
            part.task_id, part.context_id = artifact.task_id, artifact.context_id
            part.append, part.last_chunk = artifact.append, artifact.last_chunk
            part.artifact.artifact_id = artifact.artifact.artifact_id
            part.metadata.update({"endstop/leftOut": words})
        case "message":
            message = response.message
            short.message.message_id, short.message.role = message.message_id, message.role
            short.message.task_id, short.message.context_id = message.task_id, message.context_id
            short.message.metadata.update({"endstop/leftOut": words})
        case _:
            pass
    return short


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")

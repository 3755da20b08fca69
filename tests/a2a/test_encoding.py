"""Writing the protocol's objects as JSON: the same as the general converter, for every object."""

from __future__ import annotations

import math
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.a2a.encoding import to_dict

TEXT = st.text(max_size=8)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**53), 2**53).map(float)


def struct(fields: dict[str, Any]) -> struct_pb2.Struct:
    return struct_pb2.Struct(fields=fields)


VALUES = st.recursive(
    st.just(struct_pb2.Value())
    | st.just(struct_pb2.Value(null_value=0))  # type: ignore[arg-type]
    | st.builds(struct_pb2.Value, bool_value=st.booleans())
    | st.builds(struct_pb2.Value, number_value=NUMBERS)
    | st.builds(struct_pb2.Value, string_value=TEXT),
    lambda inner: (
        st.builds(
            lambda values: struct_pb2.Value(list_value=struct_pb2.ListValue(values=values)),
            st.lists(inner, max_size=3),
        )
        | st.builds(
            lambda fields: struct_pb2.Value(struct_value=struct(fields)),
            st.dictionaries(TEXT, inner, max_size=3),
        )
    ),
    max_leaves=6,
)
META = st.none() | st.builds(struct, st.dictionaries(TEXT, VALUES, max_size=3))
INSTANTS = st.none() | st.builds(
    Timestamp,
    seconds=st.integers(-(10**9), 2 * 10**9) | st.sampled_from([0, -62135596801, 253402300800]),
    nanos=st.integers(0, 999).map(lambda ms: ms * 1_000_000)
    | st.integers(0, 999_999).map(lambda us: us * 1000)
    | st.integers(-1, 1_000_000_000),
)


@st.composite
def parts(draw: st.DrawFn) -> pb.Part:
    content: dict[str, Any] = draw(
        st.fixed_dictionaries({"text": TEXT})
        | st.fixed_dictionaries({"raw": st.binary(max_size=5)})
        | st.fixed_dictionaries({"url": TEXT})
        | st.fixed_dictionaries({"data": VALUES})
        | st.just({})
    )
    rest = {"filename": draw(TEXT), "media_type": draw(TEXT), "metadata": draw(META)}
    return pb.Part(**content, **rest)


MESSAGES = st.builds(
    pb.Message,
    message_id=TEXT,
    context_id=TEXT,
    task_id=TEXT,
    # What a newer protocol may add is a number.
    role=st.integers(0, 5),
    parts=st.lists(parts(), max_size=3),
    metadata=META,
    extensions=st.lists(TEXT, max_size=2),
    reference_task_ids=st.lists(TEXT, max_size=2),
)
ARTIFACTS = st.builds(
    pb.Artifact,
    artifact_id=TEXT,
    name=TEXT,
    description=TEXT,
    parts=st.lists(parts(), max_size=2),
    metadata=META,
    extensions=st.lists(TEXT, max_size=2),
)
STATUSES = st.none() | st.builds(
    pb.TaskStatus,
    state=st.integers(-1, 12),
    message=st.none() | MESSAGES,
    timestamp=INSTANTS,
)
TASKS = st.builds(
    pb.Task,
    id=TEXT,
    context_id=TEXT,
    status=STATUSES,
    artifacts=st.lists(ARTIFACTS, max_size=2),
    history=st.lists(MESSAGES, max_size=2),
    metadata=META,
)
STATUS_UPDATES = st.builds(
    pb.TaskStatusUpdateEvent, task_id=TEXT, context_id=TEXT, status=STATUSES, metadata=META
)
ARTIFACT_UPDATES = st.builds(
    pb.TaskArtifactUpdateEvent,
    task_id=TEXT,
    context_id=TEXT,
    artifact=st.none() | ARTIFACTS,
    append=st.booleans(),
    last_chunk=st.booleans(),
    metadata=META,
)
OBJECTS = (
    MESSAGES
    | TASKS
    | STATUS_UPDATES
    | ARTIFACT_UPDATES
    | st.builds(pb.SendMessageResponse, task=TASKS)
    | st.builds(pb.StreamResponse, status_update=STATUS_UPDATES)
)


def written(write: Any, message: Message) -> Any:
    """What comes of it, names in order; or the words of the error."""
    try:
        return in_order(write(message))
    except SerializeToJsonError as error:
        return str(error)


def in_order(found: Any) -> Any:
    if isinstance(found, dict):
        return [(name, in_order(value)) for name, value in found.items()]
    if isinstance(found, list):
        return [in_order(one) for one in found]
    return type(found), found


@settings(max_examples=500)
@given(OBJECTS)
def test_an_object_is_written_as_the_general_converter_does(message: Message) -> None:
    assert written(to_dict, message) == written(MessageToDict, message)


def test_what_has_no_json_is_an_error_in_the_same_words() -> None:
    for number in (math.nan, math.inf, -math.inf):
        task = pb.Task(id="x")
        task.metadata["a"] = number
        with pytest.raises(SerializeToJsonError, match="metadata"):
            to_dict(task)
    far = pb.TaskStatus(timestamp=Timestamp(seconds=10**15))
    with pytest.raises(SerializeToJsonError, match="timestamp"):
        to_dict(far)


def test_objects_of_other_kinds_are_written_too() -> None:
    """Maps, numbers, and what is seldom written."""
    card = pb.AgentCard(name="x", capabilities=pb.AgentCapabilities(streaming=False))
    card.security_schemes["bearer"].http_auth_security_scheme.scheme = "bearer"
    card.capabilities.extensions.add(uri="u").params["a"] = 1
    page = pb.ListTasksResponse(tasks=[pb.Task(id="x")], total_size=3)
    config = pb.TaskPushNotificationConfig(url="http://x")
    config.authentication.scheme = "Bearer"
    for message in (card, page, config):
        assert to_dict(message) == MessageToDict(message)

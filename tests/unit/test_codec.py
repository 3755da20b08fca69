"""The codec: every event comes back as it was, and what cannot be read says why."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.core import events as language
from endstop.core.events import CallAccepted, CallQueued, CallSettled, Event, Noted, RunOpened
from endstop.core.terms import (
    Claim,
    Contract,
    Effect,
    EffectClass,
    Flag,
    Limits,
    Money,
    Outcome,
    Reason,
)
from endstop.errors import JournalError
from endstop.store.codec import BLOB_CHARS, KINDS, decode, encode, split

EVENTS: tuple[type[Any], ...] = typing.get_args(Event)

# Any text that Python can hold, lone surrogates and control characters included.
texts = st.text(st.characters(exclude_categories=()), max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
decimals = st.decimals(allow_nan=False, allow_infinity=False) | st.just(Decimal("0.0400"))


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Every value that a field of this type may hold."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*[values_of(arg) for arg in args])
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[values_of(arg) for arg in args])
    if origin is dict:
        return st.dictionaries(texts, json_values, max_size=3)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: texts,
        int: st.integers(),
        bool: st.booleans(),
        float: floats,
        Decimal: decimals,
        Any: json_values,
        types.NoneType: st.none(),
    }
    if hint in simple:
        return simple[hint]
    if issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    return objects_of(hint)


def objects_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    required, optional = {}, {}
    for field in dataclasses.fields(cls):
        place = required if field.default is dataclasses.MISSING else optional
        place[field.name] = values_of(hints[field.name])
    given = st.fixed_dictionaries(required, optional=optional)
    return given.map(lambda fields: cls(**fields))


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_every_event_comes_back_as_it_was(cls: type[Any], data: st.DataObject) -> None:
    event = data.draw(objects_of(cls))
    kind, call, body = encode(event)
    back = decode(event.run, kind, call, body)
    assert back == event
    assert type(back) is cls
    # Equality of Python is lenient (1 == True == 1.0, and "ok" == Reason.OK); the repr is not.
    assert repr(back) == repr(event)
    assert call == getattr(event, "call", None)
    body.encode("ascii")


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_blobs_beside_the_journal_come_back(cls: type[Any], data: st.DataObject) -> None:
    event = data.draw(objects_of(cls))
    big = {
        field.name: "é" * BLOB_CHARS
        for field in dataclasses.fields(cls)
        if field.name in ("value", "message", "error", "prompt") and data.draw(st.booleans())
    }
    event = dataclasses.replace(event, **big)
    kind, call, body = encode(event)
    assert (len(body) > BLOB_CHARS) == bool(big)
    body, blobs = split(event)
    assert len(body) <= BLOB_CHARS
    assert bool(blobs) == bool(big)
    assert decode(event.run, kind, call, body, dict(blobs).__getitem__) == event


def test_every_event_has_a_kind_of_its_own() -> None:
    assert set(KINDS.values()) == set(EVENTS)
    assert len(KINDS) == len(EVENTS)


SETTLED = CallSettled(
    run="r",
    call="r.1",
    outcome=Outcome.SUCCEEDED,
    reason=Reason.OK,
    effect=Effect.DONE,
    value={"n": 1},
    flags=(Flag.OVERRAN,),
    spent=(Money(amount=Decimal("0.0400"), currency="USD"),),
    ran_s=0.25,
)
ACCEPTED = CallAccepted(
    run="r",
    call="r.1",
    batch="r.b",
    index=0,
    model_id="",
    tool="write",
    arguments={"path": "/x"},
    contract=Contract(effect=EffectClass.ONCE, deadline_s=None),
    claims=(Claim(resource="file:/x"), Claim(resource="browser:1", shared=True, wait_s=2.5)),
    cost=Money(amount=Decimal("1E+2"), currency="EUR"),
)
OPENED = RunOpened(
    run="r",
    limits=Limits(
        money=(Money(amount=Decimal("5"), currency="USD"),), calls=3, tool_calls=(("write", 2),)
    ),
)

# What journals on disk already hold. A change that breaks one of these lines breaks old journals.
ON_DISK = [
    (
        SETTLED,
        "call_settled",
        (
            '{"outcome":"succeeded","reason":"ok","effect":"done","value":{"n":1},"flags":["overran"],'
            '"spent":[["0.0400","USD"]],"ran_s":0.25}'
        ),
    ),
    (
        ACCEPTED,
        "call_accepted",
        (
            '{"batch":"r.b","index":0,"model_id":"","tool":"write","arguments":{"path":"/x"},'
            '"contract":{"effect":"once","deadline_s":null},"claims":[{"resource":"file:/x"},'
            '{"resource":"browser:1","shared":true,"wait_s":2.5}],"cost":["1E+2","EUR"]}'
        ),
    ),
    (
        OPENED,
        "run_opened",
        '{"limits":{"money":[["5","USD"]],"calls":3,"tool_calls":[["write",2]]}}',
    ),
    (CallQueued(run="r", call="r.1"), "call_queued", "{}"),
    (
        RunOpened(run="r", labels={"owner": "a"}),
        "run_opened",
        '{"labels":{"owner":"a"}}',
    ),
    (Noted(run="r", kind="k", body={"n": 1}), "noted", '{"kind":"k","body":{"n":1}}'),
    (Noted(run="r", kind="k", body={}, call="r.1"), "noted", '{"kind":"k","body":{}}'),
]


@pytest.mark.parametrize(("event", "kind", "body"), ON_DISK, ids=[row[1] for row in ON_DISK])
def test_the_format_on_disk_stays(event: Event, kind: str, body: str) -> None:
    assert encode(event) == (kind, getattr(event, "call", None), body)
    assert decode("r", kind, getattr(event, "call", None), body) == event


NEWER = [
    ("call_dreamt", "{}", "the kind 'call_dreamt'"),
    ("call_started", '{"mood":1}', "the field 'mood' of a call_started event"),
    ("stop_requested", '{"reason":"bored"}', "the word 'bored' for reason"),
    ("call_queued", '{"claims":[{"resource":"x","colour":1}]}', "the field 'colour'"),
    ("call_started", '{"mood@":"sha256:00"}', "the field 'mood'"),
]


@pytest.mark.parametrize(("kind", "body", "what"), NEWER, ids=[row[2] for row in NEWER])
def test_what_a_newer_version_wrote_is_named(kind: str, body: str, what: str) -> None:
    with pytest.raises(JournalError, match="written by a newer endstop") as caught:
        decode("r", kind, "r.1", body, lambda _: "1")
    assert what in str(caught.value)


DAMAGED = [
    ("call_settled", "r.1", "{"),
    ("call_settled", "r.1", "[]"),
    ("call_settled", "r.1", '{"outcome":"succeeded"}'),
    ("call_started", None, "{}"),
    ("batch_opened", None, '{"batch":"b","size":"3"}'),
    ("batch_opened", None, '{"batch":"b","size":true}'),
    ("batch_opened", None, '{"batch":"b","size":3,"together":1}'),
    ("call_spent", "r.1", '{"money":["much","USD"]}'),
    ("call_spent", "r.1", '{"money":["1"]}'),
    ("call_queued", "r.1", '{"claims":"x"}'),
    ("call_queued", "r.1", '{"arguments@":"sha256:00"}'),
]


@pytest.mark.parametrize(("kind", "call", "body"), DAMAGED)
def test_a_damaged_body_is_an_error_that_says_so(kind: str, call: str | None, body: str) -> None:
    with pytest.raises(JournalError, match=f"run 'r': a {kind} event is damaged"):
        decode("r", kind, call, body)


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, b"bytes", ENDLESS])
def test_a_value_that_is_not_json_is_refused(value: object) -> None:
    event = dataclasses.replace(SETTLED, value=value)
    with pytest.raises(JournalError, match="a call_settled event holds a value that is not JSON"):
        encode(event)


def test_something_else_than_an_event_is_refused() -> None:
    with pytest.raises(JournalError, match="Contract is not an event"):
        encode(Contract())  # type: ignore[arg-type]


def test_a_contract_is_not_mistaken_for_an_earlier_one() -> None:
    # Their texts are remembered by identity: ids are used again once an object is gone.
    for index in range(2_000):
        contract = Contract(grace_s=index + 0.5)
        body = encode(dataclasses.replace(ACCEPTED, contract=contract))[2]
        assert json.loads(body)["contract"] == {"grace_s": index + 0.5}
        del contract


def test_transient_events_can_be_encoded_too() -> None:
    assert set(language.TRANSIENT) <= set(KINDS.values())

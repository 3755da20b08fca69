"""The adapters: OpenAI responses.

A reply is a list of items; calls of the caller's tools are `function_call` and
`custom_tool_call`, answered by items that carry the same `call_id`. What the provider runs
itself (searches, its code interpreter) stays in the list and is not ours. No SDK, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from endstop.adapters.ledger import Found, Ledger, Slot, changed
from endstop.adapters.parts import (
    ANY_SIZE,
    Message,
    Observed,
    Parsed,
    Wanted,
    clean,
    joined_text,
    listed,
    mapping_of,
    read_call,
    stored_name,
    stored_text,
    text_of,
    unique_ids,
)
from endstop.core.payload import ARGUMENTS_LIMIT
from endstop.core.text import scrub

OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
"""The type of call, and the type of the item that answers it."""

OUTPUTS = frozenset(OUTPUT_OF.values())
"""The types of the items that answer calls."""

_NOT_WHOLE = frozenset({"incomplete", "failed", "cancelled", "in_progress", "queued"})
_ITEM_NOT_WHOLE = frozenset({"incomplete", "in_progress"})
# Items that the caller has to answer, but with tools that are not functions.
_OTHERS_TO_ANSWER = frozenset(
    {
        "apply_patch_call",
        "computer_call",
        "local_shell_call",
        "mcp_approval_request",
        "shell_call",
    }
)


def read(body: Mapping[str, Any] | list[Any]) -> Parsed:
    """Read a response body, its bare list of output items, or one bare item."""
    cut = None
    if isinstance(body, Mapping):
        output = listed(body["output"], "`output`") if "output" in body else [body]
        cut = _cut(body) if "output" in body else None
    else:
        output = body
    items = [mapping_of(item) for item in output]
    if cut is None:
        cut = next((_item_cut(item) for item in items if _item_cut(item)), None)
    calls = [item for item in items if text_of(item.get("type")) in OUTPUT_OF]
    ids = unique_ids([call_id(item) for item in calls])
    wanted: list[Wanted] = []
    for item, made_id in zip(calls, ids, strict=True):
        call = read_call(call_id(item), item.get("name"), raw_arguments(item), cut)
        wanted.append(Wanted(call=call, id=made_id, kind=item["type"]))
    texts = (joined_text(item.get("content")) for item in items if item.get("type") == "message")
    return Parsed(
        wanted=tuple(wanted),
        message=_stored(items, ids),
        text="".join(texts),
        cut=cut,
        notes=tuple(_notes(items)),
    )


def _cut(body: Mapping[str, Any]) -> str | None:
    status = text_of(body.get("status"))
    if status not in _NOT_WHOLE:
        return None
    details = mapping_of(body.get("incomplete_details")) or mapping_of(body.get("error"))
    why = text_of(details.get("reason") or details.get("code") or details.get("message"))
    return f"{status}: {why}" if why else status


def _item_cut(item: Mapping[str, Any]) -> str | None:
    if text_of(item.get("type")) in OUTPUT_OF and text_of(item.get("status")) in _ITEM_NOT_WHOLE:
        return f"an item is {item['status']}"
    return None


def _notes(items: list[Mapping[str, Any]]) -> list[str]:
    left = [
        text_of(item.get("type"))
        for item in items
        if text_of(item.get("type")) in _OTHERS_TO_ANSWER
        or (item.get("type") == "tool_search_call" and item.get("execution") == "client")
    ]
    return [f"an item of type {kind} is left to the caller to answer" for kind in left]


def call_id(item: Mapping[str, Any]) -> str:
    """The id that pairs a call with its output; some servers send only the item's own id."""
    return text_of(item.get("call_id")) or text_of(item.get("id"))


def raw_arguments(item: Mapping[str, Any]) -> object:
    """The arguments as received; free text counts as an argument named `input`."""
    if item.get("type") == "custom_tool_call":
        return {"input": text_of(item.get("input"))}
    return item.get("arguments")


def _stored(items: list[Mapping[str, Any]], ids: list[str]) -> list[Message]:
    stored: list[Message] = []
    seen: set[str] = set()
    remaining = iter(ids)
    for item in items:
        if not item:
            continue
        if text_of(item.get("type")) in OUTPUT_OF:
            made = stored_call(item, next(remaining))
        else:
            made = clean(item, "output")
        own = made.get("id")
        # An item's own id may not stand twice in a request, and may be left out of a call.
        if isinstance(own, str) and own in seen:
            made.pop("id")
        elif isinstance(own, str):
            seen.add(own)
        stored.append(made)
    return stored


def stored_call(item: Mapping[str, Any], made_id: str, limit: int = ARGUMENTS_LIMIT) -> Message:
    """A call as it may be sent back, under `made_id`."""
    made: Message = {
        key: clean(value, f"output.{key}")
        for key, value in item.items()
        if key not in ("arguments", "call_id", "name", "input")
    }
    if not text_of(made.get("id")):
        made.pop("id", None)
    made["call_id"] = made_id
    made["name"] = stored_name(item.get("name"))
    if item["type"] == "custom_tool_call":
        made["input"] = text_of(item.get("input"))
    else:
        made["arguments"] = stored_text(item.get("arguments"), limit)
    return made


def answer(wanted: tuple[Wanted, ...], observed: list[Observed]) -> list[Message]:
    """One output item per call, in request order."""
    return [result(one, seen.text) for one, seen in zip(wanted, observed, strict=True)]


def result(one: Wanted, text: str) -> Message:
    """The item that answers one call."""
    return {"type": OUTPUT_OF[one.kind], "call_id": one.id, "output": scrub(text)}


def mend(items: list[Message], ledger: Ledger) -> list[Message]:
    """A list of items in which each run of calls is followed by its outputs, in order."""
    runs: dict[int, _Run] = {}
    run: _Run | None = None
    used: set[str] = set()
    for index, item in enumerate(items):
        kind = text_of(item.get("type"))
        if kind in OUTPUT_OF:
            run = run or _Run()
            run.calls.append(index)
            run.end = index
            runs[index] = run
        elif kind in OUTPUTS or _is_told(item):
            run = None
        elif run is not None:
            run.end = index
    for index, item in enumerate(items):
        if index in runs and runs[index].calls[-1] == index:
            runs[index].slots = _opened(index, [items[n] for n in runs[index].calls], used, ledger)
        elif text_of(item.get("type")) in OUTPUTS:
            key = text_of(item.get("call_id"))
            ledger.take(Found(place=(index, 0), key=key, body=item))
    ledger.close()
    return _written(items, runs, ledger)


@dataclass(slots=True)
class _Run:
    """Calls that one reply made: where they stand, and where the reply ends."""

    calls: list[int] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    end: int = -1


def _is_told(item: Message) -> bool:
    # What the model was told, as opposed to what it said: it ends a reply.
    kind = text_of(item.get("type"))
    told = item.get("role") in ("user", "system", "developer")
    return told or kind.endswith(("_output", "_response"))


def _opened(index: int, calls: list[Message], used: set[str], ledger: Ledger) -> list[Slot]:
    ids = unique_ids([call_id(item) for item in calls], used)
    used.update(ids)
    wanted = [
        Wanted(
            call=read_call(call_id(item), item.get("name"), raw_arguments(item), None, ANY_SIZE),
            id=made_id,
            kind=item["type"],
        )
        for item, made_id in zip(calls, ids, strict=True)
    ]
    return ledger.open(index, wanted)


def _written(items: list[Message], runs: dict[int, _Run], ledger: Ledger) -> list[Message]:
    outputs_after: dict[int, _Run] = {}
    for run in runs.values():
        complete = all(slot.found is not None for slot in run.slots)
        first = run.calls[0]
        # Outputs may stand behind everything that the reply said; if they have to be moved or
        # made, they go directly behind the calls.
        places = [slot.found.place[0] for slot in run.slots if slot.found is not None]
        right = list(range(run.end + 1, run.end + 1 + len(places)))
        if complete and places == right:
            outputs_after[run.end] = run
        else:
            outputs_after[run.calls[-1]] = run
            ledger.note_moves(first, run.slots, (run.calls[-1] + 1, 0), (1, 0))
    mended: list[Message] = []
    for index, item in enumerate(items):
        if index in runs:
            run = runs[index]
            slot = run.slots[run.calls.index(index)]
            mended.append(_mended_call(index, item, slot, ledger))
        elif item.get("type") not in OUTPUTS:
            mended.append(item)
        if index in outputs_after:
            slots = outputs_after[index].slots
            mended += [_mended_result(index, slot, ledger) for slot in slots]
    return mended


def _mended_call(index: int, item: Message, slot: Slot, ledger: Ledger) -> Message:
    name, raw = item.get("name"), item.get("arguments")
    good = stored_name(name) == name
    if item["type"] == "function_call":
        good = good and stored_text(raw, ANY_SIZE) == raw
    if not good:
        ledger.note(index, f"half-formed call {slot.wanted.id!r} stored in a valid form")
    if good and item.get("call_id") == slot.wanted.id:
        return item
    if item.get("call_id") != slot.wanted.id and slot.wanted.id == slot.wanted.call.model_id:
        ledger.note(index, f"call got its missing call_id {slot.wanted.id!r}")
    return stored_call(item, slot.wanted.id, ANY_SIZE)


def _mended_result(index: int, slot: Slot, ledger: Ledger) -> Message:
    if slot.found is None:
        return result(slot.wanted, ledger.closing(index, slot))
    kind = OUTPUT_OF[slot.wanted.kind]
    mended = changed(slot.found.body, type=kind, call_id=slot.wanted.id)
    if mended is not slot.found.body:
        ledger.note(slot.found.place[0], f"output addressed to call {slot.wanted.id!r}")
    return mended

"""Server-sent events: any chunking gives the same events, and nothing grows without bound."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.agents.models.sse import Event, Events, TooLong


def read(data: bytes, *, sizes: int | None = None) -> list[Event]:
    events = Events()
    if sizes is None:
        return events.feed(data)
    found: list[Event] = []
    for start in range(0, len(data), sizes):
        found += events.feed(data[start : start + sizes])
    return found


CASES: list[tuple[bytes, list[Event]]] = [
    (b"data: a\n\n", [Event(data="a")]),
    (b"data:a\n\n", [Event(data="a")]),
    (b"data:  a\n\n", [Event(data=" a")]),
    (b"data: a\r\n\r\n", [Event(data="a")]),
    (b"data: a\r\r", [Event(data="a")]),
    (b"data: a\r\ndata: b\rdata: c\n\n", [Event(data="a\nb\nc")]),
    (b": comment\n\ndata: a\n\n", [Event(data="a")]),
    (b":\n:\n\n\n\ndata: a\n\n", [Event(data="a")]),
    (b"event: x\ndata: a\n\ndata: b\n\n", [Event(name="x", data="a"), Event(data="b")]),
    (b"data: a\nevent: late\n\n", [Event(name="late", data="a")]),
    (b"event: no data\n\ndata: b\n\n", [Event(data="b")]),
    (b"data\n\n", [Event(data="")]),
    (b"data:\ndata:\n\n", [Event(data="\n")]),
    (b"id: 1\nretry: 5\nother: x\ndata: a\n\n", [Event(data="a")]),
    (b"data: a:b: c\n\n", [Event(data="a:b: c")]),
    (b"\xef\xbb\xbfdata: a\n\n", [Event(data="a")]),
    (b"\xef\xbb\xbf\n\xef\xbb\xbfdata: a\n\ndata: b\n\n", [Event(data="b")]),
    (b"data: \xef\xbb\xbfa\n\n", [Event(data="\ufeffa")]),
    (b"data: \xff\xfe\n\n", [Event(data="\ufffd\ufffd")]),
    ("data: é – 😀\n\n".encode(), [Event(data="é – 😀")]),
    ("data: a\u2028b\x0bc\x0cd\x85e\n\n".encode(), [Event(data="a\u2028b\x0bc\x0cd\x85e")]),
    (b"data: a\n", []),
    (b"data: a", []),
    (b"", []),
    (b"\r\n\r\n\r\n", []),
    (b"DATA: a\n\n", []),
    (b"data: a\n\r\n", [Event(data="a")]),
    (b"data: nul \x00 in it\n\n", [Event(data="nul \x00 in it")]),
]


@pytest.mark.parametrize(("data", "wanted"), CASES)
def test_the_rules(data: bytes, wanted: list[Event]) -> None:
    assert read(data) == wanted
    for sizes in (1, 2, 3, 5):
        assert read(data, sizes=sizes) == wanted, f"in pieces of {sizes} bytes"


@given(
    st.lists(
        st.sampled_from([b"data: a", b"event: x", b":", b"\n", b"\r", b"\r\n", b"\xc3", b"d"])
    ),
    st.randoms(use_true_random=False),
)
def test_any_chunking_gives_the_same_events(parts: list[bytes], chance: random.Random) -> None:
    data = b"".join(parts)
    wanted = read(data)
    events, found, start = Events(), [], 0
    while start < len(data):
        size = chance.randint(0, 4)
        found += events.feed(data[start : start + size])
        start += size
    assert found == wanted


def test_what_the_stream_broke_off_in_is_no_event_but_can_be_looked_at() -> None:
    events = Events()
    assert events.feed(b"data: a\n\nevent: x\ndata: [DO") == [Event(data="a")]
    assert events.end() == Event(name="x", data="[DO")
    assert events.end() is None
    assert Events().end() is None


@pytest.mark.parametrize("sizes", [1, 10, 1000])
def test_a_line_without_an_end_is_given_up(sizes: int) -> None:
    events = Events(limit=100)
    with pytest.raises(TooLong, match=r"a line .* longer than 100 bytes"):
        for _ in range(1000):
            events.feed(b"x" * sizes)


def test_an_event_without_an_end_is_given_up() -> None:
    events = Events(limit=100)
    with pytest.raises(TooLong, match=r"an event .* longer than 100 bytes"):
        for _ in range(1000):
            events.feed(b"data: 123456789\n")
    with pytest.raises(TooLong):
        for _ in range(1000):
            events.feed(b"data:\n")


def test_what_just_fits_is_not_given_up() -> None:
    events = Events(limit=100)
    assert events.feed(b"data: " + b"x" * 94 + b"\n\n") == [Event(data="x" * 94)]
    for _ in range(100):
        assert events.feed(b": " + b"x" * 98 + b"\n") == []
    for _ in range(100):
        assert len(events.feed(b"data: " + b"x" * 90 + b"\n\n")) == 1


def test_a_long_line_byte_by_byte_costs_no_more_than_its_length() -> None:
    events = Events()
    for byte in b"data: " + b"x" * 300_000:
        events.feed(bytes((byte,)))
    assert events.feed(b"\n\n") == [Event(data="x" * 300_000)]

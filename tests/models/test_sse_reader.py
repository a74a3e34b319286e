"""Bytes into events: the WHATWG rules, whatever the reads look like."""

import tracemalloc
from itertools import pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.errors import ModelProtocolError
from holodeck.models.sse_reader import SseReader

CASES = {
    "ordinary": (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "cr only": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "mixed ends": (b"data: a\n\r\ndata: b\r\n\ndata: c\r\r\n", [b"a", b"b", b"c"]),
    "no space": (b"data:a\n\n", [b"a"]),
    "only one space is dropped": (b"data:  a \n\n", [b" a "]),
    "tab is no space": (b"data:\ta\n\n", [b"\ta"]),
    "several lines": (b"data: a\ndata: b\n\n", [b"a\nb"]),
    "several lines with CRLF": (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
    "an empty line of data": (b"data\ndata\n\n", [b"\n"]),
    "data without colon": (b"data\n\n", [b""]),
    "empty data": (b"data:\n\n", [b""]),
    "comment": (b": OPENROUTER PROCESSING\n\ndata: a\n\n", [b"a"]),
    "comment inside": (b"data: a\n:x\ndata: b\n\n", [b"a\nb"]),
    "bom": (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    "bom later is text": (b"data: a\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n", [b"a", b"c"]),
    "named": (b"event: x\ndata: a\n\nevent: y\ndata: b\n\n", [b"a", b"b"]),
    "named, several lines": (b"event: x\ndata: a\ndata: b\n\n", [b"a\nb"]),
    "name after data": (b"data: a\nevent: x\n\n", [b"a"]),
    "named twice": (b"event: x\nevent: y\ndata: a\n\n", [b"a"]),
    "other fields": (b"id: 1\nretry: 5\nfoo: x\ndata: a\n\n", [b"a"]),
    "unknown field without colon": (b"hello\ndata: a\n\n", [b"a"]),
    "colon in the value": (b"data: a: b\n\n", [b"a: b"]),
    "many blank lines": (b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
    "one blank line too many": (b"data: a\n\n\ndata: b\n\n", [b"a", b"b"]),
    "several lines among single ones": (b"data: a\n\ndata: b\ndata: c\n\ndata: d\n\n", [b"a", b"b\nc", b"d"]),
    "no space among others": (b"data: a\n\ndata:b\n\ndata: c\n\n", [b"a", b"b", b"c"]),
    "a name among others": (b"data: a\n\nevent: x\ndata: b\n\ndata: c\n\n", [b"a", b"b", b"c"]),
    "U+2028": ("data: a\u2028b\n\n".encode(), ["a\u2028b".encode()]),
    "NEL": ("data: a\u0085b\n\n".encode(), ["a\u0085b".encode()]),
    "VT and FF": (b"data: a\x0bb\x0cc\n\n", [b"a\x0bb\x0cc"]),
    "NUL": (b"data: a\x00b\n\n", [b"a\x00b"]),
    "not whole": (b"data: a\n\ndata: b\n", [b"a"]),
    "event without data": (b"event: ping\n\ndata: a\n\n", [b"a"]),
    "field names have case": (b"Data: a\n\ndata: b\n\n", [b"b"]),
    "space before colon": (b"data : a\n\ndata: b\n\n", [b"b"]),
}


def reference(stream: bytes) -> list[tuple[bytes, bytes]]:
    """The specification's text, word for word, over the whole stream."""
    stream = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events, data, name = [], [], b""
    for line in stream.split(b"\n")[:-1]:
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if line == b"":
            if data:
                events.append((name, b"\n".join(data)))
            data, name = [], b""
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return events


def read(*chunks: bytes) -> list[tuple[bytes, bytes]]:
    reader = SseReader()
    return [event for chunk in chunks for event in reader.feed(chunk)]


@pytest.mark.req("A15")
@pytest.mark.parametrize("case", CASES)
def test_streams_are_read_by_the_rules(case):
    stream, expected = CASES[case]
    assert [data for _, data in read(stream)] == expected
    assert [data for _, data in reference(stream)] == expected


@pytest.mark.req("A15", "A11")
@pytest.mark.parametrize("case", CASES)
def test_reads_of_one_byte_make_no_difference(case):
    stream, expected = CASES[case]
    assert [data for _, data in read(*(bytes([byte]) for byte in stream))] == expected


LINES = st.sampled_from(
    [b"data: a", b"data:", b"data", b": c", b"event: e", b"\xef\xbb\xbf", "data: 😀\u2028".encode(), b"x", b""]
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n"]))).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@pytest.mark.req("A15")
@given(stream=STREAMS, cuts=st.lists(st.integers(0, 200)))
def test_any_stream_in_any_reads_is_what_the_specification_says(stream, cuts):
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert read(*pieces) == reference(stream)


def test_the_name_of_an_event_comes_with_it():
    assert read(b"event: error\ndata: x\n\ndata: y\n\n") == [(b"error", b"x"), (b"", b"y")]


def test_the_end_gives_what_was_left():
    reader = SseReader()
    assert reader.feed(b"data: a\n\ndata: [DONE]") == [(b"", b"a")]
    assert reader.end() == [(b"", b"[DONE]")]
    assert reader.end() == []


@pytest.mark.req("A14")
@pytest.mark.parametrize("piece", [b"x" * 65_536, b"data: " + b"x" * 1000 + b"\n", b": " + b"x" * 65_536])
def test_an_endless_event_is_refused_while_memory_stays_flat(piece):
    tracemalloc.start()
    with pytest.raises(ModelProtocolError, match="1,000,000"):
        read(*repeat(piece, 4000))
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


@pytest.mark.req("A14")
def test_an_event_in_one_read_is_refused_too():
    with pytest.raises(ModelProtocolError):
        SseReader().feed(b"data: " + b"x" * 1_000_001 + b"\n\n")


def test_an_endless_run_of_whole_events_is_no_problem():
    reader = SseReader(max_event=100)
    assert sum(len(reader.feed(b"data: " + b"x" * 60 + b"\n\n")) for _ in range(1000)) == 1000


@pytest.mark.parametrize("cut", range(1, 40))
def test_the_last_id_is_that_of_a_complete_event(cut: int) -> None:
    stream = b"id: r:1\ndata: a\n\nid: r:2\ndata: b\n\ndata: c\n\nid: r:3\ndata: d"
    reader = SseReader()
    seen = reader.feed(stream[:cut])
    ids = {0: b"", 1: b"r:1", 2: b"r:2", 3: b"r:2"}
    assert reader.last_id == ids[len(seen)]
    seen += reader.feed(stream[cut:])
    assert (len(seen), reader.last_id) == (3, b"r:2")

"""Lines out of bytes, cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.tools.stdio import LineFramer, Oversize


def frames(framer: LineFramer, *pieces: bytes) -> list[bytes | Oversize]:
    return [frame for piece in pieces for frame in framer.feed(piece)]


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.integers(1, 7))
def test_lines_survive_any_cutting(lines, size):
    data = b"".join(line + b"\n" for line in lines)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert frames(LineFramer(100), *pieces) == lines


@pytest.mark.req("B09")
@pytest.mark.parametrize("size", [1, 7, 64, 5_000])
def test_an_oversized_line_is_reported_once_and_ended_once(size):
    line = b'{"id":7,' + b"x" * 3_000 + b"the end"
    data = b"before\n" + line + b"\nafter\n"
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    framer = LineFramer(1_000)
    before, begun, ended, after = frames(framer, *pieces)
    assert (before, after) == (b"before", b"after")
    assert begun == Oversize(line[:256], b"", ended=False)
    assert ended == Oversize(line[:256], line[-128:], ended=True)
    assert framer.discarded == 0


@pytest.mark.req("B10")
def test_discarded_bytes_are_counted_and_not_kept():
    framer = LineFramer(1_000)
    for _ in range(100):
        list(framer.feed(b"x" * 1_000))
    assert framer.discarded == 100_000
    assert len(framer._line) == 0


def test_a_line_of_exactly_the_limit_passes():
    assert frames(LineFramer(5), b"12345\n") == [b"12345"]
    assert isinstance(frames(LineFramer(5), b"123456\n")[0], Oversize)

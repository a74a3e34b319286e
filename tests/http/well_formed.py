"""Answers as servers may send them, in all the forms that the standard allows, and how they are cut on the way."""

from hypothesis import strategies as st

_TOKEN = st.text("abcXYZ019-_.!~", min_size=1, max_size=8).map("X-{}".format)
_VALUE = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
_TYPES = st.sampled_from(
    [
        "text/event-stream",
        "text/event-stream; charset=utf-8",
        "Application/JSON",
        'text/html;x="y; z"',
        "application/x-ndjson",
    ]
)
_BODY = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
_NO_BODY = (204, 304)


def _head(draw: st.DrawFn, first: str, headers: list[tuple[str, str]], end: str) -> bytes:
    before, after = st.sampled_from(["", " ", "  ", "\t"]), st.sampled_from(["", " ", "  "])
    lines = [f"{name}:{draw(before)}{value}{draw(after)}" for name, value in headers]
    return (end.join([first, *lines]) + end + end).encode()


def _chunks(draw: st.DrawFn, pieces: list[bytes]) -> bytes:
    written, end = b"", b"\r\n"  # no server takes a bare line feed here
    forms = [b"%x", b"%X", b"000%x", b"%x ", b"%x;a=b", b'%x;q="x y"', b"%x;flag"]
    for piece in pieces:
        size = draw(st.sampled_from(forms)) % len(piece)
        written += size + end + piece + end
    trailers = draw(st.lists(st.sampled_from([b"X-Sum: 1", b"Content-Type: x/y", b"ETag: W/x"]), max_size=2))
    return written + draw(st.sampled_from([b"0", b"000", b"0;last"])) + end + b"".join(t + end for t in trailers) + end


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bool]:
    """The bytes of an answer, and whether it ends with the connection."""
    version = draw(st.sampled_from(["HTTP/1.1", "HTTP/1.1", "HTTP/1.0"]))
    status = draw(st.sampled_from([200, 200, 201, 204, 301, 304, 400, 401, 404, 413, 429, 500, 503, 599]))
    end = draw(st.sampled_from(["\r\n", "\r\n", "\n"]))
    framing = draw(st.sampled_from(["length", "chunked", "end"] if version == "HTTP/1.1" else ["length", "end"]))
    pieces = draw(_BODY)
    headers = draw(st.lists(st.tuples(_TOKEN, _VALUE), max_size=4))
    if draw(st.booleans()):
        headers.append(("content-TYPE", draw(_TYPES)))
    connection = draw(st.sampled_from([None, "close", "keep-alive", "Keep-Alive"]))
    if connection is not None:
        headers.append(("Connection", connection))
    body = b"".join(pieces)
    if status in _NO_BODY:
        framing, body = "none", b""
    elif framing == "length":
        headers.append(("Content-Length", str(len(body))))
    elif framing == "chunked":
        headers.append(("Transfer-Encoding", draw(st.sampled_from(["chunked", "Chunked"]))))
        body = _chunks(draw, pieces)
    headers = draw(st.permutations(headers))
    reason = draw(st.sampled_from(["OK", "", "Not At All"]))
    written = b""
    if version == "HTTP/1.1":
        for code in draw(st.lists(st.sampled_from([100, 102, 103, 199]), max_size=2)):
            written += _head(draw, f"HTTP/1.1 {code} Wait", draw(st.lists(st.tuples(_TOKEN, _VALUE), max_size=1)), end)
    written += _head(draw, f"{version} {status} {reason}", list(headers), end) + body
    return written, framing == "end"


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    places = sorted(draw(st.sets(st.integers(0, len(data)), max_size=6)))
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    return [piece for piece in pieces if piece]


@st.composite
def spoiled(draw: st.DrawFn, data: bytes) -> bytes:
    """With some of its bytes missing, doubled, changed, or others in between."""
    bad = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(bad)))
        until = draw(st.integers(at, min(len(bad), at + 8)))
        other = draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from([b"\r\n", b"\n", b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"0\r\n\r\n"]),
            )
        )
        bad[at:until] = draw(st.sampled_from([b"", other, bytes(bad[at:until]) * 2]))
    return bytes(bad)

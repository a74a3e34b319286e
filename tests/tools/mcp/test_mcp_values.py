"""Results of every kind, as the model reads them."""

import base64

import pytest

from holodeck.core.json_values import clean_json, depth_exceeds
from holodeck.core.messages import MediaPart
from holodeck.tools import mcp_wire as wire
from holodeck.tools.mcp_wire import NOTHING, tool_result

SMALL = base64.b64encode(b"x" * 12_000).decode()


def result(*blocks: dict, limit: int = 50_000, **more):
    return tool_result(wire.read({"content": list(blocks), **more}, wire.CallResult), limit)


def text(value: str) -> dict:
    return {"type": "text", "text": value}


@pytest.mark.req("B11")
@pytest.mark.parametrize(
    ("block", "note", "kept"),
    [
        ({"type": "image", "data": SMALL, "mimeType": "image/png"}, "[image/png, 12 kB]", 1),
        ({"type": "audio", "data": SMALL, "mimeType": "audio/wav"}, "[audio/wav, 12 kB]", 1),
        ({"type": "image", "data": SMALL * 4, "mimeType": "image/png"}, "[image/png, 48 kB]", 0),
        ({"type": "image", "data": "%%%", "mimeType": "image/png"}, "[image/png, damaged]", 0),
        ({"type": "image", "data": "", "mimeType": "\x1b[2J"}, "[application/octet-stream, 0 bytes]", 1),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, "inside", 0),
        (
            {"type": "resource", "resource": {"uri": "file:///a", "blob": SMALL, "mimeType": "application/pdf"}},
            "[file:///a: application/pdf, 12 kB]",
            1,
        ),
        ({"type": "resource_link", "name": "a\x1b[2Jb", "uri": "file:///a"}, "[resource ab: file:///a]", 0),
    ],
)
def test_what_is_not_text_is_named_and_kept_when_small(block, note, kept):
    answer = result(block)
    assert note in answer.text
    media = [part for part in answer.content if isinstance(part, MediaPart)] if kept else []
    assert len(media) == kept
    assert isinstance(answer.content, tuple) == bool(kept)


@pytest.mark.req("B11")
def test_media_are_capped_together():
    image = {"type": "image", "data": SMALL, "mimeType": "image/png"}
    answer = result(*[image] * 10)
    kept = [part for part in answer.content if isinstance(part, MediaPart)]
    assert len(kept) == 3
    assert answer.text.count("12 kB") == 10


def test_texts_are_joined_and_structure_counts_only_without_text():
    assert result(text("a"), text("b"), structuredContent={"n": 1}).text == "a\nb"
    assert result(structuredContent={"n": 1}).text == '{"n":1}'
    assert result().text == NOTHING


@pytest.mark.req("B12")
def test_an_error_stays_one():
    assert result(text("no"), isError=True).failed


@pytest.mark.req("B20")
def test_text_is_cleaned_and_capped():
    assert result(text("a\x00b\ud800")).text == "ab\ufffd"
    assert result(text("x" * 60_000)).text.endswith("[10000 of 60000 characters left out]")


@pytest.mark.req("B20")
@pytest.mark.parametrize(("depth", "too_deep"), [(1, False), (64, False), (65, True), (100_000, True)])
def test_depth_is_measured_without_recursion(depth, too_deep):
    value: list = []
    innermost = value
    for _ in range(depth):
        innermost.append([])
        innermost = innermost[0]
    assert depth_exceeds(value, 64) is too_deep
    while value:  # or the interpreter frees it recursively
        value = value[0]


def test_arguments_are_cleaned_all_the_way_down():
    assert clean_json({"a\x00": ["\ud800", 1, None, {"b": "\x00"}]}) == {"a": ["\ufffd", 1, None, {"b": ""}]}

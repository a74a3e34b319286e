"""How much a JSON body may hold, and that it is found out before the body is decoded, cleaned or decoded again (F4)."""

import base64
import json
import math
import time

import pytest

from holodeck.errors import InvalidRequest, PayloadTooLarge
from holodeck.wires import body as bodies
from holodeck.wires.agui.decode import decode as decode_agui
from holodeck.wires.body import LONG_STRING, MAX_LONG_STRING, MAX_MENDED_BODY, MAX_PLAIN_BODY, MAX_VALUES, parse
from holodeck.wires.chat_stream.request import decode as decode_chat_stream
from holodeck.wires.rest.request import decode as decode_rest

FILE = base64.b64encode(bytes(range(256)) * 20_000).decode()  # 6.8 MB


def agui(content):
    message = {"id": "m1", "role": "user", "content": content}
    return json.dumps({"threadId": "t", "runId": "r", "messages": [message]}).encode()


@pytest.fixture
def decoded_once(monkeypatch):
    """Fails a test in which a body is decoded a second time, or at all for `decoders` of none."""

    def refuse(*_, **__):
        raise AssertionError("decoded again")

    monkeypatch.setattr(bodies.json, "loads", refuse)


@pytest.mark.req("T15")
@pytest.mark.parametrize("size", [MAX_MENDED_BODY + 1, 21_000_000])
def test_a_large_body_of_half_surrogates_is_not_decoded_twice(decoded_once, size):
    text = b"\\ud800" * (size // 6 + 1)
    for body, decode in (
        (b'{"message": "%b"}' % text, decode_rest),
        (b'{"input": "%b"}' % text, decode_chat_stream),
        (b'{"threadId":"t","runId":"r","messages":[{"id":"m","role":"user","content":"%b"}]}' % text, decode_agui),
    ):
        with pytest.raises(PayloadTooLarge):
            decode(body)


def test_a_small_body_with_half_a_pair_is_mended():
    value = parse(b'{"a": "x\\ud83d", "b": "\\ud83d\\ude00"}')
    assert value == {"a": "x\ud83d", "b": "\N{GRINNING FACE}"}


@pytest.mark.parametrize("text", [b"", b"x\\ud83d"], ids=["whole", "half a pair"])
def test_a_number_that_no_float_can_hold_is_refused(text):
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        parse(b'{"a": "%b", "b": 1e400}' % text)


@pytest.mark.req("T15")
def test_a_body_without_files_has_four_megabytes():
    line = "one, two: three\n"
    text = line * (MAX_PLAIN_BODY // (len(line) + 1) - 10)
    assert parse(json.dumps({"a": text.replace(",", ";")}).encode())
    with pytest.raises(PayloadTooLarge, match="not counting the files"):
        parse(json.dumps({"a": text * 2}).encode())


def test_files_do_not_count_and_come_through_whole():
    parts = [{"type": "text", "text": "look"}, {"type": "image", "source": {"type": "data", "value": FILE}}]
    value = parse(json.dumps({"a": parts, "b": [FILE, FILE[:LONG_STRING], "x"], FILE[:10]: 1}).encode())
    assert value == {"a": parts, "b": [FILE, FILE[:LONG_STRING], "x"], FILE[:10]: 1}
    assert decode_rest(json.dumps({"message": "hi", "files": [{"content": FILE, "mime_type": "a/b"}]}).encode())


def test_a_string_that_looks_like_a_stand_in_stays_a_string_of_its_sender():
    value = parse(json.dumps({"a": FILE, "b": "holodeck:long-string:7", "c": "holodeck:long-string:x"}).encode())
    assert value == {"a": FILE, "b": "holodeck:long-string:7", "c": "holodeck:long-string:x"}


@pytest.mark.req("T15")
def test_one_string_cannot_be_larger_than_a_file_may_be():
    with pytest.raises(PayloadTooLarge, match="A text or file"):
        parse(b'{"a": "%b"}' % (b"x" * (MAX_LONG_STRING + 1)))


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "' + b"x" * MAX_PLAIN_BODY,
        b'{"a": "' + b"\xff" * MAX_PLAIN_BODY + b'"}',
        b'{"a" ' + b"1" * MAX_PLAIN_BODY + b' "b"}',
        b'"' + b"x" * MAX_PLAIN_BODY + b'" "' + b"y" * MAX_PLAIN_BODY + b'"',
    ],
)
def test_large_bodies_that_are_not_json_are_refused(body):
    with pytest.raises((InvalidRequest, PayloadTooLarge)):
        parse(body)


@pytest.mark.req("T15")
@pytest.mark.parametrize("value", ["[]", "{}", "1", '"a"', '","'])
def test_a_body_has_a_number_of_values(value):
    assert parse(f'{{"a": [{",".join([value] * (MAX_VALUES // 3))}]}}'.encode())
    with pytest.raises(PayloadTooLarge, match="values"):
        parse(f'{{"a": [{",".join([value] * (MAX_VALUES + 2))}]}}'.encode())


@pytest.mark.req("T15")
@pytest.mark.parametrize("value", ["[" * 35 + "]" * 35, '{"":' * 15 + "1" + "}" * 15, '[{"a":[[]]}]'])
def test_lists_and_objects_in_one_another_are_values(decoded_once, value):
    """3.5 MB of lists, 35 deep, held the event loop for 0.9 s, of all clients and without a credential."""
    with pytest.raises(PayloadTooLarge, match="values"):
        parse(f'{{"a": [{",".join([value] * (MAX_VALUES // 3))}]}}'.encode())


@pytest.mark.parametrize("text", [r"\\frac{a,b}{[c]} ", 'She said "one, two", ', "\\\\, [{"])
def test_commas_and_brackets_in_texts_are_not_values(text):
    """A conversation with 2.8 MB of formulas was refused: strings were searched only in bodies of up to 2.5 MB."""
    texts = [text * (900_000 // len(text))] * 3
    assert parse(json.dumps({"a": texts, "b": [text] * 10_000}).encode())["a"] == texts


@pytest.mark.req("T15")
@pytest.mark.parametrize("before", [r'"\\"', r'"\""', r'"\\\""', '"\\\\","a"'])
def test_an_escaped_quote_does_not_hide_values(before):
    with pytest.raises(PayloadTooLarge, match="values"):
        parse(f'{{"a": [{before}, {",".join(["1"] * (MAX_VALUES + 2))}, "\\""]}}'.encode())


def test_many_messages_with_parts_are_not_too_many_values():
    messages = [{"id": f"m{n}", "role": "user", "parts": [{"type": "text", "text": "a"}]} for n in range(10_000)]
    assert parse(json.dumps({"messages": messages}).encode())["messages"] == messages


@pytest.mark.req("T15")
def test_numbers_close_to_zero_are_not_left_to_the_slow_decoder(monkeypatch):
    """49,000 numbers such as 5e-324, 350 kB, held the event loop for 0.3 s."""
    seen = []
    monkeypatch.setattr(bodies, "isinf", lambda number: seen.append(number) or math.isinf(number))
    body = b'{"a": [5e-324, 2.2250738585072011e-308, -0.0, 1E+2, 1.5, 7]}'
    assert parse(body) == {"a": [5e-324, 2.2250738585072011e-308, -0.0, 100.0, 1.5, 7]}
    assert len(seen) == 5
    for number in (b"1e400", b"-1e400"):
        with pytest.raises(InvalidRequest, match="out of range"):
            parse(b'{"a": %b}' % number)


def test_commas_and_brackets_of_a_text_are_no_values():
    text = "a,b;[{" * 200_000
    assert parse(json.dumps({"a": text, "b": '",",' * 1000}).encode())["a"] == text


@pytest.mark.req("T15")
@pytest.mark.parametrize(
    "content", ["x" * 1001, [{"type": "text", "text": "é" * 1001}], [{"type": "text", "text": "x" * 900}] * 3]
)
def test_a_message_has_so_much_text_and_no_more(monkeypatch, content):
    def refuse(_text):
        raise AssertionError("cleaned before it was measured")

    monkeypatch.setattr(bodies, "clean", lambda text: text if len(text) < 100 else refuse(text))
    with pytest.raises(PayloadTooLarge, match=r"server\.limits\.message_characters"):
        decode_agui(agui(content), 1000)


@pytest.mark.parametrize("content", ["x" * 1000, [{"type": "text", "text": "x" * 1000}] * 2])
def test_a_message_may_have_as_much_text_as_the_agent_file_says(content):
    assert decode_agui(agui(content), 1000).run.messages


class CountedBytes(bytes):
    """Counts the bytes that are searched through."""

    searched = 0

    def find(self, what, begin=0, end=None):
        found = super().find(what, begin, len(self) if end is None else end)
        CountedBytes.searched += (found if found >= 0 else len(self) if end is None else end) - begin
        return found

    def rfind(self, what, begin, end):
        found = super().rfind(what, begin, end)
        CountedBytes.searched += end - max(found, begin)
        return found


@pytest.mark.req("T15")
@pytest.mark.parametrize("start", [b"", b"{", b'{"a":', b'{"a": "b",', b'{"a": "' + b"x" * 300_000 + b'",'])
def test_a_large_body_is_searched_once(start):
    """20 MB of blanks took a third of a second: without a further quote every step looked through all the rest."""
    body = CountedBytes(start + b"\t" * 20_000_000)
    CountedBytes.searched = 0
    with pytest.raises(PayloadTooLarge):
        parse(body)
    assert CountedBytes.searched <= 2 * len(body)


@pytest.mark.req("T15")
@pytest.mark.parametrize("start", [b"", b'{"a":', b'{"a":[' + b"1," * (MAX_VALUES + 1)])
@pytest.mark.parametrize("unit", [b'\\"', b'"\\', b'"', b'"a\\"'])
def test_strings_without_an_end_are_searched_once(start, unit):
    """80 kB of escaped quotes held the event loop for 30 s, a megabyte for more than an hour."""
    begun = time.monotonic()
    with pytest.raises((InvalidRequest, PayloadTooLarge)):
        parse(start + unit * (2_000_000 // len(unit)))
    assert time.monotonic() - begun < 30


@pytest.mark.req("T15")
def test_a_client_that_writes_stand_ins_gets_no_more_than_it_sent():
    """A thousand stand-ins of a file of 5 MB, 30 kB of the body, were 5 GB of text, which the state was written as."""
    stand_ins = [f"{bodies._STAND_IN}{number}" for number in (0, 0, 1, "9" * 5000, "")]
    body = json.dumps({"stand-ins": stand_ins * 200, "file": FILE}).encode()
    value = parse(body)
    assert sum(map(len, value["stand-ins"])) + len(value["file"]) <= len(body)
    assert parse(json.dumps({"other": [stand_ins[2]], "file": FILE}).encode()) == {
        "other": [stand_ins[2]],
        "file": FILE,
    }

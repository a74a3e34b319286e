"""A stream cut at every byte: never a silent success, never a lost or invented word (rows A03 to A06)."""

import asyncio

import pytest

from holodeck.errors import ModelError, ModelInterrupted, ModelTruncated, ModelUnreachable
from holodeck.models.answer import Answer
from holodeck.models.port import ModelReply
from holodeck.models.response_body import AnswerStream
from tests.models.asking import PROMPT, asking
from tests.models.endpoint import DONE, ModelEndpoint, Respond, Wire, chunk, frame
from tests.models.recording_listener import RecordingListener

FRAMES = [
    frame(chunk({"role": "assistant", "content": "Hé"}, system_fingerprint="fp_0123456789")),
    frame(chunk({"content": "llo 😀"}, system_fingerprint="fp_0123456789")),
    frame(chunk({}, finish="stop", system_fingerprint="fp_0123456789")),
    DONE,
]
BODY = b"".join(FRAMES)
TEXTS = ["", "Hé", "Hé" + "llo 😀", "Hé" + "llo 😀"]
WHOLE = BODY.index(b"\n\n", BODY.index(b'"stop"'))  # the finish reason's event is complete, its blank line aside


def texts_before(cut: int) -> set[str]:
    """What a listener may have received when the stream is cut there: an event counts when its JSON is complete."""
    ends, position = [], 0
    for each in FRAMES:
        position += len(each)
        ends.append(position)
    whole = sum(cut >= end for end in ends[:2])
    almost = sum(cut >= end - 2 for end in ends[:2])  # only the blank line is missing
    return {TEXTS[whole], TEXTS[almost]}


@pytest.mark.req("A03", "A05", "A06")
@pytest.mark.parametrize("slices", [1, 50, 10_000])
def test_a_clean_end_at_every_byte(slices):
    for cut in range(len(BODY) + 1):
        listener = RecordingListener()
        stream = AnswerStream(Answer(listener))
        part = BODY[:cut]
        for start in range(0, len(part), slices):
            stream.feed(part[start : start + slices])
        try:
            reply = stream.end()
        except ModelTruncated:
            assert cut < WHOLE, cut
            assert listener.words in texts_before(cut), cut
        else:
            assert cut >= WHOLE, cut
            assert reply.text == listener.words == "Hé" + "llo 😀"


CUTS = sorted({*range(0, len(BODY), len(BODY) // 20), WHOLE, WHOLE + 2, len(BODY)})


class Waiting(RecordingListener):
    """Says when everything that is certain to arrive before a cut has arrived."""

    def __init__(self, expected: str) -> None:
        super().__init__()
        self.expected = expected
        self.complete = asyncio.Event()
        self.text("")

    def text(self, delta: str) -> None:
        super().text(delta)
        if self.words == self.expected:
            self.complete.set()


async def outcome(respond: Respond, listener: RecordingListener) -> tuple[ModelReply | ModelError, int]:
    """What came of it, and in how many tries."""
    async with ModelEndpoint(respond) as endpoint, asking(endpoint.url) as model:
        try:
            return await model.reply(PROMPT, listener), len(endpoint.requests)
        except ModelError as error:
            return error, len(endpoint.requests)


@pytest.mark.req("A03", "A04")
@pytest.mark.parametrize("end", [Wire.close, Wire.reset], ids=["fin", "rst"])
@pytest.mark.parametrize("cut", CUTS)
async def test_a_broken_connection_at_many_bytes(cut, end):
    listener = Waiting(min(texts_before(cut), key=len))

    async def respond(wire: Wire) -> None:
        await wire.head()
        if cut:
            await wire.send(BODY[:cut])
        await listener.complete.wait()
        end(wire)

    result, tries = await outcome(respond, listener)
    assert listener.words == listener.expected
    if isinstance(result, ModelReply):
        assert cut >= WHOLE
        assert result.text == listener.words
    else:
        assert cut < WHOLE + 2 or end is Wire.reset  # a reset may overtake what was sent before it
        assert (type(result), result.started, tries) == (
            (ModelInterrupted, True, 1) if listener.words else (ModelUnreachable, False, 3)
        )

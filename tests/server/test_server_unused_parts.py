"""A part of a message that cannot be used is never dropped without a word (SRV-14)."""

import pytest

from holodeck.models.scripted import says
from tests.server.serving import ask, frames, served

pytestmark = pytest.mark.req("SRV-14")

TEXT = {"type": "text", "text": "What is this?"}
UNUSABLE = {
    "binary without anything": {"type": "binary", "mimeType": "image/png"},
    "an unknown part": {"type": "hologram", "value": "x"},
    "a source without value": {"type": "image", "source": {"type": "data"}},
}


async def events(s, **fields):
    async with s.post(ask(**fields)) as answer:
        assert answer.status == 200
        return [data for _, data in frames(await answer.read())]


@pytest.mark.parametrize("part", UNUSABLE.values(), ids=UNUSABLE)
async def test_the_client_is_warned(part):
    async with served(says("A text.")) as s:
        output = await events(s, text=[TEXT, part])
    (warning,) = [each["value"] for each in output if each.get("name") == "holodeck.warning"]
    assert warning["code"] == "part-not-used"
    assert warning["message"].startswith("messages[0].content[1] was not used")
    assert warning["message"] in output[-1]["result"]["warning"]


async def test_parts_of_the_history_are_not_reported_again():
    async with served(says("one"), says("two")) as s:
        history = [{"id": "u1", "role": "user", "content": [TEXT, UNUSABLE["an unknown part"]]}]
        history += [
            {"id": "a1", "role": "assistant", "content": "one"},
            {"id": "u2", "role": "user", "content": "and?"},
        ]
        output = await events(s, messages=history)
    assert [each for each in output if each.get("name") == "holodeck.warning"] == []


async def test_a_handle_of_a_file_is_refused_with_a_reason():
    async with served() as s:
        part = {"type": "binary", "mimeType": "image/png", "id": "file-123"}
        async with s.post(ask([TEXT, part])) as answer:
            problem = await answer.json()
    assert (answer.status, problem["field"]) == (400, "messages[0].content[1]")
    assert "send its bytes" in problem["detail"]

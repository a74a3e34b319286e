"""How much a user may say at once over AG-UI: as much as over REST (SRV-12), and a thread goes on after a refusal."""

import json
from typing import Any

import pytest

from holodeck.models.scripted import says
from holodeck.wires.body import MAX_MESSAGE
from tests.server.serving import Served, ask, served, types

pytestmark = pytest.mark.req("SRV-12")

LONG = "x" * (MAX_MESSAGE + 1)
ROUTES = ("/awp", "/copilotkit/agent/default/run", "/copilotkit")


def user(name: str, content: Any) -> dict[str, Any]:
    return {"id": name, "role": "user", "content": content}


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


async def post(s: Served, *messages: dict[str, Any], path: str = "/awp") -> tuple[int, bytes]:
    given = ask() | {"messages": [*messages]}
    async with s.post({"method": "agent/run", "body": given} if path == "/copilotkit" else given, path) as answer:
        return answer.status, await answer.read()


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("content", [LONG, parts("x" * MAX_MESSAGE, "x")], ids=["text", "parts"])
async def test_a_message_that_is_too_long_is_refused(path: str, content: Any) -> None:
    async with served() as s:
        status, told = await post(s, user("m1", content), path=path)
        problem = json.loads(told)
        assert (status, problem["field"]) == (422, "messages")
        assert problem["type"].endswith("/invalid-request")
        assert problem["detail"] == "The message has 10,001 characters; 10,000 are allowed"
        assert s.model.prompts == []
        assert await s.server.store.count() == 0


@pytest.mark.parametrize("content", ["é" * MAX_MESSAGE, parts("x" * (MAX_MESSAGE - 1), "y")], ids=["text", "parts"])
async def test_the_longest_that_is_allowed_reaches_the_model(content: Any) -> None:
    async with served() as s:
        assert (await post(s, user("m1", content)))[0] == 200
        assert len(s.model.prompts) == 1


async def test_a_file_is_no_part_of_what_was_said() -> None:
    source = {"type": "data", "value": "eHh4" * 5000, "mimeType": "text/plain"}
    async with served(says("read"), says("again")) as s:
        sent = user("m1", [*parts("Read it"), {"type": "document", "source": source}])
        assert (await post(s, sent))[0] == 200
        async with s.get("/sessions/t1") as answer:
            (stored, _) = (await answer.json())["messages"]
        shown = "\n".join(part["text"] for part in stored["content"])
        assert len(shown) > MAX_MESSAGE
        status, told = await post(s, user("m1", shown))  # a client that was shown the history asks for another answer
        assert (status, types(told)[-1]) == (200, "RUN_FINISHED")
        assert len(s.model.prompts) == 2


async def test_what_was_refused_does_not_stand_in_the_way_of_the_next() -> None:
    async with served() as s:
        assert (await post(s, user("m1", LONG)))[0] == 422
        status, told = await post(s, user("m1", LONG), user("m2", "shorter"))
        assert (status, types(told)[-1]) == (200, "RUN_FINISHED")
        (prompt,) = s.model.prompts
        assert [message.id for message in prompt.messages] == ["m2"]


async def test_what_others_said_before_is_not_measured() -> None:
    """It is not taken from the client either."""
    async with served() as s:
        answer = {"id": "a1", "role": "assistant", "content": LONG}
        assert (await post(s, user("m1", LONG), answer, user("m2", "hi")))[0] == 200
        (prompt,) = s.model.prompts
        assert [message.id for message in prompt.messages] == ["m2"]

"""The three ways in which a file comes to the server. Each says "Read it" and hands over one file."""

import base64
import json
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any, NamedTuple

import aiohttp

from tests.server.serving import Served, ask, frames

CHAT = "/agent/tester/chat"
QUESTION = "Read it"
JSON = {"Content-Type": "application/json"}


class File(NamedTuple):
    name: str
    mime_type: str
    data: bytes

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()


class Reply(NamedTuple):
    """`files` is what the server says that the model received; `problem` is there when it was refused."""

    status: int
    files: list[dict[str, Any]]
    problem: dict[str, Any]


Way = Callable[[Served, File], Awaitable[Reply]]


async def rest_json(s: Served, file: File) -> Reply:
    sent = {"content": file.base64, "mime_type": file.mime_type, "filename": file.name}
    body = BytesIO(json.dumps({"message": QUESTION, "files": [sent]}).encode())
    async with s.client.post(s.url + CHAT, data=body, headers=JSON) as answer:
        return await _of_rest(answer)


async def rest_form(s: Served, file: File) -> Reply:
    sent = aiohttp.FormData(quote_fields=False)
    sent.add_field("message", QUESTION)
    sent.add_field("files", BytesIO(file.data), filename=file.name, content_type=file.mime_type)
    async with s.client.post(s.url + CHAT, data=sent) as answer:
        return await _of_rest(answer)


async def _of_rest(answer: aiohttp.ClientResponse) -> Reply:
    result = json.loads(await answer.read())
    return Reply(200, result["files"], {}) if answer.status == 200 else Reply(answer.status, [], result)


async def agui_part(s: Served, file: File) -> Reply:
    source = {"type": "data", "value": file.base64, "mimeType": file.mime_type}
    media = {"type": "document", "source": source, "metadata": {"filename": file.name}}
    question = ask([{"type": "text", "text": QUESTION}, media])
    question["threadId"] = question["runId"]
    async with s.post(question) as answer:
        body = await answer.read()
        if answer.status != 200:
            return Reply(answer.status, [], json.loads(body))
    events = [event for _, event in frames(body)]
    assert events[-1]["type"] == "RUN_FINISHED", events[-1]
    (files,) = (event["value"] for event in events if event.get("name") == "holodeck.files")
    return Reply(200, files, {})


WAYS: dict[str, Way] = {"REST, base64": rest_json, "REST, multipart": rest_form, "AG-UI part": agui_part}

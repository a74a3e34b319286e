"""The same question on every wire: one row for each way to ask. A new wire joins with its rows here.

The first word of a row's name is the wire's, as `--protocol` takes it; its first row has that name alone. Ids are made from
the text and the session, so that two callers who ask the same send the same ids.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.server.serving import ask

SESSION = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"
PROTOBUF = "application/vnd.ag-ui.event+proto"


class Question(NamedTuple):
    path: str
    body: dict[str, Any]
    headers: Mapping[str, str] = MappingProxyType({})


Asking = Callable[[str, str], Question]  # of a text and a session


def agui(text: str = "hi", session: str = SESSION) -> Question:
    return Question("/awp", ask(text, thread=session, run="r", message=f"m {text[:40]}"))


def protobuf(text: str, session: str) -> Question:
    return agui(text, session)._replace(headers={"Accept": PROTOBUF})


def copilotkit(text: str, session: str) -> Question:
    return agui(text, session)._replace(path="/copilotkit/agent/default/run")


def copilotkit_single(text: str, session: str) -> Question:
    body = {"method": "agent/run", "params": {"agentId": "default"}, "body": agui(text, session).body}
    return Question("/copilotkit", body)


def rest(text: str, session: str) -> Question:
    return Question("/agent/tester/chat", {"message": text, "session_id": session})


def rest_stream(text: str, session: str) -> Question:
    return rest(text, session)._replace(path="/agent/tester/chat/stream")


def chat_stream(text: str, session: str) -> Question:
    return Question("/chat/stream", {"input": text, "conversation_id": session})


def openai(text: str, session: str) -> Question:
    body = {"messages": [{"role": "user", "content": text}]}
    return Question("/v1/chat/completions", body, {"X-Session-Id": session})


def responses(text: str, session: str) -> Question:
    return Question("/v1/responses", {"input": text, "conversation": session})


def ai_sdk(text: str, session: str) -> Question:
    message = {"id": f"m {text[:40]}", "role": "user", "parts": [{"type": "text", "text": text}]}
    return Question("/ai-sdk/chat", {"id": session, "messages": [message]})


def mcp(text: str, session: str) -> Question:
    params = {"name": "ask", "arguments": {"message": text, "session": session}}
    return Question("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def a2a(text: str, session: str, method: str = "SendMessage") -> Question:
    message = {"messageId": f"m {text[:40]}", "contextId": session, "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
    return Question("/a2a", body, {"A2A-Version": "1.0"})


def streamed(asking: Asking) -> Asking:
    """With `stream: true`, as OpenAI's APIs have it."""

    def asked(text: str, session: str) -> Question:
        question = asking(text, session)
        return question._replace(body={**question.body, "stream": True})

    return asked


QUESTIONS: dict[str, Asking] = {
    "ag-ui": agui,
    "ag-ui protobuf": protobuf,
    "ag-ui copilotkit": copilotkit,
    "ag-ui copilotkit, one address": copilotkit_single,
    "rest": rest,
    "rest stream": rest_stream,
    "chat-stream": chat_stream,
    "openai": openai,
    "openai stream": streamed(openai),
    "responses": responses,
    "responses stream": streamed(responses),
    "ai-sdk": ai_sdk,
    "mcp": mcp,
    "a2a": a2a,
    "a2a stream": lambda text, session: a2a(text, session, "SendStreamingMessage"),
}


def wires_in(names: Iterable[str]) -> set[str]:
    """The wires of a table whose names begin with them."""
    return {name.partition(" ")[0] for name in names}

"""The body of a Converse request, from the prompt and the settings. Pure; what an endpoint refused is in `restrictions`.

Messages are built as for Anthropic's API and renamed block by block: both APIs want the same order of blocks.
"""

import json
import re
from base64 import b64encode
from collections.abc import Container, Iterable, Sequence
from hashlib import sha256

from holodeck.core.tools import ToolSchema
from holodeck.models.anthropic.message_events import Value
from holodeck.models.anthropic.message_request import EFFORTS, NO_OUTPUT, max_tokens, messages_of, thinking_of
from holodeck.models.bedrock.converse_answer import SERVER_CALL
from holodeck.models.endpoint_settings import EndpointSettings, lower_of
from holodeck.models.port import Prompt
from holodeck.models.providers import is_claude
from holodeck.models.restrictions import NOTHING, Restrictions

MODEL_FIELDS = "additionalModelRequestFields"  # members that Bedrock passes on to the model as they are
ANSWER_NOW = "Answer now with what you know, and call no tool."
_LONGEST_ID = 64
_LONGEST_NAME = 200
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9\s()\[\]-]+")
_SPACES = re.compile(r"\s+")
_DOCUMENTS = {"application/pdf": "pdf", "text/plain": "txt"}
_LAST_TURNS = 2  # messages of the user that end with a cache point


def body_of(
    settings: EndpointSettings,
    prompt: Prompt,
    restrictions: Restrictions = NOTHING,
    *,
    unsigned: Container[str] = (),
    thinks: bool = True,
) -> Value:
    """The request. `unsigned` are ids of messages whose thinking the endpoint refused."""
    messages = [_message(message, restrictions) for message in messages_of(prompt.messages, unsigned)]
    _make_names_unique(messages)
    system = _system(prompt, messages)
    if system and "system" in restrictions.without:
        messages, system = _with_system_first(system, messages), ""
    body: Value = {"messages": messages}
    if system:
        body["system"] = [{"text": system}]
    if tool_config := _tool_config(settings, prompt, messages, restrictions):
        body["toolConfig"] = tool_config
    if settings.cache != "off" and "cache" not in restrictions.without:
        _set_cache_points(body, settings.cache, restrictions)
    body |= {name: value for name, value in _options(settings, prompt, restrictions, thinks=thinks).items() if value}
    return _merged(body, settings.extra)


def _merged(body: Value, extra: Value) -> Value:
    """Merges `extra` into the body. `extra` wins; objects that both have are merged."""
    both = {
        name: {**body[name], **value}
        for name, value in extra.items()
        if isinstance(value, dict) and isinstance(body.get(name), dict)
    }
    return body | extra | both


# messages


def _message(message: Value, restrictions: Restrictions) -> Value:
    blocks = [block for each in message["content"] for block in _blocks(each, restrictions)]
    if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
        blocks.append({"text": "See the attached document."})  # Converse requires a text beside each document
    return {"role": message["role"], "content": blocks}


def _blocks(block: Value, restrictions: Restrictions) -> Iterable[Value]:
    match block["type"]:
        case "text":
            yield {"text": block["text"]}
        case "image":
            yield _image(block["source"])
        case "document":
            yield _document(block)
        case "thinking":
            signed = {"signature": block["signature"]} if block.get("signature") else {}
            yield {"reasoningContent": {"reasoningText": {"text": block.get("thinking", ""), **signed}}}
        case "redacted_thinking":
            yield {"reasoningContent": {"redactedContent": block.get("data", "")}}
        case "tool_use" | "server_tool_use":
            yield {"toolUse": _call(block)}
        case "tool_result":
            yield {"toolResult": _result(block, restrictions)}
        case "server_tool_result":
            kind = {"type": block["result_type"]} if "result_type" in block else {}
            status = {"status": "error"} if block.get("is_error") else {}
            identity = {"toolUseId": _id(block["tool_use_id"])}
            yield {"toolResult": {**identity, "content": block.get("content") or [], **status, **kind}}
        case _:
            pass  # a block of another API, unknown to Bedrock's models


def _call(block: Value) -> Value:
    kind = {"type": SERVER_CALL} if block["type"] == SERVER_CALL else {}
    return {"toolUseId": _id(block["id"]), "name": block["name"], "input": block["input"], **kind}


def _result(block: Value, restrictions: Restrictions) -> Value:
    content = [inner for each in block.get("content", ()) for inner in _blocks(each, restrictions)]
    failed = block.get("is_error") and "status" not in restrictions.without
    return {
        "toolUseId": _id(block["tool_use_id"]),
        "content": content or [{"text": NO_OUTPUT}],
        **({"status": "error"} if failed else {}),
    }


def _image(source: Value) -> Value:
    if source["type"] == "url":  # Converse takes no URL
        return {"text": f"Image: {source['url']}"}
    image_format = source["media_type"].removeprefix("image/")
    return {"image": {"format": image_format, "source": {"bytes": source["data"]}}}


def _document(block: Value) -> Value:
    source = block["source"]
    if source["type"] == "url":
        return {"text": f"Document: {source['url']}"}
    data = source["data"] if source["type"] == "base64" else b64encode(source["data"].encode()).decode()
    described = {"format": _DOCUMENTS[source["media_type"]], "name": _name(block.get("title", ""))}
    return {"document": {**described, "source": {"bytes": data}}}


def _name(filename: str) -> str:
    """A file name that the API accepts: no dots, no two spaces in a row."""
    plain = _SPACES.sub(" ", _NOT_IN_A_NAME.sub(" ", filename.rpartition(".")[0] or filename)).strip()
    return plain[:_LONGEST_NAME].strip() or "document"


def _make_names_unique(messages: Sequence[Value]) -> None:
    """Documents of one request must not share a name: the second "report" is "report (2)"."""
    counted: dict[str, int] = {}
    for block in [block for message in messages for block in message["content"]]:
        for inner in block["toolResult"]["content"] if "toolResult" in block else [block]:
            if document := inner.get("document"):
                name = document["name"]
                counted[name] = counted.get(name, 0) + 1
                if counted[name] > 1:
                    document["name"] = f"{name[: _LONGEST_NAME - 10]} ({counted[name]})"


def _id(call_id: str) -> str:
    """A call id that the API accepts; other providers' ids may be longer."""
    return call_id if len(call_id) <= _LONGEST_ID else f"{call_id[:31]}_{sha256(call_id.encode()).hexdigest()[:32]}"


# system and tools


def _system(prompt: Prompt, messages: Sequence[Value]) -> str:
    """The system prompt. Converse cannot forbid tools, nor omit tools that were used, so a sentence asks for no calls."""
    added = [ANSWER_NOW] if prompt.answers_now and _used_tools(messages) else []
    return "\n\n".join(filter(str.strip, [prompt.system, *added]))


def _with_system_first(system: str, messages: Sequence[Value]) -> list[Value]:
    """Puts the system prompt before the first message of the user, for models that take no system prompt."""
    if not messages or messages[0]["role"] != "user":
        return [{"role": "user", "content": [{"text": system}]}, *messages]
    first = messages[0]
    return [{**first, "content": [{"text": system}, *first["content"]]}, *messages[1:]]


def _tool_config(
    settings: EndpointSettings, prompt: Prompt, messages: Sequence[Value], restrictions: Restrictions
) -> Value | None:
    used = _used_tools(messages)
    tools = [] if prompt.answers_now and not used else [_tool(tool) for tool in prompt.tools]
    known = {tool.name for tool in prompt.tools}
    # Converse refuses a history with calls of tools that the request does not describe.
    tools += [_tool(ToolSchema(name=name, description="", parameters={})) for name in used if name not in known]
    tools += [dict(tool) for tool in settings.provider_tools]
    if not tools:
        return None
    choice = None if "tool_choice" in restrictions.without else _tool_choice(settings, prompt)
    return {"tools": tools, **({"toolChoice": choice} if choice else {})}


def _used_tools(messages: Sequence[Value]) -> list[str]:
    """Names of our own tools that the history calls, without duplicates."""
    uses = [block["toolUse"] for message in messages for block in message["content"] if "toolUse" in block]
    return list(dict.fromkeys(use["name"] for use in uses if "type" not in use))


def _tool(tool: ToolSchema) -> Value:
    described = {"description": tool.description} if tool.description else {}
    schema = {"json": {"type": "object", **tool.parameters}}
    return {"toolSpec": {"name": tool.name, **described, "inputSchema": schema}}


def _tool_choice(settings: EndpointSettings, prompt: Prompt) -> Value | None:
    choice = settings.choice_of_tools(prompt)
    if choice in (None, "none"):  # Converse has no such choice
        return None
    named = {"auto": "auto", "required": "any"}.get(str(choice))
    return {named: {}} if named else {"tool": {"name": choice}}


# options


def _options(settings: EndpointSettings, prompt: Prompt, restrictions: Restrictions, *, thinks: bool) -> Value:
    without = restrictions.without
    most = lower_of(settings.most_tokens(prompt), lower_of(restrictions.most_tokens, restrictions.most_tokens_now))
    inference = {
        "maxTokens": most,
        "temperature": None if "temperature" in without else settings.temperature,
        "topP": None if "top_p" in without else settings.top_p,
        "stopSequences": None if "stop_sequences" in without else list(settings.stop) or None,
    }
    effort = EFFORTS.get(settings.reasoning.effort or "") if settings.reasoning else None
    output: Value = {"effort": effort} if effort and "output_config" not in without else {}
    if prompt.output is not None:
        schema = {"schema": json.dumps(prompt.output.schema, ensure_ascii=False), "name": prompt.output.name}
        output["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    tier = settings.service_tier if "service_tier" not in without else None
    return {
        "inferenceConfig": _present(inference),
        MODEL_FIELDS: _claude_fields(settings, restrictions, most, thinks=thinks),
        "outputConfig": output,
        "serviceTier": {"type": tier} if tier else None,
    }


def _claude_fields(settings: EndpointSettings, restrictions: Restrictions, most: int | None, *, thinks: bool) -> Value:
    """Fields for Anthropic's models that Converse itself has no member for.

    For models of other publishers, the agent file sets their fields in `extra`.
    """
    if not is_claude("bedrock", settings.name):
        return {}
    thinks = thinks and "thinking" not in restrictions.without
    room = max_tokens(settings, restrictions) if most is None else most
    thinking = thinking_of(settings, restrictions, room).get("thinking") if thinks else None
    return _present({"thinking": thinking, "anthropic_beta": list(settings.betas) or None})


def _present(members: Value) -> Value:
    return {name: value for name, value in members.items() if value is not None}


def _set_cache_points(body: Value, cache: str, restrictions: Restrictions) -> None:
    """Adds cache points after the tools, the system prompt and the last two user messages."""
    point: Value = {"cachePoint": {"type": "default", **({"ttl": "1h"} if cache == "1h" else {})}}
    if "toolConfig" in body and "cache of tools" not in restrictions.without:
        body["toolConfig"]["tools"].append(point)
    if "system" in body:
        body["system"].append(point)
    turns = [message["content"] for message in body["messages"] if message["role"] == "user"]
    for content in turns[-_LAST_TURNS:]:
        content.append(point)

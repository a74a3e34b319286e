"""Plays scenarios with Microsoft's AGUIChatClient. Runs in an environment of its own, so it imports nothing of ours.

Scenarios as a JSON list on standard input, one line of JSON out for each. A scenario is {name, url, thread, asks: [...]};
an ask is {say?, resume?: status and payload for each open interrupt, tools?: answers by the client's own tools}. A scenario
without a thread is played as the framework's users write it: an Agent with a session, and no thread id by hand.
"""

import asyncio
import json
import sys
from typing import Any

from agent_framework import Agent, ChatResponse, FunctionTool, Message
from agent_framework_ag_ui import AGUIChatClient


def _content(content: Any) -> dict[str, Any]:
    names = ("type", "text", "name", "arguments", "call_id", "result", "message", "error_code")
    found = {name: getattr(content, name, None) for name in names}
    return {name: value if isinstance(value, str) else str(value) for name, value in found.items() if value is not None}


def _report(response: ChatResponse, updates: int) -> dict[str, Any]:
    properties = response.additional_properties
    return {
        "text": response.text,
        "updates": updates,
        "messages": [
            {"role": str(message.role), "contents": [_content(content) for content in message.contents]}
            for message in response.messages
        ],
        "properties": {key: properties.get(key) for key in ("thread_id", "run_id", "outcome", "interrupts", "result")},
    }


def _tools(answers: dict[str, str]) -> list[FunctionTool]:
    def carried_out(name: str) -> FunctionTool:
        async def answer(colour: str) -> str:
            return f"{answers[name]} {colour}"

        return FunctionTool(name=name, description="A tool of the client", func=answer)

    return [carried_out(name) for name in answers]


async def _ask(client: AGUIChatClient, scenario: dict[str, Any], ask: dict[str, Any], before: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"metadata": {"thread_id": scenario["thread"]}}
    if "resume" in ask:
        open_interrupts = before["properties"]["interrupts"]
        options["resume"] = [
            {"interruptId": interrupt["id"], **answer}
            for interrupt, answer in zip(open_interrupts, ask["resume"], strict=True)
        ]
    if "tools" in ask:
        options["tools"] = _tools(ask["tools"])
    sent = [Message(role="user", contents=[ask["say"]])] if "say" in ask else []
    stream = client.get_response(sent, stream=True, options=options)
    updates = [update async for update in stream]
    return _report(await stream.get_final_response(), len(updates))


async def _play_as_agent(scenario: dict[str, Any]) -> dict[str, Any]:
    reports: list[dict[str, Any]] = []
    async with AGUIChatClient(endpoint=scenario["url"]) as client:
        agent = Agent(client=client)
        session = agent.create_session()
        for ask in scenario["asks"]:
            response = await agent.run(ask["say"], session=session, tools=_tools(ask.get("tools", {})))
            contents = [_content(content) for message in response.messages for content in message.contents]
            reports.append({"text": response.text, "contents": contents})
    return {"name": scenario["name"], "asks": reports}


async def _play(scenario: dict[str, Any]) -> dict[str, Any]:
    if "thread" not in scenario:
        return await _play_as_agent(scenario)
    reports: list[dict[str, Any]] = []
    async with AGUIChatClient(endpoint=scenario["url"]) as client:
        for ask in scenario["asks"]:
            reports.append(await _ask(client, scenario, ask, reports[-1] if reports else None))
    return {"name": scenario["name"], "asks": reports}


async def main() -> None:
    for scenario in json.load(sys.stdin):
        sys.stdout.write(json.dumps(await _play(scenario)) + "\n")


if __name__ == "__main__":
    asyncio.run(main())

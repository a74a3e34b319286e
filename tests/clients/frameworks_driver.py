"""Plays the same turns with LangChain, OpenAI's Agents SDK, Pydantic AI and `llm`, over Chat Completions and over Responses.

Runs in an environment of its own, so it imports nothing of ours. Scenarios as a JSON list on standard input, one line of JSON out
for each: {name: framework and API, url}. All are played in one process: importing the frameworks costs more than the turns.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

MODEL, UNKNOWN = "scenes", "gpt-5"
Json = dict[str, Any]


def painted(colour: str) -> str:
    """The client's own tool."""
    return f"painted {colour}"


class LangChain:
    def __init__(self, url: str, api: str) -> None:
        from langchain_core.tools import StructuredTool
        from langchain_openai import ChatOpenAI

        how = {"use_responses_api": True, "use_previous_response_id": True} if api == "responses" else {}
        self._open: Callable[[str], Any] = lambda model: ChatOpenAI(model=model, base_url=url, api_key="none", **how)
        self._chat = self._open(MODEL)
        self._paint = StructuredTool.from_function(painted, name="change_background")

    async def turn(self, text: str, model: str = MODEL) -> Json:
        answer = await self._open(model).ainvoke(text)
        blocks = answer.content_blocks
        return {"text": answer.text, "calls": answer.tool_calls, "blocks": [block["type"] for block in blocks]}

    async def stream(self, text: str) -> AsyncIterator[str]:
        async for chunk in self._chat.astream(text):
            if chunk.text:
                yield chunk.text

    async def two_turns(self, first: str, second: str) -> str:
        history: list[Any] = [("user", first)]
        history += [await self._chat.ainvoke(history), ("user", second)]
        return str((await self._chat.ainvoke(history)).text)

    async def own_tool(self, text: str) -> str:
        chat = self._chat.bind_tools([self._paint])
        history: list[Any] = [("user", text)]
        asked = await chat.ainvoke(history)
        history += [asked, *[await self._paint.ainvoke(call) for call in asked.tool_calls]]
        return str((await chat.ainvoke(history)).text)


class AgentsSdk:
    def __init__(self, url: str, api: str) -> None:
        import agents
        from openai import AsyncOpenAI

        agents.set_tracing_disabled(disabled=True)
        kind = agents.OpenAIResponsesModel if api == "responses" else agents.OpenAIChatCompletionsModel
        client = AsyncOpenAI(base_url=url, api_key="none")
        paint = agents.function_tool(painted, name_override="change_background")
        self._api, self._runner = api, agents.Runner
        self._open = lambda model, tools=(): agents.Agent(
            name="helper", model=kind(model=model, openai_client=client), tools=list(tools)
        )
        self._agent, self._painter = self._open(MODEL), self._open(MODEL, [paint])

    async def turn(self, text: str, model: str = MODEL) -> Json:
        result = await self._runner.run(self._open(model), text)
        return {"text": result.final_output, "calls": [], "blocks": [item.type for item in result.new_items]}

    async def stream(self, text: str) -> AsyncIterator[str]:
        async for event in self._runner.run_streamed(self._agent, text).stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield event.data.delta

    async def two_turns(self, first: str, second: str) -> str:
        before = await self._runner.run(self._agent, first)
        if self._api == "responses":
            after = await self._runner.run(self._agent, second, previous_response_id=before.last_response_id)
            return str(after.final_output)
        history = [*before.to_input_list(), {"role": "user", "content": second}]
        return str((await self._runner.run(self._agent, history)).final_output)

    async def own_tool(self, text: str) -> str:
        return str((await self._runner.run(self._painter, text)).final_output)


class PydanticAi:
    def __init__(self, url: str, api: str) -> None:
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModelSettings
        from pydantic_ai.providers.openai import OpenAIProvider

        provider = OpenAIProvider(base_url=url, api_key="none")
        kind = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
        continued = OpenAIResponsesModelSettings(openai_previous_response_id="auto") if api == "responses" else None
        self._open = lambda model: Agent(kind(model, provider=provider), model_settings=continued)
        self._agent, self._painter = self._open(MODEL), self._open(MODEL)
        self._painter.tool_plain(name="change_background")(painted)

    async def turn(self, text: str, model: str = MODEL) -> Json:
        result = await self._open(model).run(text)
        parts = [part.part_kind for message in result.new_messages() for part in message.parts]
        return {"text": result.output, "calls": [], "blocks": parts}

    async def stream(self, text: str) -> AsyncIterator[str]:
        async with self._agent.run_stream(text) as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                yield piece

    async def two_turns(self, first: str, second: str) -> str:
        before = await self._agent.run(first)
        return str((await self._agent.run(second, message_history=before.all_messages())).output)

    async def own_tool(self, text: str) -> str:
        return str((await self._painter.run(text)).output)


class Llm:
    """Simon Willison's `llm`, by the file that its users write."""

    def __init__(self, url: str, api: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="llm-"))
        os.environ["LLM_USER_PATH"] = str(folder)
        entries = [
            {"model_id": f"{name}-{api}", "model_name": name, "api_base": url, "api_key_name": "holodeck"}
            | {"supports_tools": True, "responses": api == "responses"}
            for name in (MODEL, UNKNOWN)
        ]
        (folder / "extra-openai-models.yaml").write_text(json.dumps(entries))
        import llm

        self._open = lambda model: llm.get_async_model(f"{model}-{api}")
        self._tool = llm.Tool.function(painted, name="change_background")

    async def turn(self, text: str, model: str = MODEL) -> Json:
        response = self._open(model).prompt(text, key="none")
        return {"text": await response.text(), "calls": list(await response.tool_calls()), "blocks": []}

    async def stream(self, text: str) -> AsyncIterator[str]:
        async for piece in self._open(MODEL).prompt(text, key="none"):
            yield piece

    async def two_turns(self, first: str, second: str) -> str:
        conversation = self._open(MODEL).conversation()
        await conversation.prompt(first, key="none").text()
        return str(await conversation.prompt(second, key="none").text())

    async def own_tool(self, text: str) -> str:
        return str(await self._open(MODEL).chain(text, tools=[self._tool], key="none").text())


FRAMEWORKS: dict[str, Callable[[str, str], Any]] = {
    "langchain": LangChain,
    "openai-agents": AgentsSdk,
    "pydantic-ai": PydanticAi,
    "llm": Llm,
}


async def _error(turn: Awaitable[Any]) -> Json:
    try:
        await turn
    except Exception as error:  # noqa: BLE001  each framework has its own
        return {"class": type(error).__name__, "message": str(error)}
    return {"class": None, "message": ""}


async def _stopped(framework: Any) -> str:
    """The first piece of an answer that never ends; then the client leaves, as these frameworks stop."""
    stream = framework.stream("stop me")
    try:
        return str(await anext(stream))
    finally:
        await stream.aclose()


async def _play(name: str, url: str) -> Json:
    framework, api = name.split(" ")
    client = FRAMEWORKS[framework](f"{url}/v1", api)
    return {
        "name": name,
        "text": await client.turn("hello"),
        "stream": [piece async for piece in client.stream("hello")],
        "two turns": await client.two_turns("hello", "what did I say"),
        "server tool": await client.turn("weather"),
        "own tool": await client.own_tool("paint it blue"),
        "unknown model": await _error(client.turn("hello", UNKNOWN)),
        "failed run": await _error(client.turn("fail at once")),
        "stopped": await _stopped(client),
    }


async def main() -> None:
    for scenario in json.load(sys.stdin):
        sys.stdout.write(json.dumps(await _play(scenario["name"], scenario["url"]), default=str) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())

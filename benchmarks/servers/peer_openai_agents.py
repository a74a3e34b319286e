"""openai-agents (Runner.run_streamed) behind a FastAPI route; it has no AG-UI of its own, so text deltas are all it writes."""

import json
import os
from collections.abc import AsyncIterator

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
async def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"Sunny in {city}, 20 C"


client = AsyncOpenAI(base_url=os.environ["BENCH_MODEL_URL"], api_key="x")
agent = Agent(
    name="assistant",
    instructions="You are a helpful assistant.",
    tools=[get_weather],
    model=OpenAIChatCompletionsModel(model="fake", openai_client=client),
)
app = FastAPI()


@app.get("/health")
async def health() -> str:
    return "ok"


@app.post("/")
async def run(request: Request) -> StreamingResponse:
    body = await request.json()
    return StreamingResponse(events(body["messages"][-1]["content"]), media_type="text/event-stream")


async def events(text: str) -> AsyncIterator[str]:
    async for event in Runner.run_streamed(agent, text).stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            frame = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": event.data.delta}
            yield f"data: {json.dumps(frame)}\n\n"

"""pydantic-ai served as AG-UI, as its documentation recommends (AGUIAdapter.dispatch_request)."""

import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

provider = OpenAIProvider(base_url=os.environ["BENCH_MODEL_URL"], api_key="x")
agent = Agent(OpenAIChatModel("fake", provider=provider), instructions="You are a helpful assistant.")


@agent.tool_plain
async def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"Sunny in {city}, 20 C"


async def run(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent)


async def health(_: Request) -> Response:
    return PlainTextResponse("ok")


app = Starlette(routes=[Route("/", run, methods=["POST"]), Route("/health", health)])

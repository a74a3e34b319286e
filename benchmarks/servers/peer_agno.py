"""agno's AgentOS with its AG-UI interface, stateless."""

import os

from agno.agent import Agent
from agno.models.openai import OpenAILike
from agno.os import AgentOS
from agno.os.interfaces.agui import AGUI


async def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"Sunny in {city}, 20 C"


agent = Agent(
    name="assistant",
    id="assistant",
    model=OpenAILike(id="fake", base_url=os.environ["BENCH_MODEL_URL"], api_key="x"),
    instructions="You are a helpful assistant.",
    tools=[get_weather],
    telemetry=False,
)
app = AgentOS(agents=[agent], interfaces=[AGUI(agent=agent)], telemetry=False).get_app()

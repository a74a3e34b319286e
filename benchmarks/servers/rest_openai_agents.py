"""openai-agents behind `rest_app`."""

from agents import Runner
from peer_openai_agents import agent
from rest_app import rest_app


async def answer(message: str) -> str:
    return (await Runner.run(agent, message)).final_output


app = rest_app(answer)

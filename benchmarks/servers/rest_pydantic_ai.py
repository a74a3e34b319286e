"""pydantic-ai behind `rest_app`."""

from peer_pydantic_ai import agent
from rest_app import rest_app


async def answer(message: str) -> str:
    return (await agent.run(message)).output


app = rest_app(answer)

"""A plain FastAPI route around any agent library: a message in, the whole answer out."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from pydantic import BaseModel, Field


class ChatRequest(BaseModel):
    message: str = Field(min_length=1, max_length=10_000)


class ChatResponse(BaseModel):
    content: str


def rest_app(answer: Callable[[str], Awaitable[str]]) -> FastAPI:
    app = FastAPI()

    @app.get("/health")
    async def health() -> str:
        return "ok"

    @app.post("/chat")
    async def chat(request: ChatRequest) -> ChatResponse:
        return ChatResponse(content=await answer(request.message))

    return app

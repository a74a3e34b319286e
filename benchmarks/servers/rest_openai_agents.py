"""openai-agents behind a plain FastAPI route: a message in, the whole answer out."""

from agents import Runner
from fastapi import FastAPI
from peer_openai_agents import agent
from pydantic import BaseModel, Field

app = FastAPI()


class ChatRequest(BaseModel):
    message: str = Field(min_length=1, max_length=10_000)


class ChatResponse(BaseModel):
    content: str


@app.get("/health")
async def health() -> str:
    return "ok"


@app.post("/chat")
async def chat(request: ChatRequest) -> ChatResponse:
    return ChatResponse(content=(await Runner.run(agent, request.message)).final_output)

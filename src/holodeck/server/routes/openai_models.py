"""The agent as a model, and what both OpenAI wires share: the form of errors, the names of models and tools."""

import logging

from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import CHAT
from holodeck.access.route_access import needs
from holodeck.agent.tool_calls import server_tools
from holodeck.core.request import RunRequest
from holodeck.errors import InvalidRequest
from holodeck.server.agent_server import AgentServer
from holodeck.server.intake import json_answer, server_of
from holodeck.server.openai_schemas import MODEL, MODEL_SCHEMAS, MODELS
from holodeck.server.problems import known, problem_response
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS
from holodeck.wires.openai_chat.error_form import chat_problem, model_not_found, retry_headers
from holodeck.wires.openai_chat.parameters import CHOICES
from holodeck.wires.openai_chat.response import ModelList, OpenAIModel

log = logging.getLogger(__name__)

OWN_PREFIX = "holodeck/"  # some clients put a provider before a model's name
SDK_HEADERS = ("X-Stainless-*", "OpenAI-*")  # OpenAI's SDKs send them with every request


def answer_error(error: Exception, *, begun: bool = False) -> Response:
    """Answers an error. `begun`: a run was started, so the client must not retry by itself."""
    failure = known(error)
    if isinstance(failure, InvalidRequest) and failure.field == "resume":
        failure.field = "input"  # a response's approvals are items of its input
    answer = problem_response(failure, chat_problem)
    answer.headers.update(retry_headers(failure, begun=begun))
    return answer


routes = Routes("/v1", tag="OpenAI", responses=PROBLEMS, schemas=MODEL_SCHEMAS, answer_error=answer_error)


@routes.get("/models", "The agent, as a list of models", access=needs(CHAT), responses=MODELS)
async def models(request: Request) -> Response:
    return json_answer(ModelList(data=(_model(server_of(request)),)))


@routes.get("/models/{model:path}", "The agent, as a model", access=needs(CHAT), responses=MODEL)
async def model(request: Request) -> Response:
    server = server_of(request)
    check_model(server, request.path_params["model"])
    return json_answer(_model(server))


def check_model(server: AgentServer, wanted: str | None) -> None:
    """Checks the model's name. A request without one means the served agent; there is no other."""
    name = server.agent.name
    if wanted is not None and wanted not in {name, OWN_PREFIX + name}:
        raise model_not_found(f"There is no model {wanted!r} here, only the agent {name!r}.")


def _model(server: AgentServer) -> OpenAIModel:
    return OpenAIModel(id=server.agent.name, created=0)


def own_tools(server: AgentServer, run: RunRequest) -> frozenset[str]:
    """The names of the client's tools. If the agent has a tool of the same name, the agent's is used.

    Refuses a `tool_choice` that names neither a client's tool nor an agent's.
    """
    choice = run.options.tool_choice
    if not run.client_tools and (choice is None or choice in CHOICES):
        return frozenset()
    names, ours = frozenset(tool.name for tool in run.client_tools), server_tools(server.agent)
    offered = {tool.name for tool in server.agent.tools.schemas()} | (names - ours)
    if choice is not None and choice not in CHOICES and choice not in offered:
        raise InvalidRequest(
            f"tool_choice names the tool {choice!r}, which neither the agent nor the request offers.",
            field="tool_choice",
        )
    for name in sorted(names & ours):
        log.warning("a client's tool %r is not used: the agent has one of this name", name)
    return names - ours

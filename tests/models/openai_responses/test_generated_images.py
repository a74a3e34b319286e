"""An image that the provider generates: the client gets it, and the next turn refers to it."""

from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.loop import run
from holodeck.core import events as e
from holodeck.core.messages import MediaPart, UserMessage
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.openai_responses.responses_model import ResponsesModel
from holodeck.sessions.transcript import Transcript
from holodeck.tools.catalogue import Catalogue
from holodeck.tools.functions import FunctionToolset
from holodeck.wires.agui.encode import write_result
from holodeck.wires.agui.profile import Profile
from tests.models.endpoint import ModelEndpoint, stream
from tests.models.openai_responses.response_streams import IMAGE, SHAPES


async def test_a_generated_image_reaches_the_client_and_the_next_turn():
    drawn = next(shape for shape in SHAPES.values() if shape.items == ["image_generation_call"])
    events: list[e.Event] = []
    conversation = Transcript()
    async with ModelEndpoint(stream(drawn.body), stream(SHAPES["openai: text"].body)) as endpoint:
        tools = ({"type": "image_generation"},)
        model = ResponsesModel(EndpointSettings(name="m", endpoint=endpoint.url, provider_tools=tools))
        async with AgentDefinition(name="a", model=model, tools=Catalogue.of(FunctionToolset([]))) as agent:
            for text in ("draw a cat", "make it blue"):
                context = AgentContext(conversation=conversation, input=[UserMessage(content=text)])
                await run(agent, context, events.append)
    (result,) = [event for event in events if isinstance(event, e.ToolFinished)]
    assert result.content == (MediaPart(mime_type="image/png", data=IMAGE["result"]),)
    assert write_result(result.content, Profile.FULL) == [
        {"type": "image", "source": {"type": "data", "value": IMAGE["result"], "mimeType": "image/png"}}
    ]
    sent_back = [item for item in endpoint.requests[1].json["input"] if item.get("type") == "image_generation_call"]
    assert [item["result"] for item in sent_back] == [IMAGE["result"]]

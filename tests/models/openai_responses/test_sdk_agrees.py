"""The official SDK reads our shapes and comes to the same meaning: it is the oracle, and no part of the runtime."""

import json

import httpx2
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.models.openai_responses.response_streams import SHAPES

READABLE = [name for name, shape in SHAPES.items() if shape.oracle]


def final_response(body: bytes) -> Response:
    """The response that the SDK's own stream helper puts together from the bytes."""

    def respond(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    http = httpx2.Client(transport=httpx2.MockTransport(respond))
    client = OpenAI(api_key="k", base_url="http://127.0.0.1:1/v1", http_client=http, max_retries=0)
    with http, client.responses.stream(model="m", input="Hi") as stream:
        ends = [event.response for event in stream if event.type in ("response.completed", "response.incomplete")]
    return ends[-1]


@pytest.mark.parametrize("name", READABLE)
def test_the_sdk_reads_the_same(name):
    shape = SHAPES[name]
    response = final_response(shape.body)
    assert response.output_text == shape.text
    calls = [item for item in response.output if item.type == "function_call"]
    if not any(warning == "tool-call-cut" for warning in shape.warnings):
        expected = [call for call in shape.calls if call[1] != "sql"]
        assert [(item.call_id, item.name, item.arguments) for item in calls] == expected
    summaries = [part.text for item in response.output if item.type == "reasoning" for part in item.summary]
    if "thoughts as text" not in name:
        assert "\n\n".join(summaries) == shape.reasoning
    assert response.usage is not None
    assert response.usage.input_tokens == shape.usage.prompt_tokens
    assert response.usage.output_tokens_details.reasoning_tokens == shape.usage.reasoning_tokens
    kinds = [item.type for item in response.output]
    assert shape.items in (None, kinds), json.dumps(kinds)

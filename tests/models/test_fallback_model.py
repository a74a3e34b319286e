"""Several models in order."""

import pytest

from holodeck.core.secrets import Redactor
from holodeck.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelAuthFailed,
    ModelError,
    ModelInterrupted,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
    ModelUnreachable,
)
from holodeck.models.diagnosis import Diagnosis, EndpointRefusal
from holodeck.models.port import Prompt
from holodeck.models.scripted import ScriptedModel, Turn, says
from holodeck.models.streamed import ApiNotServed
from holodeck.models.wrappers import FallbackModel
from tests.models.recording_listener import RecordingListener


def failing(error) -> ScriptedModel:
    return ScriptedModel([Turn(error=error)])


OF_MODEL = {
    "no credit": EndpointRefusal(status=429, body=b'{"error": {"code": "insufficient_quota"}}'),
    "payment required": EndpointRefusal(status=402),
    "no such model": EndpointRefusal(status=404, body=b'{"error": {"code": "model_not_found"}}'),
    "OpenAI's Responses API": EndpointRefusal(status=400, body=b'{"error": {"code": "model_not_found"}}'),
    "Groq": EndpointRefusal(status=400, body=b'{"error": {"code": "model_decommissioned"}}'),
    "Mistral": EndpointRefusal(
        status=400, body=b'{"message": "Invalid model: m", "type": "invalid_model", "code": "1500"}'
    ),
    "DeepSeek": EndpointRefusal(status=400, body=b'{"error": {"message": "Model Not Exist"}}'),
    "OpenRouter": EndpointRefusal(status=400, body=b'{"error": {"message": "m is not a valid model ID", "code": 400}}'),
    "Bedrock": EndpointRefusal(status=400, body=b'{"message": "The provided model identifier is invalid."}'),
}


DIAGNOSIS = Diagnosis(where="x", model="m", key_advice="k", has_key=True, redact=Redactor([]))


def diagnosed(refusal: EndpointRefusal) -> ModelError:
    return DIAGNOSIS.of_response(refusal)


@pytest.mark.parametrize("refusal", OF_MODEL.values(), ids=OF_MODEL)
def test_a_missing_model_or_credit_is_no_fault_of_the_conversation(refusal):
    """The loop shortens a conversation that was refused, and does not keep its last message."""
    error = diagnosed(refusal)
    assert (error.of_model, error.of_request) == (True, False)


@pytest.mark.parametrize(
    "error",
    [
        ModelUnreachable(),
        ModelUnavailable(),
        ModelAuthFailed(),
        ModelProtocolError(),
        ApiNotServed(),
        *map(diagnosed, OF_MODEL.values()),
        DIAGNOSIS.of_error({"code": "model_not_found"}, started=False),
    ],
)
async def test_the_next_model_answers_when_one_cannot(error):
    listener = RecordingListener()
    last = ScriptedModel([says("Hello")])
    reply = await FallbackModel([failing(error), failing(error), last]).reply(Prompt(), listener)
    assert reply.text == listener.words == "Hello"
    assert listener.warnings == ["model-fallback", "model-fallback"]
    assert len(last.prompts) == 1


@pytest.mark.parametrize(
    "error", [ModelRejected(), ContextOverflow(), ContentFiltered(), ModelInterrupted(started=True)]
)
async def test_no_fallback_after_a_bad_request_or_partial_answer(error):
    last = ScriptedModel([says("Hello")])
    with pytest.raises(type(error)):
        await FallbackModel([failing(error), last]).reply(Prompt(), RecordingListener())
    assert last.prompts == []


async def test_the_last_failure_is_the_one_that_counts():
    with pytest.raises(ModelUnavailable):
        await FallbackModel([failing(ModelUnreachable()), failing(ModelUnavailable())]).reply(
            Prompt(), RecordingListener()
        )


async def test_replies_and_failures_name_the_model_that_they_come_from():
    first, second = failing(ModelUnreachable()), ScriptedModel([says("Hello")])
    first.name, second.name = "a/first", "b/second"
    assert (await FallbackModel([first, second]).reply(Prompt(), RecordingListener())).model == "b/second"
    assert (await FallbackModel([second, first]).reply(Prompt(), RecordingListener())).model == "b/second"
    second.turns = [Turn(error=ModelUnreachable())]
    with pytest.raises(ModelUnreachable) as failure:
        await FallbackModel([first, second]).reply(Prompt(), RecordingListener())
    assert failure.value.model == "b/second"


async def test_it_is_called_and_checked_as_its_first_model():
    class Closing(ScriptedModel):
        closed = False

        async def close(self) -> None:
            self.closed = True

    models = [Closing([says("a")]), Closing([says("b")])]
    fallback = FallbackModel(models)
    await fallback.check()
    await fallback.close()
    assert fallback.name == "scripted"
    assert all(model.closed for model in models)


def test_it_needs_a_model():
    with pytest.raises(ValueError, match="at least one"):
        FallbackModel([])

"""The two clients of Vertex AI: other providers' clients at Google's addresses, with Google's tokens.

The publisher at the beginning of a model's name decides between them: `anthropic/…` or any other, as `google/…`.
"""

from typing import Any

from holodeck.models.anthropic.messages_model import AnthropicModel
from holodeck.models.chat_completions_model import OpenAIChatModel
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.port import Prompt
from holodeck.models.providers import vertex_urls
from holodeck.models.restrictions import Restrictions
from holodeck.models.streamed import RequestSigner

ANTHROPIC_VERSION = "vertex-2023-10-16"


class ClaudeOnVertex(AnthropicModel):
    """Anthropic's Messages, with the model in the URL and the version in the body."""

    def _body(self, prompt: Prompt, restrictions: Restrictions) -> dict[str, Any]:
        body = super()._body(prompt, restrictions)
        del body["model"]
        return {"anthropic_version": ANTHROPIC_VERSION, **body}


def vertex_model(
    settings: EndpointSettings, signer: RequestSigner | None, *, project: str, location: str
) -> ClaudeOnVertex | OpenAIChatModel:
    """The client of one model. The settings' endpoint is Google's host, or a substitute for it."""
    url, models_url = vertex_urls(settings.endpoint or "", project=project, location=location, model=settings.name)
    client = ClaudeOnVertex if settings.name.startswith("anthropic/") else OpenAIChatModel
    return client(settings, url=url, models_url=models_url, signer=signer)

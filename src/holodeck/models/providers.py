"""Where each provider's endpoint is, and how it wants to be addressed. A table and pure functions."""

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

import msgspec

from holodeck.errors import ConfigError

_CHAT = "/chat/completions"
_RESPONSES = "/responses"


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    endpoint: str | None = None  # None: the user has to say it
    key_variable: str
    needs_key: bool = True
    key_header: str = "Authorization"
    hint: str = "it usually ends in /v1"  # what the URL of an endpoint looks like

    def headers(self, api_key: str | None) -> dict[str, str]:
        if not api_key:
            return {}
        return {self.key_header: f"Bearer {api_key}" if self.key_header == "Authorization" else api_key}


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(name="openai", endpoint="https://api.openai.com/v1", key_variable="OPENAI_API_KEY"),
        Provider(
            name="gemini",
            endpoint="https://generativelanguage.googleapis.com/v1beta/openai",
            key_variable="GEMINI_API_KEY",
        ),
        Provider(
            name="anthropic",
            endpoint="https://api.anthropic.com",
            key_variable="ANTHROPIC_API_KEY",
            key_header="x-api-key",
            hint="it is the part before /v1/messages",
        ),
        Provider(name="azure_openai", key_variable="AZURE_OPENAI_API_KEY", key_header="api-key"),
        Provider(name="ollama", endpoint="http://localhost:11434/v1", key_variable="OLLAMA_API_KEY", needs_key=False),
        Provider(name="openai_compatible", key_variable="OPENAI_API_KEY", needs_key=False),
    )
}


def provider_named(name: str) -> Provider:
    try:
        return PROVIDERS[name]
    except KeyError:
        raise ConfigError(f"There is no provider {name!r}; known are {', '.join(PROVIDERS)}.") from None


def chat_url(provider: str, endpoint: str | None = None) -> str:
    """The URL that answers chat completions. `endpoint` may be the base, with or without a slash, or the whole URL."""
    return _with_path(_endpoint(provider, endpoint), _CHAT)


def responses_url(provider: str, endpoint: str | None = None) -> str:
    """The URL of the Responses API. Azure's dated API has it beside the deployments, not inside one."""
    base = urlsplit(_endpoint(provider, endpoint))
    path = base.path.partition("/deployments/")[0]
    return _with_path(urlunsplit(base._replace(path=path)), _RESPONSES)


def models_url(provider: str, endpoint: str | None = None) -> str:
    """The URL that lists models: the cheapest question that needs a valid key."""
    return _with_path(_endpoint(provider, endpoint), "/models")


def messages_url(endpoint: str | None = None) -> str:
    """The URL of Anthropic's Messages API. `endpoint` is the base, as the official SDK takes it, or the whole URL."""
    return _with_path(_messages_base(endpoint), "/v1/messages")


def messages_models_url(endpoint: str | None = None) -> str:
    """The URL that lists Anthropic's models."""
    return _with_path(_messages_base(endpoint), "/v1/models")


def _messages_base(endpoint: str | None) -> str:
    parts = urlsplit(_endpoint("anthropic", endpoint))
    return urlunsplit(parts._replace(path=parts.path.removesuffix("/messages").removesuffix("/v1")))


def _endpoint(provider: str, endpoint: str | None) -> str:
    known = provider_named(provider)
    url = (endpoint or "").strip() or known.endpoint
    if url is None:
        raise ConfigError(f"The provider {provider} needs model.endpoint: the URL of its OpenAI-compatible API.")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"model.endpoint has to be a URL that begins with http:// or https://, not {url!r}.")
    if parts.username or parts.password:
        raise ConfigError("model.endpoint must not hold a user name or password; use model.api_key.")
    path = parts.path.rstrip("/").removesuffix(_CHAT).removesuffix(_RESPONSES)
    if provider == "azure_openai":
        path = _azure_path(path)
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _azure_path(path: str) -> str:
    """A bare resource URL means the v1 API; a deployment's URL (with its api-version) is taken as it is."""
    if "/deployments/" in path or path.endswith("/v1"):
        return path
    return f"{path}/v1" if path.endswith("/openai") else f"{path}/openai/v1"


def _with_path(base: str, path: str) -> str:
    parts = urlsplit(base)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))

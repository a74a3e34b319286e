"""The endpoint of each provider, and how requests to it are made. A table and pure functions."""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from holodeck.errors import ConfigError

_CHAT = "/chat/completions"
_PDF = frozenset({"pdf"})
_BOTH = frozenset({"chat", "responses"})
_RESPONSES = "/responses"
_CLAUDE_ON_BEDROCK = re.compile(r"(^|[./])anthropic\.")  # also inside an inference profile's id or an ARN
_GOOGLE_HOSTS = {"global": "aiplatform", "us": "aiplatform.us.rep", "eu": "aiplatform.eu.rep"}


ProviderName: TypeAlias = Literal[
    "openai", "anthropic", "gemini", "azure_openai", "ollama", "openai_compatible", "bedrock", "vertex", "demo"
]  # fmt: skip


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    endpoint: str | None = None  # None: the user must set it
    key_variable: str
    needs_key: bool = True
    key_header: str = "Authorization"
    hint: str = "it usually ends in /v1"  # what the URL of an endpoint looks like
    credential: str = "API key"  # how error messages call its credential
    sees_images: bool = False  # the default of `vision`
    native_files: frozenset[str] = frozenset()  # the default of `native_files`: kinds that the model reads itself
    needs_no_temperature: bool = False  # a temperature is sent only if the agent file sets one
    max_temperature: float = 2
    takes_budget: bool = True  # `reasoning.budget_tokens`
    apis: frozenset[str] = frozenset()  # values of `api`, besides auto
    own_keys: frozenset[str] = frozenset()  # keys of `model:` that only some providers have
    lacks: frozenset[str] = frozenset()  # keys of `model:` that its API has no member for

    @property
    def has_responses(self) -> bool:
        return "responses" in self.apis

    def headers(self, api_key: str | None) -> dict[str, str]:
        if not api_key:
            return {}
        return {self.key_header: f"Bearer {api_key}" if self.key_header == "Authorization" else api_key}


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            name="openai",
            endpoint="https://api.openai.com/v1",
            key_variable="OPENAI_API_KEY",
            sees_images=True,
            native_files=_PDF,
            takes_budget=False,
            apis=_BOTH,
        ),
        Provider(
            name="gemini",
            endpoint="https://generativelanguage.googleapis.com/v1beta/openai",
            key_variable="GEMINI_API_KEY",
            sees_images=True,
            native_files=frozenset({"audio"}),
            apis=frozenset({"chat"}),
        ),
        Provider(
            name="anthropic",
            endpoint="https://api.anthropic.com",
            key_variable="ANTHROPIC_API_KEY",
            key_header="x-api-key",
            hint="it is the part before /v1/messages",
            sees_images=True,
            native_files=_PDF,
            needs_no_temperature=True,
            max_temperature=1,
            own_keys=frozenset({"auth_token", "betas"}),
            lacks=frozenset({"seed", "verbosity"}),
        ),
        Provider(
            name="azure_openai",
            key_variable="AZURE_OPENAI_API_KEY",
            key_header="api-key",
            sees_images=True,
            takes_budget=False,
            apis=_BOTH,
        ),
        Provider(
            name="ollama",
            endpoint="http://localhost:11434/v1",
            key_variable="OLLAMA_API_KEY",
            needs_key=False,
            takes_budget=False,
            apis=frozenset({"chat"}),
        ),
        Provider(
            name="openai_compatible", key_variable="OPENAI_API_KEY", needs_key=False, takes_budget=False, apis=_BOTH
        ),
        Provider(
            name="bedrock",
            key_variable="AWS_BEARER_TOKEN_BEDROCK",
            needs_key=False,
            hint="it is the part before /model/",
            credential="AWS credentials",
            sees_images=True,
            native_files=_PDF,
            needs_no_temperature=True,
            max_temperature=1,
            own_keys=frozenset({"betas", "region", "profile"}),
            lacks=frozenset({"seed", "verbosity", "parallel_tool_calls"}),
        ),
        Provider(
            name="vertex",
            key_variable="GOOGLE_APPLICATION_CREDENTIALS",
            needs_key=False,
            hint="it is the part before /v1/projects/",
            credential="Google credentials",
            sees_images=True,
            needs_no_temperature=True,
            own_keys=frozenset({"betas", "project", "location"}),
        ),
    )
}


def provider_named(name: str) -> Provider:
    try:
        return PROVIDERS[name]
    except KeyError:
        raise ConfigError(f"There is no provider {name!r}; known are {', '.join(PROVIDERS)}.") from None


def chat_url(provider: str, endpoint: str | None = None) -> str:
    """The URL of chat completions. `endpoint` may be the base, with or without a slash, or the whole URL."""
    return _with_path(_endpoint(provider, endpoint), _CHAT)


def responses_url(provider: str, endpoint: str | None = None) -> str:
    """The URL of the Responses API. Azure's dated API has it beside the deployments, not inside one."""
    base = urlsplit(_endpoint(provider, endpoint))
    path = base.path.partition("/deployments/")[0]
    return _with_path(urlunsplit(base._replace(path=path)), _RESPONSES)


def models_url(provider: str, endpoint: str | None = None) -> str:
    """The URL that lists models: the cheapest request that needs a valid key."""
    return _with_path(_endpoint(provider, endpoint), "/models")


def messages_url(endpoint: str | None = None) -> str:
    """The URL of Anthropic's Messages API. `endpoint` is the base, as the official SDK takes it, or the whole URL."""
    return _with_path(_messages_base(endpoint), "/v1/messages")


def messages_models_url(endpoint: str | None = None) -> str:
    return _with_path(_messages_base(endpoint), "/v1/models")


def converse_url(endpoint: str, model: str) -> str:
    """The URL of a model in Bedrock's Converse API, without the operation at its end. A model may be named by an ARN."""
    return _with_path(_endpoint("bedrock", endpoint), f"/model/{quote(model, safe='')}")


def bedrock_endpoint(region: str) -> str:
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://bedrock-runtime.{region}.{domain}"


def bedrock_lists(endpoint: str) -> tuple[str, str]:
    """The URLs that list models and inference profiles. They are at another host than the models."""
    parts = urlsplit(_endpoint("bedrock", endpoint))
    base = urlunsplit(parts._replace(netloc=parts.netloc.replace("bedrock-runtime", "bedrock", 1)))
    return _with_path(base, "/foundation-models"), _with_path(base, "/inference-profiles")


def vertex_endpoint(location: str) -> str:
    return f"https://{_GOOGLE_HOSTS.get(location, f'{location}-aiplatform')}.googleapis.com"


def vertex_urls(endpoint: str, *, project: str, location: str, model: str) -> tuple[str, str]:
    """The URL that answers, and the one that lists the publisher's models. `model` is publisher/name."""
    base = _endpoint("vertex", endpoint)
    publisher, _, name = model.partition("/")
    place = f"/v1/projects/{quote(project, safe=':')}/locations/{quote(location, safe='')}"
    if publisher == "anthropic":
        answers = f"{place}/publishers/anthropic/models/{quote(name, safe='@')}:streamRawPredict"
    else:
        answers = f"{place}/endpoints/openapi{_CHAT}"
    return _with_path(base, answers), _with_path(base, f"/v1beta1/publishers/{quote(publisher, safe='')}/models")


def is_claude(provider: str, model: str) -> bool:
    """Whether a model is Anthropic's: by its name at providers that offer several publishers' models."""
    if provider == "bedrock":
        return _CLAUDE_ON_BEDROCK.search(model) is not None
    return provider == "anthropic" or (provider == "vertex" and model.startswith("anthropic/"))


def is_gemini(provider: str, model: str) -> bool:
    """Whether a model is Google's, at one of Google's own endpoints."""
    return provider == "gemini" or (provider == "vertex" and model.startswith("google/"))


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
        raise ConfigError(f"model.endpoint must be a URL that begins with http:// or https://, not {url!r}.")
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

"""Builds a Model from the `model:` block: the client of the endpoint, and its wrappers.

Nothing is connected here. Clients are imported when a file asks for them, because each brings libraries that other
agents do not need (HTTP and TLS; Bedrock and Vertex AI need an extra).
"""
# ruff: noqa: PLC0415  imports inside functions are this module's purpose, see above

from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import SecretStr

from holodeck.config.environment import Keys
from holodeck.config.load import LoadedConfig
from holodeck.config.model_schema import ModelChoice
from holodeck.errors import InvalidRequest
from holodeck.models.port import ContextWindow, Model
from holodeck.models.providers import PROVIDERS, bedrock_endpoint, is_claude, is_gemini, vertex_endpoint
from holodeck.resilience.breakers import Breakers, Dependency

if TYPE_CHECKING:
    from holodeck.models.endpoint_settings import EndpointSettings
    from holodeck.models.offered import OfferedModel
    from holodeck.models.streamed import RequestSigner, StreamedModel

MAX_CONNECT = 10.0
AUTH_TOKEN_VARIABLE = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105  its name, not its value
DEMO_SECONDS_PER_WORD = 0.02  # seconds: slow enough that a person sees the stream


def build_model(config: LoadedConfig, breakers: Breakers | None = None, *, debug: bool = False) -> Model:
    """Builds the model with its fallbacks, behind circuit breakers if `breakers` is given."""
    first = config.agent.model
    choices: list[tuple[Keys, ModelChoice]] = [(("model",), first)]
    choices += [(("model", "fallback", number), choice) for number, choice in enumerate(first.fallback)]
    models = [_priced(_model(config, keys, choice, debug=debug), choice) for keys, choice in choices]
    if breakers is not None:
        models = [
            _guarded_model(config, breakers, model, choice) for model, (_, choice) in zip(models, choices, strict=True)
        ]
    if len(models) == 1:
        return models[0]
    from holodeck.models.wrappers import FallbackModel

    return FallbackModel(models)


def _model(config: LoadedConfig, keys: Keys, choice: ModelChoice, *, debug: bool = False) -> Model:
    if choice.provider == "demo":
        from holodeck.models.demo.model import DemoModel

        return DemoModel(delay=DEMO_SECONDS_PER_WORD)
    settings = _endpoint_settings(config, keys, choice, debug=debug)
    own = _own_client(config, keys, choice, settings)
    return _openai(settings) if own is None else own


def shown_tokens(config: LoadedConfig) -> int | None:
    """Returns how many tokens of a conversation the model is shown: the file's value, else what fits its window."""
    from holodeck.models.context_windows import known_window, room_for_history

    model, limit = config.agent.model, config.agent.sessions.history.max_tokens
    window = model.context_window or known_window(model.name)
    return limit if limit is not None or window is None else room_for_history(window, model.max_tokens)


def reported_window(config: LoadedConfig) -> "ContextWindow | None":
    """Returns a lookup of the model's window at the endpoint, if neither the file nor a table knows it."""
    choice = config.agent.model
    if choice.provider == "demo" or shown_tokens(config) is not None:
        return None
    from holodeck.models.context_windows import ReportedWindow

    return ReportedWindow(choice.name, partial(offered_models, config), choice.max_tokens)


async def offered_models(config: LoadedConfig) -> "tuple[OfferedModel, ...]":
    """Lists the models at the endpoint of the file's first model. Raises ConfigError, ModelError."""
    choice = config.agent.model
    if choice.provider == "demo":
        raise InvalidRequest(
            "The demo model has no endpoint that could list others. Name a provider in agent.yaml to see its models."
        )
    from holodeck.models.chat_completions_model import OpenAIChatModel

    settings = _endpoint_settings(config, ("model",), choice)
    client = _own_client(config, ("model",), choice, settings) or OpenAIChatModel(settings)
    try:
        return await client.offered()
    finally:
        await client.close()


def _own_client(
    config: LoadedConfig, keys: Keys, choice: ModelChoice, settings: "EndpointSettings"
) -> "StreamedModel | None":
    """Makes the client of a provider with its own API or credentials. None: it speaks OpenAI's APIs with a key."""
    match choice.provider:
        case "anthropic":
            from holodeck.models.anthropic.messages_model import AnthropicModel

            return AnthropicModel(settings)
        case "bedrock":
            return build_bedrock(config, keys, choice, settings)
        case "vertex":
            return build_vertex(config, keys, choice, settings)
        case _:
            return None


def _openai(settings: "EndpointSettings") -> Model:
    """Makes an OpenAI-compatible client for the API in the file. `auto` chooses the API that suits the model."""
    from holodeck.models.chat_completions_model import OpenAIChatModel

    if settings.api == "chat" or not PROVIDERS[settings.provider].has_responses:
        return OpenAIChatModel(settings)
    from holodeck.models.openai_responses.responses_model import ChosenApiModel, ResponsesModel, is_openai_reasoning

    reasons = is_openai_reasoning(settings)
    responses = ResponsesModel(settings, summary=reasons)
    if settings.api == "responses" or settings.provider_tools:
        return responses
    by_api = ("responses", responses), ("chat", OpenAIChatModel(settings))
    return ChosenApiModel(*by_api) if reasons else ChosenApiModel(*reversed(by_api))


def _endpoint_settings(
    config: LoadedConfig, keys: Keys, choice: ModelChoice, *, debug: bool = False
) -> "EndpointSettings":
    """Completes the file's options by what the environment and the provider add, and by time limits."""
    from holodeck.models.endpoint_settings import Deadlines, EndpointSettings, ModelOptions

    auth_token = _auth_token(config, choice)
    found = {
        "endpoint": _endpoint(choice),
        "api_key": None if auth_token else _api_key(config, keys, choice),
        "auth_token": auth_token,
        "temperature": _temperature(choice),
    }
    return EndpointSettings.model_construct(  # the file's values were checked, those of the environment are not bounded
        **{name: getattr(choice, name) for name in ModelOptions.model_fields} | found,
        key_advice="the variable that model.api_key names" if _is_empty(choice.api_key) else None,
        deadlines=Deadlines(
            connect=min(MAX_CONNECT, choice.idle_seconds),
            first_token=min(choice.idle_seconds, _share_of_step(config, keys)),
            idle=choice.idle_seconds,
        ),
        debug=debug,
    )


def native_files(choice: ModelChoice) -> frozenset[str]:
    """Returns the kinds of files that the model reads itself. The server reads all others."""
    if choice.native_files == "auto":
        family = "anthropic" if is_claude(choice.provider, choice.name) else choice.provider
        family = "gemini" if is_gemini(choice.provider, choice.name) else family
        return PROVIDERS[family].native_files if family in PROVIDERS else frozenset()
    return frozenset(choice.native_files)


def _priced(model: Model, choice: ModelChoice) -> Model:
    if choice.price is None:
        return model
    from holodeck.models.wrappers import PricedModel

    return PricedModel(model, choice.price)


def _share_of_step(config: LoadedConfig, keys: Keys) -> float:
    """Seconds for the first token. A model with fallbacks leaves time for them, even if it is tried twice."""
    step = config.agent.loop_in_time.iteration_timeout
    models = 1 + len(config.agent.model.fallback)
    is_last = keys == ("model", "fallback", models - 2) or models == 1
    return step if is_last else 0.4 * step / (models - 1)


def _guarded_model(config: LoadedConfig, breakers: Breakers, model: Model, choice: ModelChoice) -> Model:
    """Wraps the model in a breaker, one for each model of an endpoint: equal entries of the file share it."""
    from holodeck.models.wrappers import GuardedModel

    url = urlsplit(choice.endpoint or "")
    where = url.netloc + url.path.rstrip("/")  # without the query, which may contain a key
    service = f"{model.name} at {where}" if where else model.name
    return GuardedModel(model, breakers.of(Dependency.MODEL, service, config.agent.circuit_breakers.model))


def _endpoint(choice: ModelChoice) -> str | None:
    """Expands two short forms of upstream HoloDeck files: Azure's dated API, and Ollama without /v1."""
    base = (choice.endpoint or "").rstrip("/")
    if choice.provider == "azure_openai" and choice.api_version:
        return f"{base}/openai/deployments/{choice.name}?api-version={choice.api_version}"
    if choice.provider == "ollama" and base and not urlsplit(base).path:
        return f"{base}/v1"
    return choice.endpoint


def _temperature(choice: ModelChoice) -> float | None:
    """Returns the temperature only if the file sets it: Anthropic's newest models accept none."""
    is_left_out = PROVIDERS[choice.provider].needs_no_temperature and "temperature" not in choice.model_fields_set
    return None if is_left_out else choice.temperature


def _auth_token(config: LoadedConfig, choice: ModelChoice) -> SecretStr | None:
    """Returns a bearer token to use instead of a key: the file's, or the environment's if there is no key."""
    if choice.provider != "anthropic" or choice.api_key is not None:
        return None
    if choice.auth_token is not None:
        return choice.auth_token or None
    has_key = config.environment.get("ANTHROPIC_API_KEY")
    token = None if has_key else config.environment.get(AUTH_TOKEN_VARIABLE)
    return SecretStr(token) if token else None


def _is_empty(key: SecretStr | None) -> bool:
    """Returns whether the file names a variable that is not set: `api_key: ${GATEWAY_KEY:-}`."""
    return key is not None and not key


def _api_key(config: LoadedConfig, keys: Keys, choice: ModelChoice) -> SecretStr | None:
    """Returns the file's key or, if the file names none, the value of the provider's usual variable.

    An empty key in the file means no key: the usual variable's value would go to the wrong endpoint.
    """
    provider = PROVIDERS[choice.provider]
    usual = SecretStr(config.environment.get(provider.key_variable) or "")
    key = usual if choice.api_key is None else choice.api_key
    is_gateway = choice.provider == "anthropic" and choice.endpoint is not None  # a local gateway may need no key
    if not key and provider.needs_key and not is_gateway:
        beside = "beside the file" if config.document.file else "of this folder"
        text = f"set {provider.key_variable} in the environment or in .env {beside}"
        if _is_empty(choice.api_key):
            text = f"is empty; set the variable that it names, or leave it out and set {provider.key_variable}"
        demo = "provider: demo" if config.document.file else 'the model "demo"'
        raise config.error((*keys, "api_key"), f"{text} (or use {demo}, which needs none)")
    return key or None


_AWS_ENDPOINTS = ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_PROJECTS = ("GOOGLE_CLOUD_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID", "GCLOUD_PROJECT")
_GOOGLE_ADVICE = "GOOGLE_APPLICATION_CREDENTIALS, and that the account may use Vertex AI in model.project"
_LOCATIONS = ("GOOGLE_CLOUD_LOCATION", "CLOUD_ML_REGION")


def build_bedrock(
    config: LoadedConfig, keys: Keys, choice: ModelChoice, settings: "EndpointSettings"
) -> "StreamedModel":
    """Makes a client with AWS credentials, or with Bedrock's bearer token if there is one. Raises ConfigError."""
    try:
        from holodeck.models.bedrock import aws_credentials
        from holodeck.models.bedrock.converse_model import ConverseModel
    except ImportError as error:
        raise _missing(config, keys, "bedrock", "botocore") from error
    profile = choice.profile or config.environment.get("AWS_PROFILE") or None
    region = choice.region or _first(config, _REGIONS) or aws_credentials.region_of(profile)
    if not region:
        raise config.error((*keys, "region"), "is required: set it, or AWS_REGION, e.g. us-east-1")
    endpoint = settings.endpoint or _first(config, _AWS_ENDPOINTS) or bedrock_endpoint(region)
    settings = settings.model_copy(update={"endpoint": endpoint, "key_advice": aws_credentials.ADVICE})
    if settings.api_key:
        return ConverseModel(settings)
    signer = aws_credentials.AwsSigner(
        region, profile=choice.profile, variables=config.environment, signed=settings.plain_headers
    )
    return ConverseModel(settings, signer=signer)


def build_vertex(
    config: LoadedConfig, keys: Keys, choice: ModelChoice, settings: "EndpointSettings"
) -> "StreamedModel":
    """Makes a client with tokens from Google's credential files, unless the file has one. Raises ConfigError."""
    from holodeck.models.vertex.vertex_models import vertex_model

    project = choice.project or _first(config, _PROJECTS)
    if not project:
        raise config.error((*keys, "project"), "is required: set it, or GOOGLE_CLOUD_PROJECT, to your project's id")
    location = choice.location or _first(config, _LOCATIONS) or "global"
    endpoint = settings.endpoint or vertex_endpoint(location)
    changes = {"api_key": choice.api_key, "endpoint": endpoint, "key_advice": _GOOGLE_ADVICE}
    settings = settings.model_copy(update=changes)
    signer = None if choice.api_key else _google_tokens(config, keys)
    return vertex_model(settings, signer, project=project, location=location)


def _google_tokens(config: LoadedConfig, keys: Keys) -> "RequestSigner":
    try:
        from holodeck.models.vertex.google_tokens import GoogleTokens
    except ImportError as error:
        raise _missing(config, keys, "vertex", "google-auth") from error
    return GoogleTokens(config.environment.get("GOOGLE_APPLICATION_CREDENTIALS") or None)


def _first(config: LoadedConfig, names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := config.environment.get(name))), None)


def _missing(config: LoadedConfig, keys: Keys, extra: str, package: str) -> Exception:
    return config.error(
        (*keys, "provider"),
        f"{extra} needs the package {package}: pip install 'holodeck-agents[{extra}]'",
    )

"""The `model:` block of agent.yaml: which model answers, its parameters, and its price.

The checks here need no request: they find options that a provider lacks, and values that exclude each other. Each
problem is reported at the wrong key, with what to write instead.
"""

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from holodeck.blocks import Identifier, ShortText
from holodeck.models.endpoint_settings import SMALLEST_BUDGET, ModelOptions, Reasoning
from holodeck.models.price import Price
from holodeck.models.providers import PROVIDERS, is_claude, is_gemini

TIMEOUT, LOCAL_TIMEOUT = 30.0, 300.0
_OWN_KEYS = sorted({key for provider in PROVIDERS.values() for key in provider.own_keys})
_LACKED = sorted({key for provider in PROVIDERS.values() for key in provider.lacks})


class ModelChoice(ModelOptions):
    """One model behind one endpoint."""

    region: Identifier | None = Field(
        None, description="bedrock only: the AWS region; default: AWS_REGION, or the profile's"
    )
    profile: Identifier | None = Field(None, description="bedrock only: a profile of ~/.aws; default: AWS_PROFILE")
    project: Identifier | None = Field(None, description="vertex only: the project's id; default: GOOGLE_CLOUD_PROJECT")
    location: Identifier | None = Field(
        None, description="vertex only: where the model runs; default: GOOGLE_CLOUD_LOCATION, else global"
    )
    api_version: ShortText | None = Field(None, description="Azure only: the dated API, e.g. 2024-10-21")
    timeout: float | None = Field(
        None,
        gt=0,
        le=3600,
        description="Seconds without new data before the call times out; default: 30, for local models 300",
    )
    native_files: Annotated[list[Literal["pdf", "audio"]], Field(max_length=2)] | Literal["auto"] = Field(
        "auto",
        description="Files that the model reads itself, up to 2 MB; the server reads the text of all others. "
        "auto: pdf for anthropic, bedrock and openai, audio for gemini",
    )
    context_window: int | None = Field(
        None,
        ge=1_000,
        le=100_000_000,
        description="Tokens that the model can read and write; default: known for OpenAI's, Anthropic's and Google's models, else what the endpoint reports",
    )
    price: Price | None = Field(None, description="For the cost in the chat's status line; unset: no cost is shown")

    @property
    def is_local(self) -> bool:
        """Whether the model runs on this machine, where reading a long prompt may take minutes."""
        host = urlsplit(self.endpoint or "").hostname or ""
        return self.provider == "ollama" or host in ("localhost", "::1") or host.startswith("127.")

    @property
    def idle_seconds(self) -> float:
        return self.timeout or (LOCAL_TIMEOUT if self.is_local else TIMEOUT)

    @field_validator("api")
    @classmethod
    def _api_fits(cls, api: str, info: ValidationInfo) -> str:
        provider = info.data.get("provider")
        row = PROVIDERS.get(str(provider))
        if api != "auto" and provider is not None and (row is None or api not in row.apis):
            raise ValueError(f"provider {provider} has no api: {api}; leave it out")
        return api

    @field_validator("provider_tools")
    @classmethod
    def _can_be_sent(cls, tools: list[dict[str, Any]], info: ValidationInfo) -> list[dict[str, Any]]:
        provider, api = info.data.get("provider"), info.data.get("api")
        has_none = provider == "vertex" and not is_claude("vertex", info.data.get("name", ""))
        is_openais = api == "chat" and provider != "openai_compatible"  # some gateways have their own tools
        if tools and (is_openais or provider in ("gemini", "ollama", "demo") or has_none):
            raise ValueError("chat completions have no such tools; set api: responses, or leave them out")
        return tools

    @field_validator(*_OWN_KEYS)
    @classmethod
    def _is_of_provider(cls, value: object, info: ValidationInfo) -> object:
        provider = info.data.get("provider")
        having = [each.name for each in PROVIDERS.values() if info.field_name in each.own_keys]
        if value and provider is not None and provider not in having:
            only = f"only {having[0]} has" if len(having) == 1 else f"only {', '.join(having)} have"
            raise ValueError(f"provider {provider} has no {info.field_name}; {only}. Leave it out")
        if value is not None and info.field_name == "auth_token" and info.data.get("api_key"):
            raise ValueError("set api_key or auth_token, not both")
        return value

    @field_validator(*_LACKED)
    @classmethod
    def _has_member(cls, value: object, info: ValidationInfo) -> object:
        row = PROVIDERS.get(str(provider := info.data.get("provider")))
        if value is not None and row is not None and info.field_name in row.lacks:
            raise ValueError(f"provider {provider} has no {info.field_name}. Leave it out")
        return value

    @field_validator("temperature")
    @classmethod
    def _fits_provider(cls, temperature: float | None, info: ValidationInfo) -> float | None:
        provider, name = info.data.get("provider"), info.data.get("name", "")
        row = PROVIDERS.get("anthropic" if is_claude(str(provider), name) else str(provider))
        if row is not None and temperature is not None and temperature > row.max_temperature:
            raise ValueError(f"provider {provider} takes a temperature from 0 to {row.max_temperature:g}")
        return temperature

    @field_validator("extra")
    @classmethod
    def _leaves_streaming_alone(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if owned := sorted(extra.keys() & {"messages", "input", "stream", "model", "tools", "toolConfig", "system"}):
            raise ValueError(f"must not hold {', '.join(owned)}: the runtime writes it. Leave it out")
        return extra

    @field_validator("reasoning")
    @classmethod
    def _reasoning_fits(cls, reasoning: Reasoning | None, info: ValidationInfo) -> Reasoning | None:
        if reasoning is not None and (problem := _problem_of(reasoning, info.data)):
            raise ValueError(problem)
        return reasoning

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.name and self.provider != "demo":
            raise ValueError(f"name is required: which model of {self.provider}?")
        if self.provider == "vertex" and "/" not in self.name:
            raise ValueError(
                f"name must begin with the model's publisher: google/{self.name}, or anthropic/{self.name}"
            )
        if self.endpoint is None and self.provider in ("openai_compatible", "azure_openai"):
            raise ValueError(f"endpoint is required with provider: {self.provider}")
        return self


def _problem_of(reasoning: Reasoning, others: dict[str, Any]) -> str | None:
    """Returns which values exclude each other, and what to write instead."""
    budget = reasoning.budget_tokens
    if budget is not None and (problem := _problem_of_budget(budget, reasoning, others)):
        return problem
    thinks = budget is not None or reasoning.effort not in (None, "none")
    provider = others.get("provider")
    if not thinks or not is_claude(str(provider), others.get("name", "")):
        return None
    if others.get("temperature") not in (None, 1.0):
        return f"provider {provider} takes no temperature together with reasoning; leave one out"
    if others.get("tool_choice") not in (None, "auto", "none"):
        return f"provider {provider} cannot be forced to use a tool while it thinks; set tool_choice: auto"
    return None


def _problem_of_budget(budget: int, reasoning: Reasoning, others: dict[str, Any]) -> str | None:
    provider, most, name = others.get("provider"), others.get("max_tokens"), others.get("name", "")
    claude = is_claude(str(provider), name)
    if most is not None and budget >= most:
        return f"budget_tokens ({budget}) must be less than max_tokens ({most}); raise max_tokens or lower it"
    row = PROVIDERS.get(str(provider))
    if row is not None and not row.takes_budget:
        return f"provider {provider} takes no budget_tokens; set effort instead"
    if provider == "bedrock" and not claude:
        return (
            "on bedrock, only Anthropic's models take budget_tokens; set effort, or extra.additionalModelRequestFields"
        )
    if claude and budget < SMALLEST_BUDGET:
        return f"budget_tokens must be at least {SMALLEST_BUDGET} with provider {provider}"
    if is_gemini(str(provider), name) and reasoning.effort is not None:
        return f"provider {provider} takes effort or budget_tokens, not both; leave one out"
    return None


class ModelSettings(ModelChoice):
    """The agent's model, and the models to try when it is not available."""

    fallback: list[ModelChoice] = Field(
        default=[], max_length=5, description="Tried in order when a call fails before its first token"
    )

"""Builds models of Amazon Bedrock and Google Vertex AI: they need an extra, a region or location, and credentials.

Nothing is connected here, and no credential is read except from the environment.
"""
# ruff: noqa: PLC0415  both libraries are large, and only agents that name the provider need them

from typing import TYPE_CHECKING

import msgspec

from holodeck.config.environment import Keys
from holodeck.config.load import LoadedConfig
from holodeck.config.model_schema import ModelChoice
from holodeck.models.providers import bedrock_endpoint, vertex_endpoint

if TYPE_CHECKING:
    from holodeck.models.request_signing import RequestSigner
    from holodeck.models.settings import EndpointSettings
    from holodeck.models.streamed import StreamedModel

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
    settings = msgspec.structs.replace(
        settings,
        endpoint=settings.endpoint or _first(config, _AWS_ENDPOINTS) or bedrock_endpoint(region),
        key_advice=aws_credentials.ADVICE,
    )
    if settings.api_key:
        return ConverseModel(settings)
    signer = aws_credentials.AwsSigner(
        region, profile=choice.profile, variables=config.environment, signed=settings.headers
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
    token = choice.api_key.get_secret_value() if choice.api_key else None
    settings = msgspec.structs.replace(
        settings, api_key=token, endpoint=settings.endpoint or vertex_endpoint(location), key_advice=_GOOGLE_ADVICE
    )
    signer = None if token else _google_tokens(config, keys)
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

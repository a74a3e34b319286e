"""Values that must never be logged: keys of models, values passed to tool servers, variables with secret-like names."""

import re
from collections.abc import Iterator

from holodeck.config.load import LoadedConfig
from holodeck.config.tool_schema import McpToolSettings

_SOUNDS_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def secrets_of(config: LoadedConfig) -> set[str]:
    return {value.strip() for value in _values(config) if value.strip()}


def _values(config: LoadedConfig) -> Iterator[str]:
    for name, value in config.environment.items():
        if _SOUNDS_SECRET.search(name):
            yield value
    for choice in (config.agent.model, *config.agent.model.fallback):
        found = (choice.api_key, choice.auth_token, *choice.headers.values())
        for secret in (each.get_secret_value() for each in found if each is not None):
            yield from (secret, secret.removeprefix("Bearer "))  # a quoted token may lack this prefix
    auth = config.agent.server.auth
    secrets = [issuer.keys.secret for issuer in auth.issuers] + [auth.proxy.secret if auth.proxy else None]
    secrets += [config.agent.server.limits.store, config.agent.sessions.url, config.agent.cluster.valkey]
    yield from (secret.get_secret_value() for secret in secrets if secret is not None)
    for tool in config.agent.tools:
        if isinstance(tool, McpToolSettings):
            for header in tool.headers.values():
                yield from (header, header.rpartition(" ")[2])  # without `Bearer`, as above
            yield from (value for name, value in tool.env.items() if _SOUNDS_SECRET.search(name))

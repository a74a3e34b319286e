"""`server.limits` of an agent's file → limits and the store that they are counted in."""

import logging
from urllib.parse import urlsplit

from holodeck.config.load import LoadedConfig
from holodeck.config.schema import AddressLimitSettings, KeyLimitSettings
from holodeck.core.usage import Price
from holodeck.errors import StartError
from holodeck.limits.leases import LeaseStore, ValkeyLeases
from holodeck.limits.valkey import ValkeyWindows
from holodeck.limits.window import WindowStore
from holodeck.server.options import SubjectLimits, UseLimits

log = logging.getLogger(__name__)

_SECURE = ("rediss://", "valkeys://", "unix://")
DEFAULT_MAX_TOKENS = 4000  # reserved for a step where the agent's file leaves it to the model
_PLACE = ("server", "limits")


def use_limits(config: LoadedConfig, *, keys: bool) -> UseLimits:
    """`keys`: whether there are API keys, which may have limits of their own. StartError for money without a price."""
    file = config.agent.server.limits
    given = config.agent.model.price
    price = None if given is None else Price(**given.model_dump())
    user = _limits(file.user)
    found = UseLimits(
        address=_limits(file.address),
        key=_limits(file.key),
        user=SubjectLimits(
            requests_per_minute=user.requests_per_minute or file.requests_per_minute,
            tokens_per_day=user.tokens_per_day or file.tokens_per_day,
            money_per_day=user.money_per_day,
            runs=user.runs,
        ),
        tenant=_limits(file.tenant),
        overrides={name: _limits(each) for name, each in file.overrides.items()},
        price=price,
        max_tokens=config.agent.model.max_tokens or DEFAULT_MAX_TOKENS,
        key_limits=keys,
        streams_per_client=file.streams_per_client,
        connections_per_client=file.connections_per_client,
        message_characters=file.message_characters,
    )
    subjects = (found.key, found.user, found.tenant, *found.overrides.values())
    if price is None and any(each.money_per_day for each in subjects):
        raise StartError(str(config.error(_PLACE, "money_per_day needs to know what tokens cost; add model.price")))
    return found


def open_store(config: LoadedConfig) -> tuple[WindowStore | None, LeaseStore | None]:
    """The store that replicas share; None for both if each process counts for itself."""
    file = config.agent.server.limits
    if file.store is None:
        return None, None
    url = file.store.get_secret_value()
    try:
        windows = ValkeyWindows(url, file.when_store_is_down)
    except ModuleNotFoundError as error:
        raise StartError("limits.store needs the package redis: pip install 'holodeck-agents[valkey]'") from error
    except ValueError as error:
        text = "this is no address of a Valkey or Redis; write e.g. valkeys://user:password@host:6379/0"
        raise StartError(str(config.error((*_PLACE, "store"), text))) from error
    if not url.startswith(_SECURE) and not _on_loopback(url):
        log.warning(
            "limits.store is asked without TLS: others on the network can read and change the counts; use rediss://"
        )
    return windows, ValkeyLeases(windows)


def _on_loopback(url: str) -> bool:
    try:
        return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        return False


def _limits(settings: KeyLimitSettings | AddressLimitSettings) -> SubjectLimits:
    known = settings.model_dump()
    return SubjectLimits(**{name: known[name] for name in SubjectLimits.__struct_fields__ if name in known})

"""Builds the settings that an agent file's limits are counted with, and the store that counts them."""

import logging
from urllib.parse import urlsplit

from holodeck.config.build_stores import redis_url
from holodeck.config.load import LoadedConfig
from holodeck.errors import StartError
from holodeck.limits.leases import LeaseStore, ValkeyLeases
from holodeck.limits.valkey import ValkeyWindows
from holodeck.limits.window import WindowStore
from holodeck.server.guard import LOOPBACK
from holodeck.server.options import DEFAULT_MAX_TOKENS, SpendingSettings

log = logging.getLogger(__name__)

_SECURE = ("rediss://", "valkeys://", "unix://")
_PLACE = ("server", "limits")


def spending_of(config: LoadedConfig, *, has_keys: bool) -> SpendingSettings:
    """Returns how money and tokens are counted. Raises StartError for a money limit without a price."""
    price = config.agent.model.price
    if price is None and config.agent.server.limits.counts_money:
        raise StartError(str(config.error(_PLACE, "money_per_day needs to know what tokens cost; add model.price")))
    return SpendingSettings(
        price=price,
        max_tokens=config.agent.model.max_tokens or DEFAULT_MAX_TOKENS,
        has_keys=has_keys,
    )


def open_store(config: LoadedConfig) -> tuple[WindowStore | None, LeaseStore | None]:
    """Returns the store that replicas share, or None twice if each process counts for itself."""
    file = config.agent.server.limits
    if file.store is None:
        return None, None
    url = file.store.get_secret_value()
    try:
        windows = ValkeyWindows(redis_url(url), file.when_store_is_down)
    except ModuleNotFoundError as error:
        raise StartError("limits.store needs the package redis: pip install 'holodeck-agents[valkey]'") from error
    except ValueError as error:
        text = "this is not the address of a Valkey or Redis; write e.g. valkeys://user:password@host:6379/0"
        raise StartError(str(config.error((*_PLACE, "store"), text))) from error
    if not url.startswith(_SECURE) and urlsplit(url).hostname not in LOOPBACK:
        log.warning(
            "limits.store is used without TLS: others on the network can read and change the counts; use rediss://"
        )
    return windows, ValkeyLeases(windows)

"""Identity from headers of a trusted proxy, which has signed the user in.

The proxy is identified by its socket address and a shared secret. It must set these headers, not add to them: a header
that occurs twice is refused.
"""

import hmac
import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from holodeck.access.failure import BAD_PROXY, Failure
from holodeck.access.principal import ACT_AS, SCOPES, Defaults, Principal, RequestHead, is_user_name
from holodeck.core.owner import is_owner_name

SECRET_HEADER = b"x-holodeck-proxy"
USER_HEADER = "X-Auth-Request-User"  # unless the agent file names another
_MAX_FORWARDED = 8192

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    networks: tuple[Network, ...] = ()
    unix: bool = False
    secret: str | None = None
    user_header: bytes = USER_HEADER.lower().encode()
    tenant_header: bytes | None = None
    scopes_header: bytes | None = None
    address_header: bytes | None = None


class TrustedProxy:
    def __init__(self, settings: ProxySettings, defaults: Defaults) -> None:
        self._settings, self._defaults = settings, defaults
        named = (settings.user_header, settings.tenant_header, settings.scopes_header, SECRET_HEADER)
        self.headers = frozenset(name for name in named if name is not None)

    def check(self, head: RequestHead) -> Principal | Failure:
        settings = self._settings
        if not self.trusts(head.address) or not self._knows_secret(head):
            return _refused()
        user = _single(head.values(settings.user_header))
        if user is None or not is_user_name(user):
            return _refused()
        tenant: str | None = self._defaults.tenant
        if settings.tenant_header is not None:
            tenant = _single(head.values(settings.tenant_header))
        scopes = self._scopes(head)
        if tenant is None or scopes is None or not is_owner_name(tenant):
            return _refused()
        return Principal(tenant=tenant, user=user, scopes=scopes, via="proxy", credential_id="proxy")

    def trusts(self, address: str | None) -> bool:
        if address is None:
            return self._settings.unix
        parsed = _parsed(address)
        return parsed is not None and _within(parsed, self._settings.networks)

    def client_address(self, head: RequestHead) -> str | None:
        """Returns the address of the client in front of the proxy: the last one in the header that is not a proxy's.

        The client sent the entries before it, and may write anything there.
        """
        header = self._settings.address_header
        if header is None or not self.trusts(head.address):
            return head.address
        listed = ",".join(head.values(header))[-_MAX_FORWARDED:].split(",")
        for entry in reversed(listed):
            parsed = _parsed(_without_port(entry.strip()))
            if parsed is None:
                return head.address
            if not _within(parsed, self._settings.networks):
                return str(parsed)
        return head.address

    def _knows_secret(self, head: RequestHead) -> bool:
        if self._settings.secret is None:
            return self._settings.unix and head.address is None
        given = head.values(SECRET_HEADER)
        wanted = self._settings.secret.encode()
        return len(given) == 1 and hmac.compare_digest(given[0].encode("latin-1"), wanted)

    def _scopes(self, head: RequestHead) -> frozenset[str] | None:
        if self._settings.scopes_header is None:
            return self._defaults.scopes
        listed = _single(head.values(self._settings.scopes_header))
        return None if listed is None else (frozenset(listed.replace(",", " ").split()) & SCOPES) - {ACT_AS}


def _single(values: Sequence[str]) -> str | None:
    """Returns the only value, in UTF-8 as proxies send it, or None if there are none or several."""
    if len(values) != 1:
        return None
    try:
        return values[0].encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return None


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


def _without_port(entry: str) -> str:
    """Removes the port: some proxies write `[2001:db8::1]:443` and `192.0.2.1:443`."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry


def _within(address: ipaddress.IPv4Address | ipaddress.IPv6Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _refused() -> Failure:
    return Failure(kind="invalid", reason="proxy", message=BAD_PROXY)

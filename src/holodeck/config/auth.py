"""Builds an Authenticator from `server.auth`, and refuses unsafe settings.

A refusal is one sentence that names the fix, and ends the start with exit code 2.
"""
# ruff: noqa: PLC0415  joserfc is an extra, imported in mode jwt only

import inspect
import ipaddress
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.access.attempts import Attempts
from holodeck.access.authenticator import Authenticator
from holodeck.access.hook import Hook
from holodeck.access.key_file import KeyFileError
from holodeck.access.key_ring import MIN_ENVIRONMENT_KEY, KeyRing
from holodeck.access.principal import ACT_AS, SCOPES, Defaults
from holodeck.access.private_file import NotPrivate
from holodeck.access.proxy import Network, ProxySettings, TrustedProxy
from holodeck.config.auth_schema import AuthSettings, HookSettings, JwtSettings, Mode, ProxyAuthSettings
from holodeck.config.environment import Keys
from holodeck.config.load import LoadedConfig
from holodeck.core.owner import is_owner_name
from holodeck.errors import ConfigError, StartError
from holodeck.tools.function_files import load_function

if TYPE_CHECKING:
    from holodeck.access.jwks import KeySource
    from holodeck.access.tokens import TrustedIssuer

API_KEY_VARIABLE = "HOLODECK_API_KEY"
MIN_PROXY_SECRET = 16
_PLACE: Keys = ("server", "auth")
_ENVIRONMENT_KEY = re.compile(r"[A-Za-z0-9_~+/=-]+")


def build_access(config: LoadedConfig) -> Authenticator:
    """Builds the authenticator. Raises StartError for every setting that would not be safe."""
    building = _Building(config)
    modes = building.modes()
    if modes == ("none",):
        return Authenticator()
    issuers = building.issuers() if "jwt" in modes else []
    tokens = None
    if issuers:
        from holodeck.access.tokens import Tokens

        tokens = Tokens(issuers, building.defaults)
    return Authenticator(
        keys=building.keys() if "api_key" in modes else None,
        tokens=tokens,
        sources=tuple(issuer.keys for issuer in issuers),
        proxy=building.proxy() if "proxy" in modes else None,
        hook=building.hook() if "hook" in modes else None,
        attempts=Attempts(config.agent.server.limits.address.failures_per_minute),
    )


class _Building:
    def __init__(self, config: LoadedConfig) -> None:
        self._config = config
        self._auth: AuthSettings = config.agent.server.auth
        self._environment_key = config.environment.get(API_KEY_VARIABLE) or None
        self._check_scopes(("scopes",), self._auth.scopes, grantable=SCOPES - {ACT_AS})
        if not is_owner_name(self._auth.tenant):
            raise self._refusal(("tenant",), "this is not a valid tenant name: use printable characters")
        self.defaults = Defaults(self._auth.tenant, frozenset(self._auth.scopes))

    def modes(self) -> tuple[Mode, ...]:
        modes = self._auth.modes or (("api_key",) if self._environment_key else ("none",))
        if "none" in modes and len(modes) > 1:
            raise self._refusal(("mode",), "none cannot be combined with other modes; remove it")
        if self._environment_key and "api_key" not in modes:
            raise self._refusal(("mode",), f"{API_KEY_VARIABLE} is set but api_key is not a mode; add it or unset it")
        for mode, block in (("jwt", self._auth.jwt), ("proxy", self._auth.proxy), ("hook", self._auth.hook)):
            if mode in modes and not block:
                raise self._refusal(("mode",), f"mode {mode} needs the block server.auth.{mode}")
            if block and mode not in modes:
                raise self._refusal((mode,), f"this block has no effect: add {mode} to server.auth.mode, or remove it")
        return modes

    def keys(self) -> KeyRing:
        key = self._environment_key
        if key is not None and (len(key) < MIN_ENVIRONMENT_KEY or not _ENVIRONMENT_KEY.fullmatch(key)):
            raise StartError(
                f"{API_KEY_VARIABLE} must have at least {MIN_ENVIRONMENT_KEY} letters and digits: openssl rand -hex 32"
            )
        settings = self._auth.api_key
        named = settings.file if settings is not None else None if key is not None else "keys.json"
        try:
            return KeyRing(
                path=None if named is None else self._config.folder / named,
                environment_key=key,
                defaults=self.defaults,
            )
        except KeyFileError as error:
            raise self._refusal(("api_key", "file"), str(error)) from error

    def issuers(self) -> "list[TrustedIssuer]":
        settings = self._auth.issuers
        try:
            import holodeck.access.tokens  # noqa: F401
        except ModuleNotFoundError as error:
            raise StartError("mode jwt needs the package joserfc: pip install 'holodeck-agents[jwt]'") from error
        if len(settings) > 1 and len({each.name for each in settings} - {None}) < len(settings):
            raise self._refusal(("jwt",), "with several issuers each needs its own name (name: corp)")
        if len({each.issuer for each in settings}) < len(settings):
            raise self._refusal(("jwt",), "two blocks have the same issuer; merge them")
        several = isinstance(self._auth.jwt, list)
        return [self._issuer(each, ("jwt", number) if several else ("jwt",)) for number, each in enumerate(settings)]

    def _issuer(self, settings: JwtSettings, place: Keys) -> "TrustedIssuer":
        from holodeck.access.jwk import FAMILIES, SHARED, one_family
        from holodeck.access.jwks import is_safe_url
        from holodeck.access.tokens import TrustedIssuer

        algorithms = frozenset(settings.algorithms)
        if "none" in {algorithm.lower() for algorithm in algorithms}:
            raise self._refusal((*place, "algorithms"), "none is not a signature; remove it")
        unknown = sorted(algorithms - frozenset().union(*FAMILIES))
        if unknown or not algorithms:
            known = ", ".join(sorted(frozenset().union(*FAMILIES)))
            raise self._refusal((*place, "algorithms"), f"{unknown or 'an empty list'} cannot be used; known: {known}")
        if not one_family(algorithms):
            raise self._refusal(
                (*place, "algorithms"), "algorithms of several families invite forgeries; keep one family"
            )
        if not settings.audiences:
            raise self._refusal(
                (*place, "audience"), "an audience is required: tokens for other services would be valid"
            )
        if settings.issuer.lower().startswith("http:") and not is_safe_url(settings.issuer):
            raise self._refusal(
                (*place, "issuer"), "issuer must begin with https://: clients are sent there to sign in"
            )
        if (settings.keys.secret is not None) != (algorithms <= SHARED):
            raise self._refusal((*place, "keys"), "HS* algorithms need keys.secret, all others need public keys")
        for words, scopes in (settings.grant or {}).items():
            self._check_scopes((*place, "grant", words), scopes, grantable=SCOPES)
        return TrustedIssuer(settings, self._key_source(settings, (*place, "keys")))

    def _key_source(self, settings: JwtSettings, place: Keys) -> "KeySource":
        from holodeck.access.jwk import BadKey, key_set_of_secret
        from holodeck.access.jwks import FileKeys, FixedKeys, RemoteKeys, is_safe_url

        keys, folder = settings.keys, self._config.folder
        ways = [way for way in ("url", "discover", "file", "pem", "secret") if getattr(keys, way)]
        if len(ways) != 1:
            raise self._refusal(place, "give the keys in exactly one way: url, discover, file, pem or secret")
        if keys.discover or keys.url is not None:
            for what, url in (("issuer", settings.issuer if keys.discover else None), ("keys.url", keys.url)):
                if url is not None and not is_safe_url(url):
                    raise self._refusal(
                        place, f"{what} must begin with https://: keys that come over http can be forged"
                    )
            try:
                return RemoteKeys(settings.issuer, keys.url, cache=self._cache(keys.url or settings.issuer))
            except NotPrivate as error:
                raise StartError(f"The cached keys of {settings.issuer} cannot be trusted: {error}.") from error
        try:
            if keys.secret is not None:
                return FixedKeys(key_set_of_secret(keys.secret.get_secret_value()))
            return FileKeys(folder / (keys.file or keys.pem or ""), pem=keys.pem is not None)
        except (BadKey, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise self._refusal((*place, ways[0]), f"the key cannot be used: {why}") from error

    def _cache(self, url: str) -> Path | None:
        """Returns the file that caches an issuer's keys, for a start while the issuer is down."""
        folder = cache_folder(self._config.environment)
        return None if folder is None else folder / f"jwks-{sha256(url.encode()).hexdigest()[:16]}.json"

    def proxy(self) -> TrustedProxy:
        settings: ProxyAuthSettings | None = self._auth.proxy
        if settings is None:  # `modes` refused it
            raise self._refusal(("proxy",), "mode proxy needs this block")
        networks = self._networks(each for each in settings.from_ if each != "unix")
        unix = "unix" in settings.from_
        secret = settings.secret.get_secret_value() if settings.secret is not None else None
        if secret is None and networks:
            raise self._refusal(("proxy",), "secret is needed unless `from` is unix only: openssl rand -hex 32")
        if secret is not None and len(secret) < MIN_PROXY_SECRET:
            raise self._refusal(("proxy", "secret"), f"the secret needs {MIN_PROXY_SECRET} characters or more")
        names = settings.headers
        made = ProxySettings(
            networks=networks,
            unix=unix,
            secret=secret,
            user_header=_header(names.user_id) or b"",
            tenant_header=_header(names.tenant),
            scopes_header=_header(names.scopes),
            address_header=_header(settings.client_address),
        )
        return TrustedProxy(made, self.defaults)

    def _networks(self, texts: Iterable[str]) -> tuple[Network, ...]:
        networks = tuple(self._network(text) for text in texts)
        four = [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
        six = [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
        joined: list[Network] = [*ipaddress.collapse_addresses(four), *ipaddress.collapse_addresses(six)]
        if any(each.prefixlen == 0 for each in joined):
            raise self._refusal(
                ("proxy", "from"), "together these are the whole internet; name the proxy's own address"
            )
        return networks

    def _network(self, text: str) -> Network:
        try:
            network = ipaddress.ip_network(text)
        except ValueError as error:
            raise self._refusal(("proxy", "from"), f"{text!r} is not a network; write e.g. 10.0.0.5/32") from error
        if network.prefixlen == 0:
            raise self._refusal(("proxy", "from"), f"{text} is the whole internet; name the proxy's own address")
        return network

    def hook(self) -> Hook:
        settings: HookSettings | None = self._auth.hook
        if settings is None:  # `modes` refused it
            raise self._refusal(("hook",), "mode hook needs this block")
        try:
            who = load_function(settings.file, settings.function, self._config.folder)
        except ConfigError as error:
            raise self._refusal(("hook", "file"), str(error)) from error
        if not inspect.iscoroutinefunction(who):
            raise self._refusal(("hook", "function"), "it must be an async function: async def who(headers, address)")
        return Hook(who)

    def _check_scopes(self, place: Keys, scopes: list[str], *, grantable: frozenset[str]) -> None:
        unknown = next((scope for scope in scopes if scope not in grantable), None)
        if unknown is not None:
            raise self._refusal(place, f"{unknown!r} cannot be granted here; known: {', '.join(sorted(grantable))}")

    def _refusal(self, place: Keys, text: str) -> StartError:
        return StartError(str(self._config.error((*_PLACE, *place), text)))


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    base = environment.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "holodeck"
    try:
        return Path.home() / ".cache" / "holodeck"
    except RuntimeError:  # a process without a home
        return None


def _header(name: str | None) -> bytes | None:
    return None if name is None else name.lower().encode()

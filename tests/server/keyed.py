"""A served agent whose clients need keys: real key files, one key for each kind of client."""

from contextlib import asynccontextmanager
from dataclasses import replace

from holodeck.access.attempts import Attempts
from holodeck.access.authenticator import Authenticator
from holodeck.access.key_file import change_key_file
from holodeck.access.key_ring import KeyRing
from holodeck.access.principal import OF_ONE_USER, Defaults
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.server.serving import served, server_block

DEFAULTS = Defaults("default", OF_ONE_USER)


class KeyHolders:
    """Makes keys and the headers that carry them."""

    def __init__(self, file):
        self.file = file

    def create(self, *scopes, **about):
        key, text = change_key_file(
            self.file, lambda keys: keys.add(**{"name": "test", "scopes": scopes or None, **about})
        )
        return key.id, {"Authorization": f"Bearer {text}"}

    def headers(self, *scopes, **about):
        return self.create(*scopes, **about)[1]

    def revoke(self, key_id):
        change_key_file(self.file, lambda keys: keys.revoke(key_id))

    def authenticator(self, attempts=None, **more):
        keys = KeyRing(path=self.file, environment_key=None, defaults=DEFAULTS)
        return Authenticator(keys=keys, attempts=Attempts(attempts), **more)


def settings(**block):
    hooks = server_block(push_to=["hooks.example.com"], **block)
    return ServerSettings(protocols=tuple(WIRES), remember_conversations=True, block=hooks)


@asynccontextmanager
async def keyed(
    tmp_path, *turns, holders=None, attempts=None, public=frozenset({"health"}), public_url=None, protocols=None, **more
):
    holders = holders or KeyHolders(tmp_path / "keys.json")
    if not holders.file.exists():
        holders.create()
    given = settings(public=public, public_url=public_url)
    given = given if protocols is None else replace(given, protocols=protocols)
    async with served(*turns, settings=given, access=holders.authenticator(attempts), **more) as s:
        yield s, holders

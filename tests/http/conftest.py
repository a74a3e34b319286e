"""Every test here runs on both event loops: uvloop, as the server does, and Python's own."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import uvloop

from holodeck.http import dial
from holodeck.http.client import Client
from tests.http.certificates import Authority


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client({}, 20.0)
    yield client
    await client.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Authority]:
    """The authority, trusted as a user would say it."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    dial._trust.cache_clear()
    yield authority
    dial._trust.cache_clear()

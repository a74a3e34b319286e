"""Every test here runs on both event loops: uvloop, as the server does, and Python's own."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvloop

from holodeck.http.client import Client


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client({}, 5.0)
    yield client
    await client.close()

"""One Chromium for all tests of this folder. Each test has a server of its own, and a browser that remembers no session."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from holodeck.telemetry import logs
from tests.playground.page_server import one_port
from tests.playground.webdriver import Browser, chromium


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
async def browser(one_browser: Browser) -> AsyncIterator[Browser]:
    # The page of the previous test stays open: a browser that goes to another site and back starts a new process.
    await one_browser.console()
    yield one_browser
    await one_browser.cdp(
        "Storage.clearDataForOrigin", origin=f"http://127.0.0.1:{one_port()}", storageTypes="local_storage"
    )


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    fd = os.open(os.devnull, os.O_WRONLY)
    output = logs.configure(fd=fd)
    yield
    output.close()
    os.close(fd)

"""What the server prints when it is ready: whether other machines can reach it."""

import socket

import pytest

from holodeck.server import banner as banner_module
from holodeck.server import listen
from holodeck.server.banner import banner
from holodeck.server.listen import only_on_loopback
from holodeck.server.wires import WIRES

ADDRESSES = {"mine.example": ["127.0.0.1", "::1"], "mixed.example": ["127.0.0.1", "192.168.1.5"]}


def shown(host):
    return banner(agent="a", model="m", host=host, port=8000, wires=[WIRES["ag-ui"]], tools=0, colours=False)


@pytest.mark.req("T09")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_needs_no_warning(host):
    assert only_on_loopback(host)
    assert "warning" not in shown(host)


@pytest.mark.req("T09")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5", "203.0.113.7", "2001:db8::1", "fe80::1%lo"])
def test_every_other_address_has_a_warning(host):
    assert "warning: listening" in shown(host)


@pytest.mark.req("T09")
@pytest.mark.parametrize(
    ("name", "private"), [("mine.example", True), ("mixed.example", False), ("gone.example", False)]
)
def test_a_name_is_loopback_only_if_all_its_addresses_are(monkeypatch, name, private):
    def resolve(host, *_, **__):
        if host not in ADDRESSES:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(0, 0, 0, "", (address, 0)) for address in ADDRESSES[host]]

    monkeypatch.setattr(listen.socket, "getaddrinfo", resolve)
    assert only_on_loopback(name) is private
    assert ("warning" in shown(name)) is not private


@pytest.mark.parametrize(("host", "is_shown"), [("0.0.0.0", True), ("::", True), ("127.0.0.1", False)])
def test_the_address_for_other_machines_is_there_where_they_can_connect(monkeypatch, host, is_shown):
    monkeypatch.setattr(banner_module, "network_address", lambda: "192.168.1.5")
    assert ("http://192.168.1.5:8000/" in shown(host)) is is_shown


def test_the_page_to_open_comes_first():
    assert shown("127.0.0.1").splitlines()[1].split() == ["playground", "http://127.0.0.1:8000/"]

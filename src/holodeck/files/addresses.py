"""Finds out whether an address is on the public internet, in any notation."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_UNICAST = IPv6Network("2000::/3")  # all of IPv6 that is assigned
_LAST_32_BITS = 0xFFFFFFFF


def is_public(text: str) -> bool:
    """Returns False for text that is not an address, for every special range, and for IPv6 that embeds such an IPv4."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast
    carried = list(_carried(address))
    if carried:
        return all(is_public(str(inner)) for inner in carried)
    return address.scope_id is None and address in _UNICAST and address.is_global


def _carried(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yields the IPv4 addresses that a gateway or the kernel would use for this one."""
    if address.ipv4_mapped:
        yield address.ipv4_mapped
    if address.sixtofour:
        yield address.sixtofour
    if address.teredo:
        yield from address.teredo
    if address in _NAT64 or address in _COMPATIBLE:
        yield IPv4Address(int(address) & _LAST_32_BITS)

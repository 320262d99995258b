"""Which addresses count as one client."""

from __future__ import annotations

import ipaddress


def network_of(host: str) -> str:
    """What counts as one address: of IPv6 a network of 64 bits, since whoever has one address there has all of them."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))

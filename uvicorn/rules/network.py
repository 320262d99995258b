"""Which addresses count as one client."""

from __future__ import annotations

import ipaddress


def network_of(host: str) -> str:
    """The address to count by: for IPv6 the /64, since one client usually has all addresses of it."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))

"""Which addresses a turn may reach: public ones, and what the operator allows; decided on the very one connected to.

A name is looked up here, each address it has is judged, and the connection is made to a judged address, not to the
name: what the name means a moment later does not matter.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Any

import trio

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

CONNECT_SECONDS = 5.0  # for one address
LOOKUP_SECONDS = 5.0

# Besides what `ipaddress` calls not global: places that clouds use to tell a machine its own secrets, and relays.
_NEVER = tuple(
    ipaddress.ip_network(network)
    for network in ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "2002::/16", "2001::/23")
)
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class NotAllowed(Exception):
    """An address that turns may not reach; the message says which and what would help."""


def is_public(address: Address) -> bool:
    """Whether the address belongs to the internet at large. One that carries another is judged by the one inside."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _GLOBAL_UNICAST:
            return False
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not any(address in network for network in _NEVER if network.version == address.version)
    )


class Allowed:
    """What may be reached: public addresses, and `extra` (host names, addresses, networks)."""

    def __init__(self, extra: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._networks: list[Network] = []
        for item in extra:
            try:
                self._networks.append(ipaddress.ip_network(item, strict=False))
            except ValueError:
                self._names.add(item.rstrip(".").lower())

    def address(self, host: str, address: Address) -> bool:
        """Whether `address`, found for `host`, may be connected to."""
        if host.rstrip(".").lower() in self._names or is_public(address):
            return True
        inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any(
            one in network
            for one in (address, inner)
            if one
            for network in self._networks
            if one.version == network.version
        )

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of `host` that may be connected to. Raises `NotAllowed`, or `OSError` for an unknown name."""
        with trio.fail_after(LOOKUP_SECONDS):
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # An IPv6 address may come with a zone; only a local one needs it, and a local one is not public.
        every = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
        chosen = [one for one in every if self.address(host, ipaddress.ip_address(one))]
        if not chosen:
            means = "" if every == [host] else f" means {', '.join(every[:3])}, and that"
            raise NotAllowed(
                f"{host}{means} is no public address; whoever runs this server can allow it with NIGHTBOOK_FETCH_ALLOW"
            )
        return chosen


def judged(network: Any, allowed: Allowed) -> Any:
    """A network backend for a connection pool of `network`, which is `httpcore` or a library of the same shape."""
    return _Judged(network, allowed)


class _Judged:
    """Connects to judged addresses only."""

    def __init__(self, network: Any, allowed: Allowed) -> None:
        self._network = network
        self._allowed = allowed
        self._trio = network.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Any:
        network = self._network
        try:
            addresses = await self._allowed.addresses(host, port)
        except trio.TooSlowError:
            raise network.ConnectTimeout(f"looking up {host} took longer than {LOOKUP_SECONDS:g} s") from None
        except OSError as error:
            raise network.ConnectError(f"{host}: {error.strerror or error}") from None
        for address in addresses[:-1][:3]:
            try:
                return await self._trio.connect_tcp(address, port, timeout=CONNECT_SECONDS)
            except (network.ConnectError, network.ConnectTimeout):
                continue
        return await self._trio.connect_tcp(addresses[-1], port, timeout=timeout)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> Any:
        raise NotAllowed("a Unix socket may not be reached from here")

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

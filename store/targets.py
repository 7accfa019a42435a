"""Where a webhook may lead: to public addresses, and to the networks that the operator allows.

A user names a URL and this service connects to it, from inside its own network. So the address is what
counts, never the spelling of the host: a literal one is judged when it is given, a name whenever it is
resolved, and the connection goes to the very address that was judged.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

Address = IPv4Address | IPv6Address
Networks = Sequence[IPv4Network | IPv6Network]

MOST_CHARACTERS = 2000
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = IPv6Network("::/96")
_PORTS = {"http": 80, "https": 443}
_LOCAL_NAMES = ("localhost", "local", "internal", "home.arpa")


class Refused(Exception):  # noqa: N818 - a state of affairs
    """This service does not connect there; the text says why in a clause."""


@dataclass(frozen=True)
class Target:
    """A URL in its parts. `path` is what follows the host, with the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and, where it is not the scheme's own, port, as a Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def read_target(url: str, allowed: Networks) -> Target:
    """The parts of a URL that a webhook may have, as far as can be told without asking for its addresses.

    Raises: Refused.
    """
    if len(url) > MOST_CHARACTERS or not url.isascii() or not url.isprintable() or " " in url:
        raise Refused(f"expected a URL of at most {MOST_CHARACTERS} visible ASCII characters")
    try:
        parts = urlsplit(url)
        target = _parts(parts)
    except (ValueError, UnicodeError) as error:
        raise Refused("expected a URL such as https://example.com/hook") from error
    literal = _literal(target.host)
    if literal is not None:
        if not may_reach(literal, allowed, plain=target.scheme == "http"):
            raise Refused(_why_not(target.scheme))
    elif target.scheme == "http" and not allowed:
        raise Refused("expected https: what a job is about would be sent in the clear")
    elif target.host.rpartition(".")[2] in _LOCAL_NAMES and not allowed:
        raise Refused("expected a public host name")
    return target


def _parts(parts: SplitResult) -> Target:
    if parts.scheme not in _PORTS:
        raise Refused("expected a URL that begins with https://")
    if "@" in parts.netloc:
        raise Refused("expected a URL without a user name or password: the signature proves who sends")
    if parts.fragment:
        raise Refused("expected a URL without a #fragment")
    host = (parts.hostname or "").rstrip(".")
    if "\\" in parts.netloc or "%" in host or not host:
        raise Refused("expected a URL with a host")
    port = parts.port
    if port == 0:
        raise Refused("expected a port from 1 to 65535")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or _PORTS[parts.scheme], path)


def _literal(host: str) -> Address | None:
    """The address that the host spells in any way that a resolver understands: 127.1 and 0x7f000001 too."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def resolve(target: Target, allowed: Networks) -> list[Address]:
    """The addresses of the target that may be connected to.

    Raises: Refused when there is none.
    """
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Refused(f"the host name {target.host} was not found") from error
    addresses = dict.fromkeys(ip_address(str(entry[4][0])) for entry in found)
    reachable = [
        address for address in addresses if may_reach(address, allowed, plain=target.scheme == "http")
    ]
    if not reachable:
        raise Refused(_why_not(target.scheme))
    return reachable


def _why_not(scheme: str) -> str:
    if scheme == "http":
        return "http is for the networks in REGATTA_WEBHOOK_ALLOWED_NETWORKS only; expected https"
    return "the host is no public address, and in none of REGATTA_WEBHOOK_ALLOWED_NETWORKS"


def may_reach(address: Address, allowed: Networks, *, plain: bool = False) -> bool:
    """Whether a webhook may lead to the address; `plain`: unencrypted, which only allowed networks may be."""
    meant = [_unwrapped(address), address]
    if any(one in network for one in meant for network in allowed):
        return True
    return not plain and all(_is_public(one) for one in meant)


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, where it does."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
    if inner is not None:
        return inner
    if any(address in network for network in (*_NAT64, _COMPATIBLE)):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return True  # as public as what is inside
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def masked(url: str) -> str:
    """The URL without the values of its query, which may be secret."""
    parts = urlsplit(url)
    query = "&".join(
        f"{pair.partition('=')[0]}=***" if "=" in pair else "***" for pair in parts.query.split("&")
    )
    return parts._replace(query=query if parts.query else "").geturl()

"""The address of this host that other hosts reach it by, and a port there that is kept free."""

import socket
from urllib.parse import urlsplit

from store.settings import Settings

_LOOPBACK = "127.0.0.1"


def own_address(settings: Settings) -> str:
    """The IPv4 address that other hosts reach this one by: as the settings say, else the one from which it
    speaks to the database or the broker, else loopback (then all "hosts" are on this machine).

    Raises: OSError when a name has no address.
    """
    if settings.host_address:
        return socket.gethostbyname(settings.host_address)
    for url in (settings.database_url, settings.broker_url):
        parts = urlsplit(url)
        if parts.hostname and not parts.scheme.startswith("sqlite"):
            return _address_towards(parts.hostname)
    return _LOOPBACK


def _address_towards(host: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # connecting it sends nothing
        probe.connect((socket.gethostbyname(host), 9))
        return probe.getsockname()[0]


def hold_port(settings: Settings) -> socket.socket:
    """A socket that holds a free port, one of `gang_ports` where these are set, until it is closed.

    Nobody listens on it: a server of this user that allows addresses to be used again may, others may not.

    Raises: OSError when none is free.
    """
    first, _, last = settings.gang_ports.partition(":")
    ports = range(int(first), int(last) + 1) if settings.gang_ports else [0]
    for port in ports:
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind(("", port))
        except OSError:
            holder.close()
            continue
        # set only now: whoever binds the port as this did is refused, whoever allows it, too, is not
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return holder
    raise OSError(f"none of the ports {settings.gang_ports or 'of this host'} (REGATTA_GANG_PORTS) is free")

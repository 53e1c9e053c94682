"""The settings that an endpoint is opened with, and addresses."""

import os
import socket
from typing import Any, Optional, Union

__all__ = ["Address", "Key", "Port", "resolve", "settings"]

#: Where an endpoint is: `"192.0.2.1:7471"`, `"[2001:db8::1]:7471"`, or host and port.
Address = Union[str, tuple[str, int]]
#: 32 bytes, or as 64 hexadecimal digits.
Key = Union[str, bytes]
#: IP address and port.
Port = tuple[str, int]

Path = Union[str, "os.PathLike[str]"]


def split(address: Address) -> Port:
    """Host and port of an address."""
    if not isinstance(address, str):
        host, port = address
        return host, _port(port, address)
    host, colon, port_text = address.rpartition(":")
    if not colon or not port_text.isdecimal():
        raise ValueError(f"{address!r}: give host and port, such as '192.0.2.1:7471'")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r}: give an IPv6 address in brackets, such as '[::1]:7471'")
    return host, _port(int(port_text), address)


def _port(port: int, address: Address) -> int:
    if not 0 <= port <= 65535:
        raise ValueError(f"{address!r}: a port is a number up to 65535")
    return port


def numeric(host: str) -> bool:
    """Whether a host is an IP address, and no name has to be resolved."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return True
        except OSError:
            pass
    return False


def family(own: Port) -> int:
    """The family that the peers of an endpoint have."""
    return socket.AF_INET6 if ":" in own[0] else socket.AF_INET


def resolve(address: Address, own: Port) -> Port:
    """The IP address and port of a peer of an endpoint that is at `own`."""
    host, port = split(address)
    if numeric(host):
        return host, port
    found = socket.getaddrinfo(host, port, family(own), socket.SOCK_DGRAM)
    return str(found[0][4][0]), port


def settings(
    *,
    bind: Address,
    encrypt: bool,
    job_key: Optional[Key],
    job_key_file: Optional[Path],
    private_key: Optional[Key],
    private_key_file: Optional[Path],
    accept_anyone: bool,
    paths: int,
    send_queue: int,
    receive_queue: int,
    packet_bytes_max: Optional[int],
    link_rate_bps: Optional[int],
    peer_timeout: float,
    answer_timeout: Optional[float],
    busy_poll: bool,
) -> dict[str, Any]:
    """The settings as the native endpoint takes them."""
    given = dict(locals())
    for name, most in (("paths", 256), ("send_queue", 1 << 20), ("receive_queue", 1 << 20)):
        if not 1 <= given[name] <= most:
            raise ValueError(f"{name} is {given[name]}: give a number from 1 to {most}")
    if packet_bytes_max is not None and not 256 <= packet_bytes_max <= 65_000:
        raise ValueError(f"packet_bytes_max is {packet_bytes_max}: give 256 to 65000 bytes")
    if link_rate_bps is not None and not 0 < link_rate_bps <= 10**13:
        raise ValueError(f"link_rate_bps is {link_rate_bps}: give bits per second, up to 10^13")
    host, port = split(bind)
    given["bind"] = (host if numeric(host) else socket.gethostbyname(host), port)
    return given

"""Real connections between the network namespaces of instances, by one process.

A socket belongs to the network namespace in which its thread was when it made the socket. So this
process enters a namespace, makes sockets there, and returns; it needs root.
"""

import ctypes
import errno
import os
import selectors
import socket
import struct
import time
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
HOME = os.open("/proc/self/ns/net", os.O_RDONLY)

# Longest wait for an outcome that the rules predict, and for the addresses of a new instance.
PATIENCE_S = 90
# Wait before the conclusion that a packet is dropped. It begins when all connections of the round
# that have to work have worked, so the card has forwarded packets meanwhile.
SILENCE_S = 0.8
# Interval at which datagrams and echo requests are sent again.
AGAIN_S = 1.0

PASSES, RESET, SILENT = "passes", "reset or unreachable", "silent"
REFUSED = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH)


def enter(namespace):
    if LIBC.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def inside(name):
    """Runs its block in the network namespace of this name."""
    namespace = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        enter(namespace)
        yield
    finally:
        enter(HOME)
        os.close(namespace)


def family(address):
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


class Machine:
    """The sockets of one instance: echo servers for TCP and UDP, and raw sockets for ICMP."""

    def __init__(self, network, namespace, addresses, tcp, udp):
        self.network, self.namespace, self.addresses = network, namespace, addresses
        self.tcp, self.udp = tcp, udp
        self.raw = {}
        self.wait_for_addresses()
        with inside(namespace):
            # Each closed port answers with an error, however many there are.
            for path in ("ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"):
                with open(f"/proc/sys/net/{path}", "w") as limit:
                    limit.write("0")
            for address in addresses:
                for port in tcp:
                    self.listen(address, port)
                for port in udp:
                    network.add(self.bound(socket.SOCK_DGRAM, address, port), self.echo_datagrams)
                self.raw[address.version] = self.echo_requests(address)

    def wait_for_addresses(self):
        """Waits until the kernel accepts the addresses of the instance."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                with inside(self.namespace):
                    for address in self.addresses:
                        self.bound(socket.SOCK_DGRAM, address, 0).close()
                return
            except OSError as error:
                if time.monotonic() > end:
                    raise TimeoutError(f"{self.namespace} lacks {self.addresses}") from error
                time.sleep(0.02)

    @staticmethod
    def bound(kind, address, port):
        one = socket.socket(family(address), kind | socket.SOCK_NONBLOCK)
        if kind == socket.SOCK_STREAM:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((str(address), port))
        except OSError:
            one.close()
            raise
        return one

    def listen(self, address, port):
        server = self.bound(socket.SOCK_STREAM, address, port)
        server.listen(128)

        def accept(_):
            try:
                one, _ = server.accept()
            except OSError:
                return
            one.setblocking(False)
            self.network.add(one, self.echo_bytes)

        self.network.add(server, accept)

    def echo_bytes(self, one):
        try:
            data = one.recv(65536)
            if data:
                one.send(data)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.network.remove(one)

    @staticmethod
    def echo_datagrams(one):
        try:
            one.sendto(*one.recvfrom(65536))
        except OSError:
            pass  # an ICMP error about an earlier answer

    def echo_requests(self, address):
        """A raw socket that receives the answers to echo requests."""
        protocol = socket.IPPROTO_ICMP if address.version == 4 else socket.IPPROTO_ICMPV6
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
        raw = socket.socket(family(address), kind, protocol)
        raw.bind((str(address), 0))
        waiting = {}

        def receive(_):
            try:
                data, (source, *_) = raw.recvfrom(65536)
            except OSError:
                return
            data = data[(data[0] & 15) * 4 :] if address.version == 4 else data
            if data[0] in (0, 129):
                number = struct.unpack("!H", data[4:6])[0]
                attempt = waiting.get((number, source))
                if attempt:
                    attempt.finish(PASSES)

        self.network.add(raw, receive)
        return raw, waiting


class Network:
    """The sockets of all instances of a set-up."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()

    def add(self, one, react, events=selectors.EVENT_READ):
        self.selector.register(one, events, react)

    def remove(self, one):
        try:
            self.selector.unregister(one)
        except (KeyError, ValueError):
            pass
        one.close()

    def step(self, wait_s):
        for key, _ in self.selector.select(wait_s):
            if key.fileobj.fileno() >= 0:
                key.data(key.fileobj)

    def close(self):
        for key in list(self.selector.get_map().values()):
            self.remove(key.fileobj)
        self.selector.close()

    def settle(self, attempts):
        """Waits for the outcomes of attempts that have begun.

        An attempt has `expected`; if this is not SILENT, its outcome is awaited for PATIENCE_S.
        """
        end = time.monotonic() + PATIENCE_S
        quiet = None
        while True:
            now = time.monotonic()
            open_ = [a for a in attempts if a.outcome is None]
            awaited = any(a.expected != SILENT for a in open_)
            quiet = None if awaited else (quiet or now + SILENCE_S)
            if not open_ or now >= end or quiet is not None and now >= quiet:
                break
            for attempt in open_:
                attempt.repeat(now)
            self.step(0.05)
        for attempt in attempts:
            attempt.finish(SILENT)


class Attempt:
    """An attempt to use a connection. `outcome` is None until it is known."""

    def __init__(self, machine, source, destination, ports, expected):
        self.machine, self.network = machine, machine.network
        self.source, self.destination, self.ports = source, destination, ports
        self.expected, self.outcome, self.next = expected, None, 0.0

    def finish(self, outcome):
        if self.outcome is None:
            self.outcome = outcome

    def repeat(self, now):
        """Sends the packet that begins the connection, if it is time to send it again."""
        if now >= self.next:
            self.next = now + AGAIN_S
            self.send()

    def send(self):
        pass

    def close(self):
        pass

    def fail(self, error):
        """Takes an error of a socket as the outcome, if it means that the other end refuses."""
        if error in REFUSED:
            self.finish(RESET)
        elif error == errno.EMSGSIZE:
            # The gateway has reported its MTU. The next datagram is sent in fragments.
            self.next = 0.0
        elif error not in (0, errno.EAGAIN, errno.EINPROGRESS):
            self.finish(f"error {errno.errorcode.get(error, error)}")


class Stream(Attempt):
    """A TCP connection with bytes in both directions."""

    def __init__(self, *arguments, data=b""):
        super().__init__(*arguments)
        with inside(self.machine.namespace):
            self.socket = Machine.bound(socket.SOCK_STREAM, self.source, self.ports[0])
            error = self.socket.connect_ex((str(self.destination), self.ports[1]))
        self.data, self.received, self.is_open = data, b"", False
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        self.network.add(self.socket, self.react, both)
        self.fail(error)

    def react(self, _):
        if self.outcome is not None:
            # An answer after the end of the round is an error, which the next `begin` shows.
            self.network.selector.unregister(self.socket)
            return
        error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            return self.fail(error)
        try:
            if not self.is_open:
                self.socket.send(self.data)
                self.is_open = True
                self.network.selector.modify(self.socket, selectors.EVENT_READ, self.react)
                return
            got = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as of:
            return self.fail(of.errno)
        self.received += got
        if self.received == self.data:
            self.finish(PASSES)
        elif not got or not self.data.startswith(self.received):
            self.finish("other bytes")

    def begin(self, expected, data):
        """Sends further bytes on the open connection."""
        self.expected, self.outcome, self.data, self.received = expected, None, data, b""
        if self.socket not in self.network.selector.get_map():
            self.network.add(self.socket, self.react)
        try:
            self.socket.send(data)
        except OSError as of:
            self.fail(of.errno)

    def close(self):
        # A reset in place of the usual end, so that no further packets wait for answers.
        abort = struct.pack("ii", 1, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abort)
        self.network.remove(self.socket)


class Datagrams(Attempt):
    """A UDP flow, whose datagrams are echoed."""

    def __init__(self, *arguments, data=b""):
        super().__init__(*arguments)
        self.data = data
        with inside(self.machine.namespace):
            self.socket = Machine.bound(socket.SOCK_DGRAM, self.source, self.ports[0])
            error = self.socket.connect_ex((str(self.destination), self.ports[1]))
        self.network.add(self.socket, self.react)
        self.fail(error)

    def react(self, _):
        try:
            if self.socket.recv(65536) == self.data:
                self.finish(PASSES)
        except BlockingIOError:
            pass
        except OSError as of:
            self.fail(of.errno)

    def send(self):
        try:
            self.socket.send(self.data)
        except OSError as of:
            self.fail(of.errno)

    def begin(self, expected, data):
        """Sends another datagram of the flow."""
        self.expected, self.outcome, self.data, self.next = expected, None, data, 0.0

    def close(self):
        self.network.remove(self.socket)


class Echo(Attempt):
    """Echo requests of ICMP, as those of ping. The identifier is the first of `ports`."""

    def __init__(self, *arguments, data=b""):
        super().__init__(*arguments)
        self.data = data
        self.raw, waiting = self.machine.raw[self.source.version]
        waiting[self.ports[0], str(self.destination)] = self

    def send(self):
        kind = 8 if self.source.version == 4 else 128
        header = struct.pack("!BBHHH", kind, 0, 0, self.ports[0], 1)
        if self.source.version == 4:
            # The kernel adds the checksum of ICMPv6 only.
            header = header[:2] + struct.pack("!H", checksum(header + self.data)) + header[4:]
        try:
            self.raw.sendto(header + self.data, (str(self.destination), 0))
        except OSError as of:
            self.fail(of.errno)


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


KINDS = {"tcp": Stream, "udp": Datagrams, "icmp": Echo, "icmpv6": Echo}

"""Two processes that talk over SRD: round trips, and as many messages as go through.

On one machine, and then on another (or in another terminal):

    openssl rand -hex 32 > job.key && chmod 600 job.key     (the same file on both)
    python ping_pong.py server 192.0.2.1:7471 job.key
    python ping_pong.py client 192.0.2.1:7471 job.key

The server is written with asyncio, the client with calls that wait.
"""

import argparse
import asyncio
import struct
import time

import opensrd

# Messages arrive in any order, so that each says what it is and which one it is.
HEAD = struct.Struct("!cQ")
PING, BULK, COUNT = b"p", b"b", b"c"


async def serve(address: str, key_file: str, timeout: float) -> None:
    """Answers pings, and says how many messages of the bulk have arrived from a client."""
    arrived: "dict[opensrd.Peer, int]" = {}
    async with opensrd.AsyncEndpoint(address, job_key_file=key_file, peer_timeout=timeout) as endpoint:
        print("at {}:{}".format(*endpoint.address), flush=True)
        async for message in endpoint:
            kind, _ = HEAD.unpack_from(message.data)
            if kind == PING:
                await endpoint.send(message.peer, message.data)
            elif kind == BULK:
                arrived[message.peer] = arrived.get(message.peer, 0) + 1
            elif kind == COUNT:
                count = arrived.pop(message.peer, 0)
                await endpoint.send(message.peer, HEAD.pack(COUNT, count))


def ping(endpoint: opensrd.Endpoint, peer: opensrd.Peer, count: int, timeout: float) -> None:
    """One message at a time, there and back."""
    times = []
    for number in range(count):
        begin = time.perf_counter()
        endpoint.send(peer, HEAD.pack(PING, number))
        answer = endpoint.recv(timeout)
        times.append(time.perf_counter() - begin)
        assert HEAD.unpack(answer.data) == (PING, number)
    times.sort()
    median, slow = times[count // 2] * 1e6, times[count * 99 // 100] * 1e6
    print(f"{count} round trips: median {median:.1f} us, 99th percentile {slow:.1f} us")


def bulk(
    endpoint: opensrd.Endpoint, peer: opensrd.Peer, count: int, size: int, timeout: float
) -> None:
    """As many messages as the path and the receiver take: `send` waits when there are enough."""
    fill = bytes(max(0, size - HEAD.size))
    begin = time.perf_counter()
    for number in range(count):
        endpoint.send(peer, HEAD.pack(BULK, number) + fill)
    # What is sent next could overtake them. After a flush all have arrived. If the server stops
    # answering, the flush ends with an error.
    endpoint.flush(peer)
    seconds = time.perf_counter() - begin
    endpoint.send(peer, HEAD.pack(COUNT, 0))
    _, arrived = HEAD.unpack(endpoint.recv(timeout).data)
    rate, bits = count / seconds, count * (HEAD.size + len(fill)) * 8 / seconds
    print(f"{count} messages: {rate:,.0f}/s, {bits / 1e6:,.1f} Mb/s, {arrived} arrived")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("address", help="where the server is, such as 192.0.2.1:7471")
    parser.add_argument("key_file", help="a file with a key that both have")
    parser.add_argument("--pings", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a message of the bulk")
    parser.add_argument(
        "--timeout", type=float, default=5.0, help="seconds that the other end may be silent"
    )
    args = parser.parse_args()
    if args.role == "server":
        try:
            asyncio.run(serve(args.address, args.key_file, args.timeout))
        except KeyboardInterrupt:
            pass
        return
    with opensrd.Endpoint(job_key_file=args.key_file, peer_timeout=args.timeout) as endpoint:
        peer = endpoint.connect(args.address)
        ping(endpoint, peer, args.pings, args.timeout)
        bulk(endpoint, peer, args.messages, args.size, args.timeout)
        state = endpoint.statistics()
        print(f"{state.retransmitted_packets} of {state.sent_packets} packets were sent again")
        endpoint.close(args.timeout)


if __name__ == "__main__":
    main()

//! The transport core alone: datagrams from one endpoint to another, without sockets and clocks,
//! the same instructions in every run. For counting them, or for the CPU time of the thread:
//!
//! ```sh
//! cargo build --release
//! valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null \
//!     target/release/core-bench plain 1400 20000
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use srd_proto::{
    Class, Config, Datagram, Duration, Ecn, Endpoint, Epoch, Event, Instant, PacketMeta, PacketRef,
    PeerConfig, PeerId, Protection, Qpn, ReceiveBuffers, TransmitBuf,
};

const QPN: Qpn = Qpn(7);
const DELAY: Duration = Duration::from_micros(5);

fn address(n: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), 7471)
}

fn endpoint(n: u8, protection: Protection) -> Endpoint {
    let config = Config { protection, packet_bytes_max: 9000, ..Config::default() };
    let made = Endpoint::new(config, Epoch(1), [n; 32], Instant::ZERO);
    let mut endpoint = made.expect("the configuration is within its bounds");
    endpoint.open_qp(QPN, ReceiveBuffers::Unlimited);
    endpoint
}

/// Takes all packets of `from` to `to`; returns the datagrams that were delivered.
fn carry(
    now: Instant,
    from: &mut Endpoint,
    to: &mut Endpoint,
    n: u8,
    buf: &mut TransmitBuf,
) -> u64 {
    let (mut delivered, mut packet) = (0, Vec::new());
    loop {
        buf.clear();
        let Some(transmit) = from.poll_transmit(now, buf) else { return delivered };
        for (head, payload) in buf.segments() {
            packet.clear();
            packet.extend_from_slice(head);
            packet.extend_from_slice(payload);
            let mut source = address(n);
            source.set_port(49_152 + transmit.entropy.0);
            let meta = PacketMeta { source, ecn: Ecn::NotEct, received_at: now };
            let taken = to.handle_packet(now, meta, PacketRef::Whole(&mut packet));
            delivered += u64::from(taken.is_some());
        }
    }
}

fn offer(a: &mut Endpoint, now: Instant, to: PeerId, payload: &Bytes) -> bool {
    let (src_qpn, payload) = (QPN, payload.clone());
    let class = Class::Bulk;
    let datagram = Datagram { src_qpn, dst_qpn: QPN, imm: 0, payload, class, user: 0 };
    a.send(now, to, datagram).is_ok()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, mode, bytes, count] = &args[..] else {
        eprintln!("usage: core-bench plain|sealed BYTES DATAGRAMS");
        std::process::exit(2);
    };
    let protection = if mode == "sealed" { Protection::JobKey([5; 32]) } else { Protection::Plain };
    let bytes: usize = bytes.parse().expect("BYTES is a number");
    let count: u64 = count.parse().expect("DATAGRAMS is a number");
    let (mut a, mut b) = (endpoint(1, protection.clone()), endpoint(2, protection));
    let mut now = Instant::ZERO;
    let peer = a.add_peer(now, PeerConfig::at(address(2))).expect("the first peer");
    let payload = Bytes::from(vec![1; bytes]);
    let mut buf = TransmitBuf::new(64, 65_000);
    let (mut sent, mut delivered, mut ended) = (0, 0, 0);
    while ended < count {
        while sent < count && offer(&mut a, now, peer, &payload) {
            sent += 1;
        }
        delivered += carry(now, &mut a, &mut b, 1, &mut buf);
        now += DELAY;
        carry(now, &mut b, &mut a, 2, &mut buf);
        now += DELAY;
        a.handle_timeout(now);
        b.handle_timeout(now);
        while let Some(event) = a.poll_event() {
            ended += u64::from(matches!(event, Event::Completed { .. }));
        }
        while b.poll_event().is_some() {}
    }
    println!("{delivered} datagrams of {bytes} bytes in {now:?}");
}

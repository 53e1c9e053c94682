//! Bursts between two network namespaces, watched from both ends, by eBPF programs at tc and by
//! packet sockets. The test needs the privileges to create namespaces and to load eBPF programs.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::veth::{INTERFACE, Pair};
use srd_watch::live::{self, Options, Output};
use srd_watch::session::Report;
use srd_watch::source::{Choice, Kind, Opened};
use srd_watch::{Burst, Model, PacketDirection, Settings};

const FLOWS: usize = 8;
const PACKETS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(60);
/// Time after the last packet of the test. Within this time, the burst has ended and the kernel has
/// delivered all packets.
const LATE: Duration = Duration::from_millis(200);
/// Number of reads after the last packet; each read returns many packets.
const LOOKS: u32 = 20;
const UDP: u8 = 17;

fn options(interface: &str, source: Choice) -> Options {
    Options {
        interfaces: vec![interface.to_owned()],
        source,
        model: Model::of_rate(10_000_000, None),
        settings: Settings::default(),
        time: Some(PATIENCE),
        ring_bytes: None,
        kept_bytes: 1 << 20,
        counters_every: Duration::from_millis(100),
    }
}

/// Watches one end until the reported bursts contain packets of all flows to port 9. There are
/// several bursts if the sender or the watch is delayed.
fn watch(source: Choice, ready: &Barrier) -> Vec<Burst> {
    let (mut bursts, named) = (Vec::new(), RefCell::new(BTreeSet::new()));
    let mut began = None;
    // The first call is made after the sockets were opened.
    let told = Cell::new(false);
    let stop = || {
        if !told.replace(true) {
            ready.wait();
        }
        named.borrow().len() >= FLOWS
    };
    let outcomes =
        live::run(&options(INTERFACE, source), &stop, &mut |report: Report| match report {
            Report::Began(_) => began = began.or_else(|| Some(Instant::now())),
            Report::Ended(burst, kept) => {
                assert!(kept.is_some_and(|kept| kept.count().0 > 0));
                let keys = burst.flows.iter().map(|share| &share.flow.outer);
                let sent = keys.filter(|key| key.protocol == UDP && key.ports.1 == 9);
                named.borrow_mut().extend(sent.map(|key| key.ports));
                bursts.push(*burst);
            }
        });
    let outcomes = outcomes.unwrap();
    assert_eq!(outcomes[0].lost, 0);
    assert!(outcomes[0].error.is_none());
    bursts
}

#[test]
fn a_burst_of_eight_flows_is_found_at_both_ends_and_every_flow_is_named() {
    for source in [Choice::Ebpf, Choice::Packet] {
        eight_flows(source);
    }
}

fn eight_flows(source: Choice) {
    let Some(pair) = Pair::new(1500, 1) else { return };
    pair.acquaint();
    let ready = Barrier::new(3);
    std::thread::scope(|scope| {
        let ends = [0, 1].map(|end| {
            let (pair, ready) = (&pair, &ready);
            scope.spawn(move || pair.within(end, || watch(source, ready)))
        });
        let sent: BTreeSet<u16> = pair.within(0, || {
            let sockets: Vec<UdpSocket> =
                (0..FLOWS).map(|_| UdpSocket::bind("10.77.0.1:0").unwrap()).collect();
            ready.wait();
            for _ in 0..PACKETS {
                for socket in &sockets {
                    socket.send_to(&[7; 1000], "10.77.0.2:9").unwrap();
                }
            }
            sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect()
        });
        for (end, way) in ends.into_iter().zip([PacketDirection::Out, PacketDirection::In]) {
            let bursts = end.join().unwrap();
            let of_way = bursts.iter().filter(|burst| burst.way == way);
            let flows = of_way.clone().flat_map(|burst| &burst.flows);
            // The kernel may also send neighbour and multicast group messages at any time.
            let ports = flows.map(|share| share.flow.outer.ports).filter(|ports| ports.1 == 9);
            let named: BTreeSet<u16> = ports.map(|ports| ports.0).collect();
            assert_eq!(named, sent);
            let counters = of_way.flat_map(|burst| &burst.limits).map(|limit| limit.counter);
            let counters: BTreeSet<&str> = counters.collect();
            let expected = if way == PacketDirection::In { "bw_in" } else { "bw_out" };
            assert!(counters.iter().all(|counter| counter.starts_with(expected)), "{counters:?}");
        }
    });
}

/// Results of one source of packets: the bursts, and the bytes and packets of each flow of the test
/// by direction.
#[derive(Debug, Default)]
struct Tally {
    kinds: Vec<Kind>,
    bursts: Vec<(PacketDirection, u64)>,
    carried: BTreeMap<(PacketDirection, u16, u16), (u64, u64)>,
}

impl Output for Tally {
    fn opened(&mut self, opened: &Opened) {
        self.kinds.push(opened.source);
    }

    fn report(&mut self, report: Report) {
        let Report::Ended(burst, _) = report else { return };
        self.bursts.push((burst.way, burst.length_ns));
        for share in &burst.flows {
            let ports = share.flow.outer.ports;
            let carried = self.carried.entry((burst.way, ports.0, ports.1)).or_default();
            *carried = (carried.0 + share.bytes, carried.1 + share.packets);
        }
    }
}

/// Sends `bytes` bytes over a TCP connection, which causes super-packets. Returns the two ports.
fn transfer(pair: &Pair, bytes: usize) -> (u16, u16) {
    let listener = pair.within(1, || TcpListener::bind("10.77.0.2:0").unwrap());
    let to = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut all = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), bytes);
        });
        pair.within(0, || {
            let mut stream = TcpStream::connect(to).unwrap();
            let from = stream.local_addr().unwrap();
            stream.write_all(&vec![7; bytes]).unwrap();
            (from.port(), to.port())
        })
    })
}

/// Two sources of packets watch one interface: eBPF and a packet socket. For TCP with segmentation
/// offload, whose super-packets both sources get whole, they count the same bytes and packets for
/// each flow.
#[test]
fn both_sources_find_the_same_bursts_with_the_same_packets() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    pair.acquaint();
    for end in 0..2 {
        let (ready, done) = (Barrier::new(3), std::sync::atomic::AtomicBool::new(false));
        let watch_within = |source| {
            let mut tally = Tally::default();
            let told = Cell::new(false);
            let (over_since, looks) = (Cell::new(None::<Instant>), Cell::new(0));
            let stop = || {
                if !told.replace(true) {
                    ready.wait();
                }
                if !done.load(std::sync::atomic::Ordering::Relaxed) {
                    return false;
                }
                // The last packets have been delivered and read, and their burst has ended.
                let since = over_since.get().unwrap_or_else(Instant::now);
                over_since.set(Some(since));
                looks.set(looks.get() + 1);
                looks.get() > LOOKS && since.elapsed() > LATE
            };
            let options = Options { kept_bytes: 0, ..options(INTERFACE, source) };
            let outcomes = live::run(&options, &stop, &mut tally).unwrap();
            assert_eq!(outcomes[0].lost, 0);
            tally
        };
        let watch = |source| pair.within(end, || watch_within(source));
        let (ebpf, packet, ports) = std::thread::scope(|scope| {
            let ebpf = scope.spawn(|| watch(Choice::Auto));
            let packet = scope.spawn(|| watch(Choice::Packet));
            ready.wait();
            let ports = transfer(&pair, 20_000_000);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            (ebpf.join().unwrap(), packet.join().unwrap(), ports)
        });
        assert_eq!((&ebpf.kinds[..], &packet.kinds[..]), (&[Kind::Ebpf][..], &[Kind::Packet][..]));
        let way = PacketDirection::BOTH[1 - end];
        let of = |tally: &Tally| tally.carried[&(way, ports.0, ports.1)];
        let (by_ebpf, by_packet) = (of(&ebpf), of(&packet));
        assert!(by_ebpf.0 >= 20_000_000 && by_ebpf.1 >= 20_000_000 / 1460, "{by_ebpf:?}");
        assert_eq!(by_ebpf, by_packet, "{ebpf:?} {packet:?}");
    }
}

#[test]
fn an_interface_that_is_not_there_is_an_error() {
    let stop = || false;
    for source in [Choice::Auto, Choice::Ebpf, Choice::Packet] {
        let options = options("nosuch0", source);
        let error = live::run(&options, &stop, &mut |_: Report| ()).unwrap_err();
        assert!(error.to_string().starts_with("nosuch0: "), "{error}");
    }
}

#[test]
fn an_interface_that_goes_away_ends_its_watch() {
    for source in [Choice::Ebpf, Choice::Packet] {
        let Some(pair) = Pair::new(1500, 1) else { return };
        let began = Instant::now();
        let outcomes = pair.within(0, || {
            let told = Cell::new(false);
            let stop = || {
                if !told.replace(true) {
                    pair.ip(0, &["link", "del", INTERFACE]);
                }
                false
            };
            live::run(&options(INTERFACE, source), &stop, &mut |_: Report| ()).unwrap()
        });
        assert!(outcomes[0].error.is_some());
        assert!(began.elapsed() < PATIENCE);
    }
}

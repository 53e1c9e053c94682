//! Packets that are sent over SRD, and packets that count as eligible (X1 to X3 of the
//! specification of Express), checked one by one. The two daemons of a pair capture the packets at
//! their interfaces and sockets while known traffic runs. Captures, counters and traffic must
//! agree. Needs root.
//!
//! A super-packet counts as its segments, as in the counters. A capture does not show the size of
//! the segments, but it shows the connection's handshake: a segment has the receiver's MSS less the
//! TCP options of the super-packet itself.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // a test may fail loudly

use crate::support::inner::{Inner, Kind, mss_asked_for};
use crate::support::pair::{Pair, Settings, must, ready};
use crate::support::pcapng::Capture;
use rustix::net::{AddressFamily, SocketType, ipproto};
use serde_json::Value;
use srd_proto::wire::VERSION;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// MTU of the daemons for inner packets; [`INTERFACE_MTU`] is the MTU of their interfaces. Packets
/// with a size between the two MTUs are oversize, like packets of 8901 to 9001 bytes with ENA
/// Express.
const MTU: usize = 1300;
const INTERFACE_MTU: usize = 1400;

/// Number of UDP packets from the first end, and from the second end. The two numbers always
/// differ, so that the directions cannot be confused.
const UDP: [usize; 2] = [60, 35];
const OVERSIZE: [usize; 2] = [12, 7];
/// Numbers of datagrams, from each end, that are larger than the interface's MTU. The kernel sends
/// each as [`FRAGMENTS_EACH`] fragments.
const FRAGMENTED: [usize; 2] = [5, 3];
const FRAGMENTED_BYTES: usize = 3000;
const FRAGMENTS_EACH: usize = 3;
/// Number of echo requests from the first end; the second end's kernel answers each.
const ECHOES: usize = 20;
/// Number of bytes that the first end sends at once over TCP, in super-packets. Then [`MESSAGES`]
/// messages are sent in both directions.
const BULK_BYTES: usize = 256 << 10;
const MESSAGES: usize = 30;
const MESSAGE_BYTES: usize = 100;
const IP_UDP_BYTES: usize = 28;

/// Time between two packets of one kind, so that queues do not affect the test.
const SPACING: Duration = Duration::from_millis(1);
/// Time without a packet after which counters and captures are compared. It is longer than a
/// second, because an offer of the settings without an answer is repeated after a second.
const QUIET: Duration = Duration::from_millis(1300);
/// Maximum time until a datagram arrives. Packets are lost only if the session ends.
const ARRIVAL_MAX: Duration = Duration::from_secs(60);
/// Maximum number of attempts to check a combination of settings. If the machine is busy, a daemon
/// may be stopped for so long that packets are lost, as [`LOSSES`] count. An attempt with this
/// outcome does not count.
const TRIES: usize = 5;
/// Counters of packets that are lost because a process waited for a processor: the other daemon
/// considered it dead, a packet waited too long for the queue, or a piece of a packet arrived after
/// the longest wait for it (O3).
const LOSSES: [&str; 4] = ["peer_downs", "queue_drops", "reassembly_drops", "order_late_pkts"];

/// UDP payload bytes of an outer unreliable packet, in addition to the inner frame. [`DATA_BYTES`]
/// is the same for a data packet, and [`DATA_PAYLOAD_BYTES_MAX`] the largest part of a frame in a
/// data packet. [`OFFLOAD_BYTES`] are the bytes of a frame in addition to its packet.
const UNRELIABLE_BYTES: usize = 12 + 12 + 16;
const DATA_BYTES: usize = 12 + 24 + 16;
const DATA_PAYLOAD_BYTES_MAX: usize = 1500 - IP_UDP_BYTES - DATA_BYTES;
const OFFLOAD_BYTES: usize = 10;
/// Type of outer data packets, in the header. [`UNRELIABLE`] is the type of unreliable packets.
const DATA: u8 = 1;
const UNRELIABLE: u8 = 8;
/// Flag of a data packet that carries an acknowledgement. [`ACK_BYTES`] are the lengths that the
/// acknowledgement may have.
const CARRIES_ACK: u8 = 0x08;
const ACK_BYTES: std::ops::RangeInclusive<usize> = 20..=188;

/// A combination of settings (`express`, `express_udp`) of the two ends.
#[derive(Clone, Copy, Debug)]
struct Cell {
    express: [bool; 2],
    udp: [bool; 2],
}

impl Cell {
    /// Whether a packet of this kind is eligible (X1).
    fn is_eligible(self, kind: Kind) -> bool {
        let udp = self.udp == [true, true];
        self.express == [true, true]
            && match kind {
                Kind::Tcp => true,
                Kind::Udp | Kind::Oversize => udp,
                Kind::Icmp | Kind::Fragment => false,
            }
    }

    /// Whether a packet of this kind is sent over SRD (X2).
    fn rides_srd(self, kind: Kind) -> bool {
        self.is_eligible(kind) && kind != Kind::Oversize
    }
}

#[test]
fn what_must_rides_srd_and_nothing_else_does_packet_for_packet() {
    if !ready() {
        return;
    }
    let both = [true, true];
    for express in [both, [true, false], [false, true], [false, false]] {
        check(Cell { express, udp: both });
    }
    check(Cell { express: both, udp: [true, false] });
}

fn check(cell: Cell) {
    let is_checked = (0..TRIES).any(|_| is_checked_undisturbed(cell));
    assert!(is_checked, "{cell:?}: the machine was too busy in each of {TRIES} tries");
}

/// Checks a combination of settings. Returns false if a counter of [`LOSSES`] grew during the
/// check.
fn is_checked_undisturbed(cell: Cell) -> bool {
    let mut pair = Pair::new("e");
    // Without this setting, the kernel would send requests for IPv6 routers on a new interface,
    // repeatedly and seconds later.
    for name in &pair.names {
        must(&format!("netns exec {name} sysctl -qw net.ipv6.conf.default.disable_ipv6=1"));
    }
    for end in [0, 1] {
        let peer = format!("express = {}\nexpress_udp = {}", cell.express[end], cell.udp[end]);
        let interface = format!("mtu = {MTU}");
        pair.configure(end, &Settings { peer: &peer, interface: &interface, ..Settings::OVERLAY });
        pair.start(end);
    }
    wait_until_agreed(&pair, cell);
    for name in &pair.names {
        must(&format!("-n {name} link set srd0 mtu {INTERFACE_MTU}"));
    }
    let lost = || {
        [0, 1].map(|end| {
            let counters = counters(&pair, end);
            LOSSES.map(|name| counters[name])
        })
    };
    let lost_before = lost();
    let captures = [0, 1].map(|end| Capturing::start(&pair, end));
    wait_until_quiet(&pair);
    let before = [0, 1].map(|end| counters(&pair, end));
    let sent = send_everything(&pair);
    wait_until_quiet(&pair);
    let after = [0, 1].map(|end| counters(&pair, end));
    let seen = captures.map(Capturing::end);
    if lost() != lost_before {
        return false;
    }
    sent.expect("every datagram arrives");
    for end in [0, 1] {
        let since = |end: usize| Since { before: &before[end], after: &after[end] };
        let way =
            CellDirection { cell, from: end, captures: &seen, tx: since(end), rx: since(1 - end) };
        let account = way.account();
        println!("{cell:?} from end {end}: {account}");
    }
    true
}

/// Waits until the ends have exchanged their settings and agree.
fn wait_until_agreed(pair: &Pair, cell: Cell) {
    let rides = cell.express == [true, true];
    pair.wait("an agreement", |pair| {
        [0, 1].iter().all(|end| {
            let Some(status) = pair.ask(*end, &["status"]) else { return false };
            let peer = &status["peers"][0];
            peer["state"] == "up"
                && (peer["express"] == "on") == rides
                && peer["express_udp"] == cell.is_eligible(Kind::Udp)
        })
    });
}

/// Waits until no inner packet has passed either end for the time [`QUIET`]. Outer packets pass all
/// the time, because probes keep the session alive.
fn wait_until_quiet(pair: &Pair) {
    let moved = |pair: &Pair| {
        [0, 1].map(|end| {
            let all = counters(pair, end);
            ["tx_pkts", "rx_pkts", "queue_bytes"].map(|name| all[name])
        })
    };
    let mut last = (moved(pair), std::time::Instant::now());
    pair.wait("silence", |pair| {
        let now = moved(pair);
        if now != last.0 {
            last = (now, std::time::Instant::now());
        }
        last.1.elapsed() > QUIET
    });
}

fn counters(pair: &Pair, end: usize) -> BTreeMap<String, u64> {
    let stats: Value = pair.ask(end, &["stats"]).expect("`srd stats` answers");
    let all = stats["counters"].as_object().unwrap().iter();
    all.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
}

/// A process of `srd capture`.
struct Capturing {
    child: Child,
    file: std::path::PathBuf,
}

impl Capturing {
    fn start(pair: &Pair, end: usize) -> Self {
        let file = pair.path(format!("{end}.pcapng"));
        let mut command = pair.command(end);
        command.args(["capture", "--socket"]).arg(pair.path(format!("{end}.sock")));
        let child = command.arg("-w").arg(&file).stderr(Stdio::null()).spawn().unwrap();
        // The program writes the head of the file once the daemon has started the capture.
        let has_begun = || std::fs::metadata(&file).is_ok_and(|facts| facts.len() > 0);
        pair.wait("a capture", |_| has_begun());
        Self { child, file }
    }

    fn end(mut self) -> Capture {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        let capture = Capture::read(&self.file);
        assert_eq!(capture.dropped, Some(0), "the captures are complete");
        capture
    }
}

/// Sends every kind of packet in both directions, one kind after the other. Returns an error if a
/// datagram does not arrive.
fn send_everything(pair: &Pair) -> std::io::Result<()> {
    let address = |end: usize, port: u16| SocketAddr::from(([10, 77, 0, end as u8 + 1], port));
    let udp = [0, 1].map(|end| pair.within(end, || UdpSocket::bind(address(end, 5000)).unwrap()));
    for (end, socket) in udp.iter().enumerate() {
        socket.connect(address(1 - end, 5000)).unwrap();
        socket.set_read_timeout(Some(ARRIVAL_MAX)).unwrap();
        // Packets of one kind have different sizes, so that they can be told apart in the outer
        // capture.
        let small = (0..UDP[end]).map(|n| 100 + n);
        let oversize = (1..=OVERSIZE[end]).map(|n| MTU + n - IP_UDP_BYTES);
        let fragmented = (0..FRAGMENTED[end]).map(|_| FRAGMENTED_BYTES);
        for bytes in small.chain(oversize).chain(fragmented) {
            assert_eq!(socket.send(&vec![7; bytes]).unwrap(), bytes);
            std::thread::sleep(SPACING);
        }
    }
    for (end, socket) in udp.iter().enumerate() {
        let from = 1 - end;
        let mut buffer = [0; FRAGMENTED_BYTES + 1];
        for _ in 0..UDP[from] + OVERSIZE[from] + FRAGMENTED[from] {
            socket.recv(&mut buffer)?;
        }
    }
    echo(pair, address(1, 0));
    let listener = pair.within(1, || TcpListener::bind(address(1, 5001)).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| serve(listener.accept().unwrap().0));
        let stream = pair.within(0, || TcpStream::connect(address(1, 5001)).unwrap());
        converse(stream);
    });
    Ok(())
}

/// Sends echo requests from the first end. The kernel of the second end answers them.
fn echo(pair: &Pair, to: SocketAddr) {
    let socket = pair.within(0, || {
        rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap()
    });
    for number in 0..ECHOES as u8 {
        // The message consists of type 8, checksum, identifier 7 and a number. The checksum is the
        // complement of the sum of the other fields.
        let checksum = (!(0x0800 + 7 + u16::from(number))).to_be_bytes();
        let request = [8, 0, checksum[0], checksum[1], 0, 7, 0, number];
        let sent = rustix::net::sendto(&socket, &request, rustix::net::SendFlags::empty(), &to);
        assert_eq!(sent.unwrap(), request.len());
        std::thread::sleep(SPACING);
    }
}

/// Runs the first end of the TCP connection: a bulk transfer, then messages in both directions.
fn converse(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    stream.write_all(&vec![7; BULK_BYTES]).unwrap();
    for _ in 0..MESSAGES {
        stream.write_all(&[7; MESSAGE_BYTES]).unwrap();
        stream.read_exact(&mut [0; MESSAGE_BYTES]).unwrap();
    }
}

/// Runs the second end of the TCP connection.
fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    stream.read_exact(&mut vec![0; BULK_BYTES]).unwrap();
    for _ in 0..MESSAGES {
        stream.read_exact(&mut [0; MESSAGE_BYTES]).unwrap();
        stream.write_all(&[7; MESSAGE_BYTES]).unwrap();
    }
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the end of the conversation");
}

/// Counters of one end before and after the traffic of a check.
struct Since<'a> {
    before: &'a BTreeMap<String, u64>,
    after: &'a BTreeMap<String, u64>,
}

impl Since<'_> {
    fn grew(&self, name: &str) -> usize {
        (self.after[name] - self.before[name]) as usize
    }

    /// Returns each counter that grew, with the difference.
    fn all_that_grew(&self) -> BTreeMap<&str, u64> {
        let all = self
            .after
            .iter()
            .map(|(name, after)| (&**name, after.saturating_sub(self.before[name])));
        all.filter(|(_, difference)| *difference > 0).collect()
    }
}

/// One direction of the traffic in a check of a combination of settings.
struct CellDirection<'a> {
    cell: Cell,
    from: usize,
    captures: &'a [Capture; 2],
    tx: Since<'a>,
    rx: Since<'a>,
}

impl CellDirection<'_> {
    /// Compares traffic, captures and counters of this direction. Returns a summary as text.
    fn account(&self) -> String {
        let what = format!("{:?} from end {}", self.cell, self.from);
        let (sender, receiver) = (&self.captures[self.from], &self.captures[1 - self.from]);
        let mss = mss_asked_for(sender.of(false, false)).expect("a handshake was captured");
        let read = |capture: &Capture, leaves| -> Vec<Inner> {
            capture.of(false, leaves).filter_map(|p| Inner::read(p, MTU, mss)).collect()
        };
        let (sent, arrived) = (read(sender, true), read(receiver, false));
        let by_kind = count(&sent);
        assert_eq!(
            count(&arrived),
            by_kind,
            "{what}: everything arrives; counters that grew: sender {:?}, receiver {:?}",
            self.tx.all_that_grew(),
            self.rx.all_that_grew()
        );
        self.assert_known_counts(&by_kind, &sent, &what);
        self.assert_counters(&by_kind, &what);
        self.assert_wire(&sent, &what);
        let (data, plain) = (outer(sender, true, DATA), outer(sender, true, UNRELIABLE));
        let outer = format!("outer: {} data, {} unreliable", data.len(), plain.len());
        format!("inner {by_kind:?}, {outer}")
    }

    fn assert_known_counts(&self, by_kind: &BTreeMap<Kind, usize>, sent: &[Inner], what: &str) {
        let end = self.from;
        for (kind, known) in [
            (Kind::Udp, UDP[end]),
            (Kind::Oversize, OVERSIZE[end]),
            (Kind::Fragment, FRAGMENTED[end] * FRAGMENTS_EACH),
            (Kind::Icmp, ECHOES),
        ] {
            assert_eq!(by_kind.get(&kind), Some(&known), "{what}: {kind:?} as sent");
        }
        let tcp_bytes: usize = sent.iter().map(|p| p.tcp_payload_bytes).sum();
        let known = MESSAGES * MESSAGE_BYTES + if end == 0 { BULK_BYTES } else { 0 };
        assert!(tcp_bytes >= known, "{what}: {tcp_bytes} bytes of TCP, {known} were sent");
    }

    /// Checks that the counters of both ends agree with the captured inner packets.
    fn assert_counters(&self, by_kind: &BTreeMap<Kind, usize>, what: &str) {
        let sum = |is: &dyn Fn(Kind) -> bool| -> usize {
            by_kind.iter().filter(|(kind, _)| is(**kind)).map(|(_, n)| n).sum()
        };
        let rides = sum(&|kind| self.cell.rides_srd(kind));
        let plain = sum(&|kind| !self.cell.rides_srd(kind));
        let eligible = sum(&|kind| self.cell.is_eligible(kind));
        for (counter, since, expected) in [
            ("ena_srd_tx_pkts", &self.tx, rides),
            ("ena_srd_eligible_tx_pkts", &self.tx, eligible),
            ("plain_tx_pkts", &self.tx, plain),
            ("tx_drops", &self.tx, 0),
            ("ena_srd_rx_pkts", &self.rx, rides),
            ("plain_rx_pkts", &self.rx, plain),
            ("rx_drops", &self.rx, 0),
        ] {
            assert_eq!(since.grew(counter), expected, "{what}: {counter}; captured {by_kind:?}");
        }
    }

    /// Checks that the captured outer packets are exactly those that the inner packets must cause.
    fn assert_wire(&self, sent: &[Inner], what: &str) {
        let (sender, receiver) = (&self.captures[self.from], &self.captures[1 - self.from]);
        let (srd, plain): (Vec<_>, Vec<_>) =
            sent.iter().partition(|packet| self.cell.rides_srd(packet.kind));
        let unreliable = plain.iter().flat_map(|packet| packet.segments());
        let unreliable =
            sorted(unreliable.map(|bytes| bytes + OFFLOAD_BYTES + UNRELIABLE_BYTES).collect());
        assert_eq!(sorted(outer(sender, true, UNRELIABLE)), unreliable, "{what}: unreliable, sent");
        assert_eq!(sorted(outer(receiver, false, UNRELIABLE)), unreliable, "{what}: and arrived");

        let chunks: Vec<usize> = srd.iter().flat_map(|packet| chunks(packet.bytes)).collect();
        let data = outer_data(sender);
        let again = self.tx.grew("retransmissions");
        assert!(
            are_sent(&chunks, data.clone()),
            "{what}: every chunk of every frame is on the wire"
        );
        assert_eq!(
            data.len(),
            chunks.len() + again,
            "{what}: and nothing but them and repetitions"
        );
    }
}

fn count(packets: &[Inner]) -> BTreeMap<Kind, usize> {
    let mut by_kind = BTreeMap::new();
    for packet in packets {
        *by_kind.entry(packet.kind).or_default() += packet.segments().len();
    }
    by_kind
}

/// Returns the UDP payload lengths of the outer packets of one type. `leaves` selects packets that
/// leave the machine. The type is the lower half of the first byte, in clear text.
fn outer(capture: &Capture, leaves: bool, wanted: u8) -> Vec<usize> {
    let payloads = capture.of(true, leaves).map(|packet| &packet[IP_UDP_BYTES..]);
    payloads.filter(|bytes| bytes[0] == VERSION << 4 | wanted).map(<[u8]>::len).collect()
}

/// Returns the UDP payload length of each outer data packet that left, with whether it carries an
/// acknowledgement (A11). The flags in clear text show this.
fn outer_data(capture: &Capture) -> Vec<(usize, bool)> {
    let payloads = capture.of(true, true).map(|packet| &packet[IP_UDP_BYTES..]);
    let data = payloads.filter(|bytes| bytes[0] == VERSION << 4 | DATA);
    data.map(|bytes| (bytes.len(), bytes[1] & CARRIES_ACK != 0)).collect()
}

/// Returns the sizes of the data packets of a frame (F2). A frame is sent in as few chunks as
/// possible, which are of equal size, except that the last may be shorter.
fn chunks(packet_bytes: usize) -> Vec<usize> {
    let frame = packet_bytes + OFFLOAD_BYTES;
    let size = frame.div_ceil(frame.div_ceil(DATA_PAYLOAD_BYTES_MAX));
    (0..frame).step_by(size).map(|at| size.min(frame - at) + DATA_BYTES).collect()
}

fn sorted(mut all: Vec<usize>) -> Vec<usize> {
    all.sort_unstable();
    all
}

/// Whether `packets` contains a packet for each chunk, without or with an acknowledgement.
fn are_sent(chunks: &[usize], mut packets: Vec<(usize, bool)>) -> bool {
    packets.sort_unstable();
    let mut take = |fits: &dyn Fn(&(usize, bool)) -> bool| {
        let found = packets.iter().position(fits);
        found.map(|at| packets.remove(at)).is_some()
    };
    let mut with_ack: Vec<&usize> =
        chunks.iter().filter(|chunk| !take(&|packet| *packet == (**chunk, false))).collect();
    // A packet may fit several chunks. The smallest chunk takes the smallest packet that fits,
    // which leaves the larger packets to the larger chunks.
    with_ack.sort_unstable();
    with_ack.into_iter().all(|chunk| {
        take(&|(bytes, carries)| {
            let beside = bytes.saturating_sub(*chunk);
            *carries
                && ACK_BYTES.contains(&beside)
                && (beside - ACK_BYTES.start()).is_multiple_of(8)
        })
    })
}

#[test]
fn regression_chunks_share_packets_with_acknowledgements_whatever_their_order() {
    let (least, most) = ACK_BYTES.into_inner();
    let with_ack = |lengths: &[usize]| lengths.iter().map(|length| (*length, true)).collect();
    for (mut chunks, lengths) in [
        // The first packet fits both chunks, the second one only the smaller chunk.
        (vec![100, 108], vec![100 + least + 8, 100 + least]),
        // The first packet fits both chunks, the second one only the larger chunk.
        (vec![100, 196], vec![100 + most, 196 + most]),
        // Each packet fits its chunk and all smaller chunks.
        (vec![100, 108, 116], vec![100 + least, 108 + least, 116 + least]),
    ] {
        for _ in 0..2 {
            assert!(are_sent(&chunks, with_ack(&lengths)), "{chunks:?} {lengths:?}");
            chunks.reverse();
        }
    }
    assert!(!are_sent(&[108, 108], with_ack(&[100 + least + 8, 100 + least])));
}

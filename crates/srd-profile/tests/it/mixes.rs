//! Five mixes of traffic of known composition. Each mix is classified correctly, with no additional
//! kind. The recommended type carries the mix through the simulated limits and connection tracking
//! of a card, while the next smaller type of its family exceeds the limits that the report states.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

use srd_card::profile::{InstanceType, Profile};
use srd_profile::replay::Replay;
use srd_profile::traffic::Kind;
use srd_profile::{Filter, Profiler, Report, capture, report};
use srd_proto::time::{Duration, Instant};
use srd_watch::PacketDirection;
use srd_watch::read::Raw;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const SECOND: u64 = 1_000 * MS;
const HEADROOM: f64 = 0.1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
/// Payload bytes of the segments of super-packets.
const SEGMENT: u16 = 1448;
const SUPER: u32 = 44 * 1448 + 40;

/// A packet of a mix.
#[derive(Clone, Copy)]
struct MixPacket {
    at_ns: u64,
    out: bool,
    protocol: u8,
    /// Port of the local side, and port of the remote side.
    ports: (u16, u16),
    /// The last two bytes of the remote address.
    peer: u16,
    flags: u8,
    length: u32,
    segment: Option<u16>,
    /// Inner source port, if the packet is in VXLAN; otherwise `None`.
    inside: Option<u16>,
}

impl MixPacket {
    fn new(at_ns: u64, protocol: u8, ports: (u16, u16), length: u32) -> Self {
        let (peer, flags, segment, inside) = (2, ACK, None, None);
        Self { at_ns, out: true, protocol, ports, peer, flags, length, segment, inside }
    }

    /// Returns the first bytes of the packet, from the IP header on.
    fn bytes(&self) -> Vec<u8> {
        let [a, b] = self.peer.to_be_bytes();
        let ends = ([10, 0, 0, 1], [10, 1, a, b]);
        let (ports, ends) = if self.out {
            (self.ports, ends)
        } else {
            ((self.ports.1, self.ports.0), (ends.1, ends.0))
        };
        let mut bytes = header(self.protocol, self.length, ends, ports, self.flags);
        if let Some(port) = self.inside {
            bytes.extend([8, 0, 0, 0, 0, 0, 7, 0]);
            bytes.extend([2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0]);
            let ends = ([192, 168, 0, 1], [192, 168, 0, 2]);
            bytes.extend(header(TCP, self.length - 50, ends, (port, 80), ACK));
        }
        bytes
    }

    fn raw<'a>(&self, bytes: &'a [u8]) -> Raw<'a> {
        Raw {
            time: Instant::from_nanos(self.at_ns),
            way: if self.out { PacketDirection::Out } else { PacketDirection::In },
            ethertype: Some(0x0800),
            length: self.length,
            segment_bytes: self.segment,
            mtu_bytes: None,
            bytes,
        }
    }
}

fn header(
    protocol: u8,
    length: u32,
    (from, to): ([u8; 4], [u8; 4]),
    ports: (u16, u16),
    flags: u8,
) -> Vec<u8> {
    let said = u16::try_from(length).unwrap().to_be_bytes();
    let mut bytes = vec![0x45, 0, said[0], said[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    bytes.extend(from);
    bytes.extend(to);
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    match protocol {
        TCP => bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 255, 255, 0, 0, 0, 0]),
        _ => bytes.extend([said[0], said[1], 0, 0]),
    }
    bytes
}

type Sink<'a> = &'a mut dyn FnMut(&MixPacket);

/// Calls `each` at times that give a steady rate of `bps` bits per second; each call stands for
/// `bits` bits.
fn steady(bps: f64, bits: f64, (from_ns, to_ns): (u64, u64), mut each: impl FnMut(u64, u64)) {
    let apart = bits / bps * 1e9;
    let count = ((to_ns - from_ns) as f64 / apart) as u64;
    (0..count).for_each(|n| each(from_ns + (n as f64 * apart) as u64, n));
}

/// Generates one TCP flow of 4 Gb/s for 20 s, and a little other traffic.
fn whale(see: Sink<'_>) {
    steady(4e9, f64::from(SUPER) * 8.0, (0, 20 * SECOND), |at_ns, n| {
        let segment = Some(SEGMENT);
        see(&MixPacket { segment, ..MixPacket::new(at_ns, TCP, (5000, 5201), SUPER) });
        if n % 20 == 0 {
            let port = u16::try_from(n / 20 % 5).unwrap();
            see(&MixPacket::new(at_ns + 1, TCP, (6000 + port, 22), 120));
        }
    });
}

/// Generates 5000 UDP flows of small packets for 200 ms. They share 2.5 million packets per second
/// evenly.
fn entropy(see: Sink<'_>) {
    // Five packets of 100 bytes form one super-packet.
    let (length, segment) = (28 + 5 * 72, Some(72));
    steady(500_000.0, 1.0, (0, 200 * MS), |at_ns, n| {
        let flow = u16::try_from(n * 7919 % 5000).unwrap();
        let (out, peer) = (n % 2 == 0, flow % 100);
        let made = MixPacket::new(at_ns, UDP, (10_000 + flow, 53), length);
        see(&MixPacket { out, peer, segment, ..made });
    });
}

/// Generates a VXLAN tunnel with one source port and 100 TCP flows inside, at 7 Gb/s for 20 s.
fn tunnel(see: Sink<'_>) {
    steady(7e9, 62_000.0 * 8.0, (0, 20 * SECOND), |at_ns, n| {
        let inside = Some(40_000 + u16::try_from(n * 31 % 100).unwrap());
        let made = MixPacket::new(at_ns, UDP, (7777, 4789), 62_000);
        see(&MixPacket { inside, segment: Some(8_900), ..made });
    });
}

/// Generates 15,000 TCP connections per second for ten seconds. Each ends after 20 ms, and together
/// they fill the table of tracked connections.
fn short_lived(see: Sink<'_>) {
    let each = SECOND / 15_000;
    let steps = [
        (0, true, SYN, 60),
        (MS, false, SYN | ACK, 60),
        (2 * MS, true, ACK, 300),
        (20 * MS, false, ACK | FIN, 900),
        (20 * MS, true, ACK | FIN, 52),
    ];
    for now in 0..150_000 + 20 * MS / each {
        for (after_ns, out, flags, length) in steps {
            let Some(n) = now.checked_sub(after_ns / each).filter(|n| *n < 150_000) else {
                continue;
            };
            let ports = (u16::try_from(1024 + n % 60_000).unwrap(), 443);
            let peer = u16::try_from(n / 60_000).unwrap();
            let made = MixPacket::new(now * each, TCP, ports, length);
            see(&MixPacket { out, flags, peer, ..made });
        }
    }
}

/// Generates sixteen flows that together send 22 Gb/s for 10 ms in each second of a minute. The
/// mean over the minute is 0.22 Gb/s.
fn bursts(see: Sink<'_>) {
    for second in 0..61 {
        let from_ns = second * SECOND + 333 * MS;
        steady(22e9, 62_640.0 * 8.0, (from_ns, from_ns + 10 * MS), |at_ns, n| {
            let port = 5000 + u16::try_from(n % 16).unwrap();
            let made = MixPacket::new(at_ns, UDP, (port, 9000), 28 + 7 * 8944);
            see(&MixPacket { segment: Some(8944), ..made });
        });
        let made = MixPacket::new(second * SECOND + 900 * MS, UDP, (4000, 123), 76);
        see(&made);
    }
}

fn profiled(mix: fn(Sink<'_>), families: &[&str]) -> Report {
    let mut profiler = Profiler::new("mix", HEADROOM, Instant::from_nanos(0));
    let mut last = 0;
    mix(&mut |made| {
        profiler.see(&made.raw(&made.bytes()));
        last = made.at_ns;
    });
    let seen = profiler.finish(Instant::from_nanos(last + 1));
    report(seen, &filter(families), None)
}

fn filter(families: &[&str]) -> Filter {
    let families = families.iter().map(|family| (*family).to_owned()).collect();
    Filter { families, ..Filter::default() }
}

#[track_caller]
fn assert_kinds(report: &Report, wanted: &[Kind]) {
    let found: Vec<Kind> = report.kinds.iter().map(|found| found.kind).collect();
    assert_eq!(found, wanted, "{:?}", report.kinds);
}

/// Returns the counters of exceeded limits that increase when the mix passes a card of this
/// instance type.
fn replayed(mix: fn(Sink<'_>), name: &str, report: &Report) -> Vec<&'static str> {
    // EC2 does not publish how long full credits last. In this test they last only briefly, so that
    // a mean above the baseline takes effect within seconds.
    let profile = Profile::of(InstanceType::find(name).unwrap());
    let profile = profile.with_burst(Duration::from_secs(1));
    let kind = report.choices.flows_to;
    let mut replay = Replay::new(&profile, kind, Instant::from_nanos(0));
    mix(&mut |made| replay.see(&made.raw(&made.bytes())));
    replay.moved().into_iter().map(|(name, _)| name).collect()
}

/// Asserts that no counter increases with the recommended type, and that `counter` increases with
/// the next smaller type. `types` contains both names.
#[track_caller]
fn assert_holds(mix: fn(Sink<'_>), report: &Report, types: (&str, &str), counter: &str) {
    let choice = &report.choices.families[0];
    let smaller = choice.smaller.as_ref().unwrap();
    assert_eq!(
        (choice.sufficient.name, smaller.name),
        types,
        "{}",
        srd_profile::text::report(report)
    );
    assert!(smaller.first().exceeded, "{smaller:?}");
    assert_eq!(replayed(mix, choice.sufficient.name, report), [""; 0]);
    let moved = replayed(mix, smaller.name, report);
    assert!(moved.contains(&counter), "{moved:?}");
}

#[test]
fn one_whale_is_named_and_its_mean_decides_the_type() {
    let report = profiled(whale, &["c7i"]);
    assert_kinds(&report, &[Kind::Whale, Kind::SingleFlow, Kind::LongLived]);
    assert!(report.kinds[0].text.contains("10.0.0.1:5000 > 10.1.0.2:5201"), "{:?}", report.kinds);
    let types = ("c7i.4xlarge", "c7i.2xlarge");
    assert_holds(whale, &report, types, "bw_out_allowance_exceeded");
    assert!(report.advice.iter().any(|advice| advice.about == "flow"), "{:?}", report.advice);
}

#[test]
fn many_small_flows_are_named_and_packets_a_second_decide_the_type() {
    let report = profiled(entropy, &["c7i"]);
    assert_kinds(&report, &[Kind::ManyFlows, Kind::SmallPackets]);
    let types = ("c7i.2xlarge", "c7i.xlarge");
    assert_holds(entropy, &report, types, "pps_allowance_exceeded");
    let effective = report.seen.flows_effective;
    assert!((4_500.0..11_000.0).contains(&effective), "{effective}");
}

#[test]
fn a_tunnel_with_one_source_port_is_named_and_needs_a_placement_group() {
    let report = profiled(tunnel, &["c7i"]);
    assert_kinds(&report, &[Kind::TunnelOneFlow, Kind::SingleFlow, Kind::LongLived]);
    let text = &report.kinds[0].text;
    assert!(text.contains("VXLAN 10.0.0.1 > 10.1.0.2"), "{text}");
    let inside = report.seen.tunnels[0].inner_flows.unwrap();
    assert!((90..=110).contains(&inside), "{inside}");
    assert_eq!(report.choices.flows_to, srd_card::limits::FlowKind::ClusterPlacementGroup);
    let types = ("c7i.8xlarge", "c7i.4xlarge");
    assert_holds(tunnel, &report, types, "bw_out_allowance_exceeded");
    assert!(report.advice.iter().any(|advice| advice.about == "tunnel"));
}

#[test]
fn short_lived_connections_are_named_and_the_table_decides_the_type() {
    let report = profiled(short_lived, &["c7i"]);
    assert_kinds(&report, &[Kind::ManyFlows, Kind::ShortLived, Kind::SmallPackets]);
    let connections = &report.seen.connections;
    assert!(connections.began.abs_diff(150_000) < 1_500, "{connections:?}");
    assert!((14_500.0..15_600.0).contains(&connections.rates[1].max), "{connections:?}");
    assert!((19.0..21.0).contains(&connections.life_ms.unwrap().0), "{connections:?}");
    let types = ("c7i.xlarge", "c7i.large");
    assert_holds(short_lived, &report, types, "conntrack_allowance_exceeded");
    assert!(report.advice.iter().any(|advice| advice.about == "tracking"));
}

#[test]
fn bursts_behind_a_harmless_minute_are_named_and_their_peak_decides_the_type() {
    let report = profiled(bursts, &["c7i"]);
    assert_kinds(&report, &[Kind::LongLived, Kind::Bursts]);
    let minute = report.seen.rates_out[2].max;
    assert!((0.21e9..0.23e9).contains(&minute), "{minute}");
    let types = ("c7i.16xlarge", "c7i.12xlarge");
    assert_holds(bursts, &report, types, "bw_out_allowance_exceeded");
    assert!(report.advice.iter().any(|advice| advice.about == "bursts"));
}

/// A mix gives the same report if it is read from a capture file, which does not mark directions.
#[test]
fn a_capture_says_the_same_as_its_packets() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("short.pcap");
    // The file has time stamps in nanoseconds, and IP packets without link headers.
    let mut pcap = 0xa1b2_3c4d_u32.to_le_bytes().to_vec();
    pcap.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 101, 0, 0, 0]);
    let mut count = 0;
    short_lived(&mut |made| {
        count += 1;
        if count <= 50_000 {
            let (bytes, length) = (made.bytes(), u64::from(made.length));
            let kept = bytes.len() as u64;
            for word in [made.at_ns / SECOND, made.at_ns % SECOND, kept, length] {
                pcap.extend(u32::try_from(word).unwrap().to_le_bytes());
            }
            pcap.extend(bytes);
        }
    });
    std::fs::write(&file, pcap).unwrap();
    let options = capture::Options { headroom: HEADROOM, local: Vec::new(), mtu_bytes: None };
    let outcome = capture::run(&file, &options, &|| false, &mut |_| ()).unwrap();
    assert!(outcome.end.error.is_none());
    let (address, share) = outcome.guessed.unwrap();
    assert_eq!((address.to_string().as_str(), share), ("10.0.0.1", 1.0));
    let report = report(outcome.seen.into_iter().next().unwrap(), &filter(&["c7i"]), None);
    assert_kinds(&report, &[Kind::ManyFlows, Kind::ShortLived, Kind::SmallPackets]);
    assert!((10_000..10_400).contains(&report.seen.connections.began));
    let types = ["c7i.large"].map(|name| Profile::of(InstanceType::find(name).unwrap()));
    let (of, stop) = ((&outcome.local[..], None), &|| false);
    let moved = capture::replay(&file, of, &types, report.choices.flows_to, stop).unwrap();
    assert_eq!(moved, [vec![]]);
    let page = srd_profile::html::page([&report].into_iter(), &[]);
    assert!(page.contains("<svg") && page.contains("c7i.large"));
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no `{text}` in\n{page}"));
    assert!(at("<p class=\"verdict good\">c7i.large suffices") < at("packets, "), "{page}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["choices"]["families"][0]["sufficient"]["name"], "c7i.large");
}

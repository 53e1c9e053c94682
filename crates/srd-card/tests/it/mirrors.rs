//! Copies for mirror sessions: selection of packets, format of the copies, and their cost (M1 to
//! M5).
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;

use crate::lane::*;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::workers::Partition;
use srd_card::vpc::{Environment, FrameRoute, PortId};
use srd_card::{Direction, checksum};
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::judge::Service;
use srd_vpc::object::*;

const SOURCE: usize = 0;
const OTHER: usize = 1;
const TARGET: usize = 2;
const VNI: u32 = 0x0012_3456;

/// A world in which the first instance is the source of a mirror session, and the third instance is
/// its target. The filter accepts all packets that the source sends, and TCP to port 80 that it
/// receives. Copies are cut to `length` bytes.
fn mirrored(groups: [Vec<GroupRule>; 3], length: Option<u16>) -> World {
    let mut world = world(&[], groups);
    let name = String::new;
    let rule = |number, egress, accept, traffic, block: &str| MirrorRule {
        number,
        egress,
        accept,
        traffic,
        source_ports: None,
        source: block.parse().unwrap(),
        destination: block.parse().unwrap(),
    };
    let rules = vec![
        rule(1, false, true, Traffic::Tcp(80, 80), "0.0.0.0/0"),
        rule(1, true, false, Traffic::Tcp(22, 22), "0.0.0.0/0"),
        rule(2, true, true, Traffic::All, "0.0.0.0/0"),
        rule(3, true, true, Traffic::All, "::/0"),
    ];
    world.mirror_filters.insert(MirrorFilterId(1), MirrorFilter { name: name(), rules });
    let target = MirrorTarget { name: name(), eni: EniId(2) };
    world.mirror_targets.insert(MirrorTargetId(1), target);
    let session = |number, vni, filter| MirrorSession {
        name: name(),
        source: EniId(0),
        target: MirrorTargetId(1),
        filter: MirrorFilterId(filter),
        number,
        vni,
        packet_length: length,
    };
    // A later session gets the packets that the first one does not accept. As this one has the same
    // filter, it gets no packet.
    world.mirror_sessions.insert(MirrorSessionId(1), session(7, 99, 1));
    world.mirror_sessions.insert(MirrorSessionId(2), session(1, VNI, 1));
    world
}

struct Mirrors(Lab);

impl Mirrors {
    fn new(groups: [Vec<GroupRule>; 3], length: Option<u16>) -> Self {
        let world = mirrored(groups, length);
        let mut lab = Lab::new(&world);
        lab.card.set_mirrors(&world);
        Self(lab)
    }

    /// Sends a frame. Returns the packets that guests receive, without offload headers, each with
    /// the number of its guest.
    fn frame(&mut self, from: usize, frame: Vec<u8>) -> Vec<(usize, Vec<u8>)> {
        let mut around = Delivered::default();
        self.0.card.from_guest(Instant::ZERO, self.0.ports[from], frame, &mut around);
        let guest = |port| self.0.ports.iter().position(|other| *other == port).unwrap();
        let all = around.0.into_iter();
        all.map(|(port, frame)| (guest(port), frame[OFFLOAD_BYTES..].to_vec())).collect()
    }

    fn send(&mut self, from: usize, packet: &[u8]) -> Vec<(usize, Vec<u8>)> {
        self.frame(from, [&[0; OFFLOAD_BYTES][..], packet].concat())
    }

    /// Sends a packet. Returns the copies of it that the target of the session receives.
    fn copies(&mut self, from: usize, packet: &[u8]) -> Vec<Vec<u8>> {
        let all = self.send(from, packet).into_iter();
        all.filter(|(guest, _)| *guest == TARGET).map(|(_, bytes)| bytes).collect()
    }

    fn counts(&self) -> [u64; 3] {
        let counts = self.0.card.counts(self.0.ports[SOURCE]);
        [counts.mirrored_packets, counts.mirrored_bytes, counts.mirror_dropped]
    }
}

fn tcp(ends: (u8, u8), to: u16) -> Vec<u8> {
    let mut packet = packet(ends, TCP, 0, &ports(5, to));
    let sum = checksum::of(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn a_copy_is_the_packet_in_vxlan_from_the_source_to_the_target() {
    let mut lab = Mirrors::new([open(), open(), open()], None);
    let sent = tcp((0, 1), 443);
    let got = lab.send(SOURCE, &sent);
    assert!(got.contains(&(OTHER, sent.clone())), "the packet itself arrives");
    let [copy] = &lab.copies(SOURCE, &sent)[..] else { panic!("one copy") };
    assert_eq!(copy.len(), 50 + sent.len());
    assert_eq!(checksum::of(&copy[..20]), 0);
    assert_eq!((&copy[12..16], &copy[16..20]), (&v4(10).octets()[..], &v4(12).octets()[..]));
    assert_eq!(copy[22..24], 4789_u16.to_be_bytes());
    assert_eq!(copy[28..36], [8, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
    // The Ethernet source is that of the source interface, and the type is IPv4.
    assert_eq!((&copy[42..48], &copy[48..50]), (&[2; 6][..], &[8, 0][..]));
    assert_eq!(copy[50..], sent);
    assert_eq!(lab.counts(), [2, 2 * copy.len() as u64, 0]);
    // All copies of a flow have one source port, and flows have different ones.
    let port = |lab: &mut Mirrors, to| lab.copies(SOURCE, &tcp((0, 1), to))[0][20..22].to_vec();
    assert_eq!(port(&mut lab, 443), copy[20..22]);
    let all: BTreeSet<_> = (1000..1064).map(|to| port(&mut lab, to)).collect();
    assert!(all.len() > 50, "{}", all.len());
}

#[test]
fn copied_is_what_the_filter_accepts_and_what_was_not_refused() {
    let only_80 = vec![
        rule(0, false, Traffic::All, "0.0.0.0/0"),
        rule(1, true, Traffic::Tcp(0, 8000), "0.0.0.0/0"),
    ];
    let mut lab = Mirrors::new([only_80, open(), open()], None);
    for (from, ends, to, copies) in [
        (SOURCE, (0, 1), 443, 1),
        (SOURCE, (0, 1), 22, 0),   // a rule of the filter rejects it
        (SOURCE, (0, 1), 9000, 0), // the groups of the source refuse it
        (OTHER, (1, 0), 80, 1),
        (OTHER, (1, 0), 81, 0), // no rule of the filter accepts it
        (OTHER, (1, 2), 80, 1), // the packet itself, to the target
    ] {
        assert_eq!(lab.copies(from, &tcp(ends, to)).len(), copies, "{from} {to}");
    }
    // Packets to the target itself are copied as well, once.
    assert_eq!(lab.copies(SOURCE, &tcp((0, 2), 443)).len(), 2);
    // DHCP is not copied.
    let dhcp = packet((0, 1), UDP, 0, &[0, 68, 0, 67, 0, 8, 0, 0]);
    assert_eq!(lab.copies(SOURCE, &dhcp).len(), 0);
    // The copy of an IPv6 packet has outer headers of IPv4.
    let mut groups = [open(), open(), open()];
    groups.iter_mut().for_each(|rules| rules.truncate(4));
    let mut lab = Mirrors::new(groups, None);
    let sent = packet6((0, 1), TCP, &ports(5, 443));
    let copy = &lab.copies(SOURCE, &sent)[0];
    assert_eq!((&copy[48..50], &copy[50..]), (&[0x86, 0xdd][..], &sent[..]));
}

#[test]
fn groups_of_the_target_are_asked_and_those_of_the_source_are_not() {
    // The source may send only TCP, and the target accepts only VXLAN.
    let only_tcp = vec![rule(0, true, Traffic::Tcp(0, 65535), "0.0.0.0/0")];
    let only_vxlan = vec![rule(0, false, Traffic::Udp(4789, 4789), "0.0.0.0/0")];
    let mut lab = Mirrors::new([only_tcp.clone(), open(), only_vxlan], None);
    assert_eq!(lab.copies(SOURCE, &tcp((0, 1), 443)).len(), 1);
    let mut lab = Mirrors::new([only_tcp, open(), vec![]], None);
    assert_eq!(lab.copies(SOURCE, &tcp((0, 1), 443)).len(), 0);
    assert_eq!(lab.counts()[0], 1, "it was sent, and refused at the target");
}

#[test]
fn copies_are_cut_to_the_session_and_to_the_mtu() {
    let large = [&ports(5, 443)[..], &[7; 8956]].concat();
    let sent = packet((0, 1), TCP, 0, &large);
    assert_eq!(sent.len(), 8996);
    let mut lab = Mirrors::new([open(), open(), open()], None);
    let copy = &lab.copies(SOURCE, &sent)[0];
    assert_eq!((copy.len(), u16::from_be_bytes([copy[2], copy[3]])), (9001, 9001));
    assert_eq!(copy[50..], sent[..8951]);
    let mut lab = Mirrors::new([open(), open(), open()], Some(64));
    let copy = &lab.copies(SOURCE, &sent)[0];
    assert_eq!((copy.len(), &copy[50..]), (36 + 64, &sent[..50]));
    assert_eq!(u16::from_be_bytes([copy[24], copy[25]]), 8 + 8 + 64, "the length of UDP");
}

/// Environment that keeps frames for other hosts, and frames for guests.
#[derive(Default)]
struct Between {
    hosts: Vec<Vec<u8>>,
    guests: Vec<Vec<u8>>,
}

impl Environment for Between {
    fn to_guest(&mut self, _: PortId, frame: Vec<u8>) {
        self.guests.push(frame);
    }
    fn to_host(&mut self, _: FrameRoute<'_>, frame: Vec<u8>) {
        self.hosts.push(frame[OFFLOAD_BYTES..].to_vec());
    }
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

/// A copy that does not fit its path is cut. In an earlier version, it was lost without being
/// counted, and the source's guest got an error about a packet that it had not sent.
#[test]
fn regression_copies_for_another_host_are_cut_to_the_way_there() {
    let mut world = mirrored([open(), open(), open()], None);
    world.instances.get_mut(&InstanceId(2)).unwrap().host = Some("other".into());
    let mut lab = Lab::new(&world);
    lab.card.set_mirrors(&world);
    lab.card.set_host_bytes_max(1428);
    let sent = packet((0, 1), TCP, 0, &[&ports(5, 443)[..], &[7; 1376]].concat());
    let mut around = Between::default();
    let frame = [&[0; OFFLOAD_BYTES][..], &sent].concat();
    lab.card.from_guest(Instant::ZERO, lab.ports[SOURCE], frame, &mut around);
    assert_eq!(around.guests.len(), 1, "the packet at its receiver, and no ICMP for the source");
    let [copy] = &around.hosts[..] else { panic!("{:?}", around.hosts) };
    assert_eq!((copy.len(), u16::from_be_bytes([copy[2], copy[3]])), (1428, 1428));
    assert_eq!(u16::from_be_bytes([copy[24], copy[25]]), 1428 - 20, "the length of UDP");
    assert_eq!(checksum::of(&copy[..20]), 0);
    assert_eq!(copy[50..], sent[..1428 - 50]);
    let counts = lab.card.counts(lab.ports[SOURCE]);
    assert_eq!((counts.mirrored_packets, counts.mirrored_bytes), (1, 1428));
}

/// A copy for another worker of this host was cut to the size of packets between hosts. // W2
#[test]
fn regression_copies_for_another_worker_are_whole() {
    let mut world = mirrored([open(), open(), open()], None);
    let mut partition = Partition::new(HOST, 2);
    for (instance, worker) in [(0, 0), (1, 0), (2, 1)] {
        assert!(partition.assign(InstanceId(instance), worker));
    }
    partition.divide(&mut world, |_| 1);
    let mut lab = Lab::new(&world);
    lab.card.set_beside(&partition.view(0, &world));
    lab.card.set_mirrors(&world);
    lab.card.set_host_bytes_max(1428);
    let sent = packet((0, 1), TCP, 0, &[&ports(5, 443)[..], &[7; 4000]].concat());
    let mut around = Between::default();
    let frame = [&[0; OFFLOAD_BYTES][..], &sent].concat();
    lab.card.from_guest(Instant::ZERO, lab.ports[SOURCE], frame, &mut around);
    let [copy] = &around.hosts[..] else { panic!("{:?}", around.hosts) };
    assert_eq!((copy.len(), &copy[50..]), (50 + sent.len(), &sent[..]));
    assert_eq!(around.guests.len(), 1);
}

/// Without a transport nothing limits the size of packets between hosts. In an earlier version, the
/// sum of this size and of the offload header overflowed, and the card ended.
#[test]
fn regression_a_copy_for_another_host_is_whole_if_packets_may_have_any_size() {
    let mut world = mirrored([open(), open(), open()], None);
    world.instances.get_mut(&InstanceId(2)).unwrap().host = Some("other".into());
    let mut lab = Lab::new(&world);
    lab.card.set_mirrors(&world);
    let sent = tcp((0, 1), 443);
    let mut around = Between::default();
    let frame = [&[0; OFFLOAD_BYTES][..], &sent].concat();
    lab.card.from_guest(Instant::ZERO, lab.ports[SOURCE], frame, &mut around);
    let [copy] = &around.hosts[..] else { panic!("{:?}", around.hosts) };
    assert_eq!(copy[50..], sent);
    assert_eq!(around.guests.len(), 1);
}

/// Answers to copies are not copied: the copy of an answer would be answered as well, without end.
#[test]
fn regression_what_answers_a_copy_is_not_copied() {
    let mut world = mirrored([open(), open(), open()], None);
    for filter in world.mirror_filters.values_mut() {
        for rule in filter.rules.iter_mut().filter(|rule| !rule.egress) {
            rule.traffic = Traffic::All;
        }
    }
    let mut lab = Lab::new(&world);
    lab.card.set_mirrors(&world);
    let mut lab = Mirrors(lab);
    let copy = lab.copies(SOURCE, &tcp((0, 1), 443)).remove(0);
    let from = u16::from_be_bytes([copy[20], copy[21]]);
    let answer = packet((2, 0), UDP, 0, &[&ports(4789, from)[..], &[0; 4]].concat());
    let quoting =
        |quoted: &[u8]| packet((2, 0), ICMP, 0, &[&[3, 3, 0, 0, 0, 0, 0, 0], quoted].concat());
    let error = quoting(&copy[..60]);
    for sent in [&answer, &error] {
        let got = lab.send(TARGET, sent);
        assert_eq!(got, [(SOURCE, sent.clone())], "it arrives, and that is all");
    }
    // All other packets of the target are copied, errors about other packets included.
    let other = packet((2, 0), UDP, 0, &[&ports(53, from)[..], &[0; 4]].concat());
    for sent in [other, quoting(&tcp((0, 2), 443))] {
        assert_eq!(lab.send(TARGET, &sent).len(), 2);
    }
}

/// Copies use the source's bandwidth, but no packet waits for a copy: while packets wait, copies
/// are lost, and packets are not.
#[test]
fn copies_are_dropped_first_when_bandwidth_is_short() {
    let mut lab = Mirrors::new([open(), open(), open()], None);
    // Each packet has a flow of its own, so that the instance is the limit, not a flow.
    let large = |from| packet((0, 1), TCP, 0, &[&ports(from, 443)[..], &[7; 8900]].concat());
    let bytes = large(0).len() as u64;
    let (mut own, mut copies, mut sent) = (0_u64, 0, 0_u64);
    while sent - lab.0.card.counts(lab.0.ports[SOURCE]).tx_packets < 50 {
        for (guest, _) in lab.send(SOURCE, &large(u16::try_from(sent).unwrap())) {
            *(if guest == TARGET { &mut copies } else { &mut own }) += 1;
        }
        sent += 1;
        assert!(sent < 10_000);
    }
    assert!(copies > 0 && copies == lab.counts()[0], "{copies} {:?}", lab.counts());
    // A copy costs as much as a packet.
    let credits = |lab: &mut Mirrors| {
        lab.0.card.credits_bits(Instant::ZERO, lab.0.ports[SOURCE], Direction::Egress)
    };
    let mut without = Lab::new(&world(&[], [open(), open(), open()]));
    let full = without.card.credits_bits(Instant::ZERO, without.ports[SOURCE], Direction::Egress);
    let paid = lab.counts()[1] + sent * bytes;
    assert_eq!(full - credits(&mut lab), paid * 8);
    // Packets that wait pass later; none of the guest's own was dropped.
    let mut around = Delivered::default();
    lab.0.card.poll(Instant::ZERO + Duration::from_secs(1), &mut around);
    own += around.0.iter().filter(|(port, _)| *port == lab.0.ports[OTHER]).count() as u64;
    assert_eq!(own, sent);
    assert!(lab.counts()[2] >= 49, "{:?}", lab.counts());
    assert_eq!(lab.0.card.counts(lab.0.ports[SOURCE]).tx_packets, sent);
}

#[test]
fn flow_logs_leave_copies_out_and_sessions_that_end_copy_no_more() {
    let mut lab = Mirrors::new([open(), open(), open()], None);
    let minute = Duration::from_secs(60);
    let lengths: BTreeMap<_, _> = (0..3).map(|n| (EniId(n), BTreeSet::from([minute]))).collect();
    lab.0.card.set_flow_logs(Instant::ZERO, &lengths);
    assert_eq!(lab.copies(SOURCE, &tcp((0, 1), 443)).len(), 1);
    lab.0.card.poll(Instant::ZERO + minute, &mut Delivered::default());
    let mut flows = BTreeMap::new();
    while let Some(logged) = lab.0.card.take_window() {
        flows.insert(logged.eni.0, logged.window.len());
    }
    assert_eq!(flows, BTreeMap::from([(0, 1), (1, 1), (2, 0)]));
    lab.0.card.set_mirrors(&world(&[], [open(), open(), open()]));
    assert_eq!(lab.copies(SOURCE, &tcp((0, 1), 443)).len(), 0);
}

/// If the target of a session is on no host, the copy is counted as dropped, and the packet
/// arrives.
#[test]
fn a_target_that_cannot_be_reached_costs_the_copy_only() {
    let mut world = mirrored([open(), open(), open()], None);
    world.instances.get_mut(&InstanceId(2)).unwrap().host = None;
    let mut lab = Mirrors::new([open(), open(), open()], None);
    lab.0.card.set_rules(Arc::new(Rules::compile(&world, HOST)));
    let got = lab.send(SOURCE, &tcp((0, 1), 443));
    assert_eq!(got.iter().map(|(guest, _)| *guest).collect::<Vec<_>>(), [OTHER]);
    assert_eq!(lab.counts(), [0, 0, 1]);
}

/// Each packet of a super-packet has a copy of its own, with its checksum; Wireshark's dissectors
/// accept all of them.
#[test]
fn tshark_decodes_copies_of_packets_and_of_super_packets() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: no tshark (apt-get install tshark)");
        return;
    }
    let mut lab = Mirrors::new([open(), open(), open()], None);
    let mut all = lab.copies(SOURCE, &tcp((0, 1), 443));
    // 3000 bytes in segments of 1000, whose checksum is left to hardware.
    let mut packet = packet((0, 1), TCP, 0, &[&ports(6, 443)[..], &[7; 3000]].concat());
    let sum = checksum::pseudo_header(&packet[12..20], TCP, 3020);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    let mut offload = [0; OFFLOAD_BYTES];
    (offload[0], offload[1]) = (1, 1); // a checksum is needed; TCP over IPv4
    offload[2..4].copy_from_slice(&40_u16.to_le_bytes());
    offload[4..6].copy_from_slice(&1000_u16.to_le_bytes());
    offload[6..8].copy_from_slice(&20_u16.to_le_bytes());
    offload[8..10].copy_from_slice(&16_u16.to_le_bytes());
    let got = lab.frame(SOURCE, [&offload[..], &packet].concat());
    all.extend(got.into_iter().filter(|(guest, _)| *guest == TARGET).map(|(_, bytes)| bytes));
    assert_eq!(all.len(), 4);

    // A capture file of raw IP packets.
    let mut file: Vec<u8> = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for copy in &all {
        let length = u32::try_from(copy.len()).unwrap();
        for word in [0, 0, length, length] {
            file.extend_from_slice(&u32::to_le_bytes(word));
        }
        file.extend_from_slice(copy);
    }
    let path = std::env::temp_dir().join(format!("srd-mirror-{}.pcap", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&path).args(["-o", "ip.check_checksum:TRUE", "-T", "fields"]);
    tshark.args(["-o", "tcp.check_checksum:TRUE", "-E", "separator=;", "-E", "aggregator=,"]);
    for field in [
        "vxlan.vni",
        "ip.src",
        "ip.dst",
        "ip.checksum.status",
        "tcp.dstport",
        "tcp.len",
        "tcp.checksum.status",
    ] {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let head = "1193046;10.0.0.10,10.0.0.10;10.0.0.12,10.0.0.11;1,1;443";
    assert_eq!(lines.len(), 4, "{text} {}", String::from_utf8_lossy(&output.stderr));
    assert!(lines[0].starts_with(&format!("{head};0;")), "{text}");
    assert_eq!(
        lines[1..],
        [format!("{head};1000;1"), format!("{head};1000;1"), format!("{head};1000;1")],
        "{text}"
    );
}

use super::*;
use crate::sys::bpf::{Program, Purpose};
use crate::sys::shared::records::{Counter, RecordRing, Remainder};

/// Bytes of the smallest ring: one page.
const RING_BYTES: u32 = 4096;

/// The program in the kernel with its ring and counter, if this process may load it.
struct Loaded {
    ring: RecordRing,
    lost: Counter,
    program: Program,
}

impl Loaded {
    fn new(whole: bool) -> Option<Self> {
        let ring = match RecordRing::new(RING_BYTES) {
            Ok(ring) => ring,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "no BPF ring in CI: {error}");
                println!("skipped: no right to make a BPF ring: {error}");
                return None;
            }
        };
        let lost = Counter::new().unwrap();
        let (ring_fd, lost_fd) = (ring.number(), lost.number());
        let recorder = Recorder { ring: ring_fd, lost: lost_fd, link_bytes: 14, way: 1, whole };
        let program = Program::load(Purpose::Egress, &assemble(&recorder));
        let program = program.unwrap_or_else(|refused| {
            panic!("{}\n{}", refused.error, refused.log);
        });
        Some(Self { ring, lost, program })
    }

    /// Runs the program on a packet, and checks that the packet continues to the next program.
    fn run(&self, packet: &[u8]) {
        assert_eq!(self.program.run(packet).unwrap(), NEXT.cast_unsigned());
    }

    /// Returns the records in the ring: the header of each, and the copied bytes.
    fn records(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let rest = self.ring.look(usize::MAX, |record| {
            let (head, bytes) = record.split_at(24);
            let kept = u16::from_ne_bytes([head[16], head[17]]);
            found.push((head.to_vec(), bytes[..kept.into()].to_vec()));
        });
        assert_eq!(rest, Remainder::Nothing);
        found
    }

    /// Returns the number of bytes that are copied from a packet.
    fn kept(&mut self, packet: &[u8]) -> usize {
        self.run(packet);
        let records = self.records();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].1, packet[14..][..records[0].1.len()]);
        records[0].1.len()
    }
}

/// Returns an Ethernet frame with this EtherType.
fn frame(ethertype: u16, behind: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(behind);
    frame
}

/// Returns an IPv4 packet of 400 bytes with this protocol and, if the protocol has ports, this
/// destination port.
fn v4(protocol: u8, port: u16) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..400_u16).map(|n| n.to_le_bytes()[0]).collect();
    packet[0] = 0x45;
    packet[9] = protocol;
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    packet
}

/// Returns an IPv6 packet with this protocol and destination port.
fn v6(protocol: u8, port: u16) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..400_u16).map(|n| n.to_le_bytes()[0]).collect();
    packet[0] = 0x60;
    packet[6] = protocol;
    packet[42..44].copy_from_slice(&port.to_be_bytes());
    packet
}

#[test]
fn a_record_says_when_which_way_how_long_and_of_what() {
    let Some(mut loaded) = Loaded::new(false) else { return };
    let packet = frame(0x0800, &v4(6, 80));
    let before = crate::sys::os::monotonic_ns();
    loaded.run(&packet);
    let after = crate::sys::os::monotonic_ns();
    let records = loaded.records();
    let [(head, bytes)] = records.as_slice() else { panic!("one record: {records:?}") };
    let time = u64::from_ne_bytes(head[..8].try_into().unwrap());
    assert!((before..=after).contains(&time), "{before} {time} {after}");
    assert_eq!(head[8..12], 400_u32.to_ne_bytes());
    assert_eq!(head[12..14], [8, 0]);
    assert_eq!(head[14..16], [0, 0], "no segments");
    assert_eq!(head[18], 1);
    assert_eq!(bytes[..], packet[14..78]);
}

#[test]
fn plain_flows_need_few_bytes_and_what_may_be_a_tunnel_many() {
    let Some(mut loaded) = Loaded::new(false) else { return };
    for (ip, ethertype) in [(v4 as fn(u8, u16) -> Vec<u8>, 0x0800), (v6, 0x86dd)] {
        for (protocol, port, kept) in [
            (6, 80, 64),
            (6, 4789, 64),
            (17, 53, 64),
            (17, 4789, 256),
            (17, 8472, 256),
            (17, 6081, 256),
            (47, 0, 256),
            (4, 0, 256),
            (41, 0, 256),
            (0, 0, 256),
        ] {
            let packet = frame(ethertype, &ip(protocol, port));
            assert_eq!(loaded.kept(&packet), kept, "{ethertype:x} {protocol} {port}");
        }
    }
    let mut options = v4(6, 80);
    options[0] = 0x46;
    assert_eq!(loaded.kept(&frame(0x0800, &options)), 256);
    // A tunnel may follow a VLAN tag; ARP and other protocols are only counted.
    assert_eq!(loaded.kept(&frame(0x88a8, &v4(6, 80))), 256);
    assert_eq!(loaded.kept(&frame(0x0806, &v4(6, 80))), 64);
}

#[test]
fn many_bytes_of_every_packet_if_they_are_wanted() {
    let Some(mut loaded) = Loaded::new(true) else { return };
    assert_eq!(loaded.kept(&frame(0x0800, &v4(6, 80))), 256);
    assert_eq!(loaded.kept(&frame(0x0806, &v4(6, 80))), 256);
}

#[test]
fn of_a_short_packet_all_bytes_are_kept() {
    for whole in [false, true] {
        let Some(mut loaded) = Loaded::new(whole) else { return };
        for bytes in [20, 23, 24, 25, 63, 64] {
            assert_eq!(loaded.kept(&frame(0x0800, &v4(6, 80)[..bytes])), bytes);
        }
        assert_eq!(loaded.kept(&frame(0x0806, &[7])), 1);
    }
}

#[test]
fn what_finds_no_room_is_counted_and_room_is_given_back() {
    let Some(mut loaded) = Loaded::new(false) else { return };
    let packet = frame(0x0800, &v4(6, 80));
    // A record takes 8 + 24 + 64 bytes, and the ring holds as many records as fit.
    let (sent, room) = (100, u64::from(RING_BYTES) / 96);
    for round in 1..=5 {
        for _ in 0..sent {
            loaded.run(&packet);
        }
        assert_eq!(loaded.records().len() as u64, room);
        assert_eq!(loaded.lost.value(), round * (sent - room));
    }
    // A call may read fewer records than there are.
    (0..10).for_each(|_| loaded.run(&packet));
    assert_eq!(loaded.ring.look(4, |_| ()), Remainder::More);
    assert_eq!(loaded.records().len(), 6);
}

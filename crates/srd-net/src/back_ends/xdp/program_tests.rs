use srd_proto::transmit::Ecn;

use super::super::headers::{Headers, Sum};
use super::*;
use crate::sys::bpf::{Program, Purpose, SocketMap};

/// Verdict that stands for "to the socket", because the maps of these tests have no socket.
const TAKEN: u8 = 1;
const PORT: u16 = 9000;

/// Loads the program into the kernel; `None` if this process does not have the right.
fn loaded(address: &str, mode: Mode) -> Option<(SocketMap, Program)> {
    let map = match SocketMap::new(1) {
        Ok(map) => map,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "no BPF maps in CI: {error}");
            println!("skipped: no right to make BPF maps: {error}");
            return None;
        }
    };
    let filter = PacketFilter {
        address: address.parse().unwrap(),
        port: PORT,
        ip_bytes_max: 3000,
        mode,
        map: map.number(),
        otherwise: TAKEN,
    };
    let program = Program::load(Purpose::Xdp, &assemble(&filter)).unwrap_or_else(|refused| {
        panic!("{}\n{}", refused.error, refused.log);
    });
    Some((map, program))
}

fn packet(from: &str, to: &str, payload: usize) -> Vec<u8> {
    let headers = Headers {
        to_mac: [2, 0, 0, 0, 0, 1],
        from_mac: [2, 0, 0, 0, 0, 2],
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        dscp: 0,
        ecn: Ecn::Ect,
    };
    let mut out = vec![0; headers.length()];
    headers.write(&mut out, payload, Sum::default());
    out.resize(headers.length() + payload, 0);
    out
}

/// Checks the verdict on a packet, and that it changes if any byte of `matters` changes, and for no
/// other byte.
fn check(program: &Program, packet: &[u8], matters: &[std::ops::Range<usize>]) {
    assert_eq!(program.run(packet).unwrap(), u32::from(TAKEN));
    for place in 0..packet.len() {
        let mut other = packet.to_vec();
        other[place] ^= 0x10;
        let taken = program.run(&other).unwrap() == u32::from(TAKEN);
        let wanted = !matters.iter().any(|range| range.contains(&place));
        assert_eq!(taken, wanted, "byte {place}");
    }
}

#[test]
fn only_udp_to_our_address_and_port_is_taken_in_ipv4() {
    let Some((_map, program)) = loaded("10.0.0.1", Mode::Native) else { return };
    let packet = packet("10.0.0.2:7000", "10.0.0.1:9000", 100);
    // Type, version and header length, length (too long), fragment bits, protocol, address, port.
    check(&program, &packet, &[12..15, 16..17, 20..22, 23..24, 30..34, 36..38]);
    for (flags, taken) in [(0x00, true), (0x40, true), (0x20, false), (0x1f, false)] {
        let mut other = packet.clone();
        other[20] = flags;
        assert_eq!(program.run(&other).unwrap() == u32::from(TAKEN), taken, "{flags:x}");
    }
}

#[test]
fn only_udp_to_our_address_and_port_is_taken_in_ipv6() {
    let Some((_map, program)) = loaded("fd00::1", Mode::Native) else { return };
    let packet = packet("[fd00::2]:7000", "[fd00::1]:9000", 100);
    check(&program, &packet, &[12..15, 18..19, 20..21, 38..54, 56..58]);
    // Bits of the traffic class in this byte do not belong to the version.
    let mut marked = packet;
    marked[14] |= 0x0f;
    assert_eq!(program.run(&marked).unwrap(), u32::from(TAKEN));
}

#[test]
fn a_packet_that_the_socket_cannot_receive_goes_to_the_kernel() {
    for (address, peer) in [("10.0.0.1", "10.0.0.2:7"), ("fd00::1", "[fd00::2]:7")] {
        let Some((_map, program)) = loaded(address, Mode::Native) else { return };
        let to = std::net::SocketAddr::new(address.parse().unwrap(), PORT).to_string();
        let headers = if address.contains(':') { 48 } else { 28 };
        for (bytes, verdict) in [(3000 - headers, TAKEN), (3001 - headers, XDP_PASS)] {
            let got = program.run(&packet(peer, &to, bytes)).unwrap();
            assert_eq!(got, u32::from(verdict), "{bytes}");
        }
    }
}

#[test]
fn a_cut_packet_goes_to_the_kernel() {
    let Some((_map, program)) = loaded("10.0.0.1", Mode::Native) else { return };
    let packet = packet("10.0.0.2:7000", "10.0.0.1:9000", 100);
    for bytes in 14..42 {
        assert_eq!(program.run(&packet[..bytes]).unwrap(), u32::from(XDP_PASS), "{bytes}");
    }
    assert_eq!(program.run(&packet[..42]).unwrap(), u32::from(TAKEN));
}

#[test]
fn a_checksum_left_to_a_device_decides_in_the_generic_mode_only() {
    for (address, peer) in [("10.0.0.1", "10.0.0.2:7"), ("fd00::1", "[fd00::2]:7")] {
        let to = std::net::SocketAddr::new(address.parse().unwrap(), PORT).to_string();
        for (mode, verdict) in [(Mode::Native, TAKEN), (Mode::Generic, XDP_PASS)] {
            let Some((_map, program)) = loaded(address, mode) else { return };
            let mut packet = packet(peer, &to, 100);
            assert_eq!(program.run(&packet).unwrap(), u32::from(TAKEN), "a whole one");
            let at = if address.contains(':') { 60 } else { 40 };
            // Sum over the pseudo-header, without the rest of the UDP header and the payload.
            let addresses = if address.contains(':') { 22..54 } else { 26..34 };
            let mut sum = u32::from(u16::from_ne_bytes([0, 17]));
            let mut add = |two: &[u8]| sum += u32::from(u16::from_ne_bytes([two[0], two[1]]));
            packet[addresses].chunks(2).for_each(&mut add);
            add(&packet[at - 2..at]);
            let once = (sum & 0xffff) + (sum >> 16);
            let folded = u16::try_from((once & 0xffff) + (once >> 16)).unwrap();
            packet[at..at + 2].copy_from_slice(&folded.to_ne_bytes());
            assert_eq!(program.run(&packet).unwrap(), u32::from(verdict), "{mode:?}");
        }
    }
}

#[test]
fn a_refused_program_comes_with_the_verifiers_words() {
    let Some((_map, _program)) = loaded("10.0.0.1", Mode::Native) else { return };
    let nonsense = [Instruction { code: 0x95, registers: 0, offset: 0, immediate: 0 }];
    let refused = Program::load(Purpose::Xdp, &nonsense).unwrap_err();
    assert!(refused.log.contains("R0"), "{}", refused.log);
}

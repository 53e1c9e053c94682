//! Forged frames: mostly like those of a normal guest, with some changes.

use super::oracle;
use super::script::Input;

const PAYLOADS: [usize; 10] = [0, 1, 4, 40, 500, 1360, 1400, 3000, 20_000, 65_000];

/// Creates a frame from machine `from` to machine `to`. `mark` identifies the sender.
pub(super) fn frame(input: &mut Input<'_>, mark: u8, from: usize, to: usize) -> Vec<u8> {
    let shape = input.byte();
    let (v6, protocol) = (shape & 1 == 1, [6, 17, 6, 1, 47, 58, 4, 6][usize::from(shape >> 1 & 7)]);
    let mut packet = if v6 { ip6(input, from, to) } else { ip4(input, from, to) };
    let at = if v6 { 6 } else { 9 };
    packet[at] = protocol;
    if v6 && shape & 0x60 == 0x60 {
        extend(input, &mut packet);
    }
    let transport_at = packet.len();
    transport(input, protocol, &mut packet);
    let bytes = PAYLOADS[input.below(PAYLOADS.len())];
    packet.resize(packet.len() + bytes, shape);
    let length = (packet.len() - if v6 { 40 } else { 0 }) as u16;
    let at = if v6 { 4 } else { 2 };
    packet[at..at + 2].copy_from_slice(&length.to_be_bytes());
    let mut frame = offload(input, v6, protocol, transport_at).to_vec();
    frame.extend_from_slice(&packet);
    for _ in 0..input.byte().saturating_sub(250) {
        // Changes a random byte.
        let (at, to) = (input.below(frame.len().min(90)), input.byte());
        frame[at] = to;
    }
    if input.byte() > 250 {
        frame.truncate(input.below(100));
    }
    frame.truncate(65_535 + input.below(2));
    if let Some(byte) = frame.get_mut(oracle::MARK_AT) {
        oracle::stamp(byte, mark);
    }
    frame
}

fn ip4(input: &mut Input<'_>, from: usize, to: usize) -> Vec<u8> {
    let host = input.of(&[1u8, 2, 129]);
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, 0, 0, 0];
    packet.extend([10, 0, from as u8, host, 10, 0, to as u8, 1]);
    match input.byte() {
        0..=150 => packet[6] = 0x40,
        151..=200 => {}
        201..=220 => packet[6] = 0x20,
        // A later fragment.
        offset => packet[7] = offset,
    }
    if input.byte() > 230 {
        let options = input.below(11);
        packet[0] += options as u8;
        packet.extend((0..options * 4).map(|at| (at as u8).wrapping_mul(37)));
    }
    packet
}

fn ip6(input: &mut Input<'_>, from: usize, to: usize) -> Vec<u8> {
    let mut packet = vec![0; 40];
    (packet[0], packet[7]) = (0x60, 64);
    (packet[8], packet[11], packet[23]) = (0xfd, from as u8, input.byte());
    (packet[24], packet[27], packet[39]) = (0xfd, to as u8, 1);
    packet
}

/// Inserts extension headers between the IPv6 header and the transport header.
fn extend(input: &mut Input<'_>, packet: &mut Vec<u8>) {
    let mut next_at = 6;
    for _ in 0..1 + input.below(10) {
        let kind = input.of(&[0u8, 43, 60, 44]);
        let protocol = packet[next_at];
        packet[next_at] = kind;
        next_at = packet.len();
        packet.extend([protocol, 0, 0, input.byte(), 0, 0, 0, 0]);
    }
}

fn transport(input: &mut Input<'_>, protocol: u8, packet: &mut Vec<u8>) {
    let ports = [0, input.byte() % 12, 0, 80];
    match protocol {
        6 => {
            packet.extend(ports);
            packet.extend([0, 0, 0, 1, 0, 0, 0, 0]);
            let begins = input.byte() > 200;
            let (offset, flags) = if begins { (0x60, 2) } else { (0x50, 0x18) };
            packet.extend([offset, flags, 1, 0, 0, 0, 0, 0]);
            if begins {
                packet.extend([2, 4, input.byte(), input.byte()]);
            }
        }
        17 => {
            packet.extend(ports);
            packet.extend([0, 0, 0, 0]);
        }
        _ => packet.extend([input.byte(), 0, 0, 0, 0, 0, 0, 0]),
    }
}

/// Creates the offload header of a frame: checksums and segmentation that are left to the hardware.
fn offload(input: &mut Input<'_>, v6: bool, protocol: u8, transport_at: usize) -> [u8; 10] {
    let mut header = [0; 10];
    let choice = input.byte();
    let start = (transport_at as u16).to_le_bytes();
    let field = if protocol == 17 { 6 } else { 16 };
    if choice > 60 {
        header[0] = 1;
        (header[6], header[7], header[8]) = (start[0], start[1], field);
    }
    if choice > 120 {
        header[1] = match (protocol, v6) {
            (6, false) => 1,
            (6, true) => 4,
            _ => 5,
        };
        let step = input.of(&[1u16, 40, 100, 536, 1300, 1360, 8000]).to_le_bytes();
        (header[4], header[5]) = (step[0], step[1]);
    }
    if choice > 240 {
        let at = input.below(10);
        header[at] = input.byte();
    }
    header
}

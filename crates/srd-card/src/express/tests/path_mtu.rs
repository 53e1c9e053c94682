//! Reactions of the stage to a path MTU that becomes smaller, and larger again.

use super::*;
use crate::meta::packet::u16_at;

/// MTU of the guests' interfaces. The configured size of outer packets is large enough for inner
/// packets of this size.
const MTU: u16 = 8900;
/// UDP payload of the largest outer packet that passes a link with an MTU of 1,500 bytes.
const PASSES: usize = 1472;

fn jumbo() -> Config {
    Config { mtu: MTU, ..Config::default() }
}

fn rig(a: Config) -> Rig {
    let mut rig = Rig::new(a, jumbo());
    rig.run_ms(50);
    rig
}

fn large(kind: u8, n: u32) -> Vec<u8> {
    let mut payload = vec![7; 8000];
    payload.extend_from_slice(&n.to_be_bytes());
    v4(kind, (5, 80), &payload)
}

fn ping(n: u32) -> Vec<u8> {
    let mut body = vec![8, 0, 0, 0];
    body.extend_from_slice(&n.to_be_bytes());
    v4(protocol::ICMP, (8, 0), &body)
}

/// Path MTU in the answer to the guest, if there is one.
fn answered_mtu(frames: &[Vec<u8>]) -> Option<u16> {
    let answer = frames.iter().find(|f| f[OFFLOAD_BYTES + 9] == protocol::ICMP)?;
    let icmp = &answer[OFFLOAD_BYTES + 20..];
    (icmp[..2] == [3, 4]).then(|| u16_at(icmp, 6))
}

#[test]
fn regression_small_plain_packets_go_on_while_nothing_large_passes() {
    let mut rig = rig(jumbo());
    // The link loses all packets that contain a segment, so packets that SRD carries do not arrive,
    // and their queues fill.
    rig.wire.mtu_bytes = 500;
    let mut arrived = 0;
    for n in 0..600 {
        rig.send(0, &large(protocol::TCP, n));
        rig.send(0, &ping(n));
        rig.run_ms(5);
        arrived += rig.ends[1].guest.0.drain(..).filter(|f| f.len() < 100).count();
    }
    assert!(arrived >= 597, "{arrived} of 600 pings");
}

#[test]
fn regression_tcp_goes_on_when_the_path_mtu_falls_and_rises() {
    for passes in [PASSES, 1172, 548] {
        tcp_goes_on_when_so_much_passes(passes);
    }
}

fn tcp_goes_on_when_so_much_passes(passes: usize) {
    let mut rig = rig(jumbo());
    let mut n = 0;
    let mut run = |rig: &mut Rig, ms: u32| {
        let (mut silence, mut longest) = (0, 0);
        for _ in 0..ms {
            rig.send(0, &large(protocol::TCP, n));
            n += 1;
            rig.run_ms(1);
            let arrived = rig.ends[1].guest.0.drain(..).count();
            silence = if arrived > 0 { 0 } else { silence + 1 };
            longest = longest.max(silence);
        }
        longest
    };
    run(&mut rig, 50);
    rig.wire.mtu_bytes = passes;
    let silence = run(&mut rig, 1000);
    assert!(silence < 400, "{passes}: {silence} ms");
    assert_eq!(rig.ends[0].express.counters().guest_too_big, 0, "it is cut, not answered");
    rig.wire.mtu_bytes = usize::MAX;
    let silence = run(&mut rig, 3000);
    assert!(silence < 400, "{passes}: {silence} ms");
    let peer = rig.ends[0].endpoint.peer_at(outer(1)).unwrap();
    assert_eq!(rig.ends[0].endpoint.packet_bytes_max_to(peer), 8956);
}

#[test]
fn regression_a_plain_packet_that_no_longer_fits_is_answered_until_it_fits_again() {
    let mut rig = rig(jumbo());
    rig.send(0, &large(protocol::ICMP, 1));
    rig.run_ms(5);
    assert_eq!(rig.ends[1].guest.0.len(), 1);
    rig.wire.mtu_bytes = PASSES;
    for n in 0..20 {
        rig.send(0, &large(protocol::ICMP, n));
        rig.run_ms(50);
    }
    let mtu = answered_mtu(&rig.ends[0].guest.0).expect("an answer: too big");
    assert!((1300..=1472).contains(&mtu), "{mtu}");
    rig.wire.mtu_bytes = usize::MAX;
    for n in 0..100 {
        rig.send(0, &ping(n));
        rig.run_ms(50);
    }
    rig.ends[1].guest.0.clear();
    rig.send(0, &large(protocol::ICMP, 1));
    rig.run_ms(5);
    assert_eq!(rig.ends[1].guest.0.len(), 1);
}

#[test]
fn regression_plain_tcp_is_cut_to_what_passes() {
    let mut rig = rig(Config { express: false, ..jumbo() });
    rig.wire.mtu_bytes = PASSES;
    for n in 0..20 {
        rig.send(0, &large(protocol::TCP, n));
        rig.run_ms(50);
    }
    rig.ends[1].guest.0.clear();
    // One whole packet, and a super-packet that is segmented into two.
    let whole = large(protocol::TCP, 1);
    rig.send(0, &whole);
    let gso = Some((Gso::Tcp { ecn: false }, 4002));
    let offload = Offload { gso, checksum: Some((20, 16)), checked: false };
    let header = offload.write(true, layout(&whole).header_bytes());
    rig.send_frame(0, &[&header[..], &whole].concat());
    rig.run_ms(5);
    let frames = &rig.ends[1].guest.0;
    let payload = |frames: &[Vec<u8>]| -> Vec<u8> {
        frames.iter().flat_map(|f| f[OFFLOAD_BYTES + 40..].to_vec()).collect()
    };
    assert!(frames.iter().all(|f| f.len() <= PASSES), "{:?}", frames.iter().map(Vec::len));
    let half = frames.len() / 2;
    assert!(payload(&frames[..half]) == whole[40..], "the first, cut");
    assert!(payload(&frames[half..]) == whole[40..], "the second, cut further");
    assert_eq!(rig.ends[0].express.counters().guest_too_big, 0);
}

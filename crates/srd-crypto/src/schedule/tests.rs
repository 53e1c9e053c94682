use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use std::println;

use super::*;

const LIMITS: RotationLimits = RotationLimits {
    packets_max: 1000,
    lifetime: Duration::from_secs(120),
    grace: Duration::from_millis(10),
};

fn secret(byte: u8) -> SessionSecret {
    SessionSecret::from_bytes([byte; 32])
}

fn pair() -> (SessionKeys, SessionKeys) {
    let keys = |send, receive| {
        let secrets = SessionSecrets { send: secret(send), receive: secret(receive) };
        SessionKeys::new(secrets, LIMITS, Instant::ZERO)
    };
    (keys(1, 2), keys(2, 1))
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A data packet in transit: (phase, number, bytes).
type Packet = (u8, u64, Vec<u8>);

fn send(from: &mut SessionKeys, now: Instant, number: u64) -> Packet {
    let phase = from.prepare_send(now);
    let mut body = number.to_be_bytes().to_vec();
    from.seal(Space::Data, number, &[phase], &mut body, 0).unwrap();
    (phase, number, body)
}

fn receive(to: &mut SessionKeys, now: Instant, packet: &Packet) -> Result<(), OpenError> {
    let (phase, number, mut bytes) = packet.clone();
    let body = to.open(now, phase, Space::Data, number, &[phase], &mut bytes)?;
    assert_eq!(body, number.to_be_bytes());
    Ok(())
}

/// `from` sends a packet, `to` receives and acknowledges it, and `from` initiates a rotation. `to`
/// follows when it next receives a packet.
fn rotate(from: &mut SessionKeys, to: &mut SessionKeys, now: Instant, number: u64) {
    let packet = send(from, now, number);
    receive(to, now, &packet).unwrap();
    control(to, from, number);
    from.on_acknowledged(number);
    from.rotate_send(now).unwrap();
}

/// Sends one control packet, which is delivered.
fn control(from: &mut SessionKeys, to: &mut SessionKeys, number: u64) {
    let phase = from.prepare_send(at(0));
    let mut body = Vec::new();
    from.seal(Space::Control, number, &[phase], &mut body, 0).unwrap();
    to.open(at(0), phase, Space::Control, number, &[phase], &mut body).unwrap();
}

/// Compares with values that Python's hmac module has computed. A changed label fails this test.
#[test]
fn the_ratchet_yields_known_keys() {
    let mut ratchet = Ratchet { next: secret(1) };
    let first = ratchet.step();
    let second = ratchet.step();
    assert_eq!(crate::testing::hex(KEY_0), [&first.0[..], &first.1].concat());
    assert_eq!(crate::testing::hex(KEY_1), [&second.0[..], &second.1].concat());
}

const KEY_0: &str = "db58849d59181150c27960bcd52b04d647afeafbee2611cfa63fd345f43628110558663f";
const KEY_1: &str = "ff2286940be5c7117f9d4ecca9e3d1f794575eff4a9f3b47e224ac4dda3dcaba6988b760";

#[test]
fn the_two_directions_have_different_keys() {
    let (mut a, mut b) = pair();
    let packet = send(&mut a, at(0), 0);
    assert_eq!(receive(&mut b, at(0), &packet), Ok(()));
    assert_eq!(receive(&mut a, at(0), &packet), Err(OpenError::Unauthentic), "reflected");
}

#[test]
fn the_next_phase_is_accepted_when_it_authenticates_and_the_old_one_for_a_grace_time() {
    let (mut a, mut b) = pair();
    let late = [send(&mut a, at(0), 0), send(&mut a, at(0), 1)];
    rotate(&mut a, &mut b, at(0), 2);
    let new = send(&mut a, at(1), 3);
    assert_eq!((new.0, b.receive_phase()), (1, 0));
    assert_eq!(receive(&mut b, at(1), &new), Ok(()));
    assert_eq!(b.receive_phase(), 1);
    assert_eq!(b.expires_at(), Some(at(11)));
    assert_eq!(receive(&mut b, at(10), &late[0]), Ok(()));
    assert_eq!(receive(&mut b, at(11), &late[1]), Err(OpenError::UnknownPhase));
    assert_eq!(b.expires_at(), None);
}

#[test]
fn a_forged_phase_changes_nothing() {
    let (mut a, mut b) = pair();
    for forged in 1..=u8::MAX {
        let (_, number, bytes) = send(&mut a, at(0), u64::from(forged));
        let expected = if forged == 1 { OpenError::Unauthentic } else { OpenError::UnknownPhase };
        assert_eq!(receive(&mut b, at(0), &(forged, number, bytes)), Err(expected));
        assert_eq!(b.receive_phase(), 0);
    }
    let good = send(&mut a, at(0), 300);
    assert_eq!(receive(&mut b, at(0), &good), Ok(()));
    rotate(&mut a, &mut b, at(0), 301);
    let next = send(&mut a, at(0), 302);
    assert_eq!(receive(&mut b, at(0), &next), Ok(()), "the early key is the right one");
}

#[test]
fn every_bit_flip_of_a_packet_with_its_header_fails() {
    let (mut a, mut b) = pair();
    let mut packet = b"head and body".to_vec();
    a.seal_packet(Space::Control, 5, &mut packet, 0, 4).unwrap();
    for bit in 0..packet.len() * 8 {
        let mut forged = packet.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let (head, body) = forged.split_at_mut(4);
        let result = b.open(at(0), 0, Space::Control, 5, head, body);
        assert_eq!(result, Err(OpenError::Unauthentic));
    }
    let (head, body) = packet.split_at_mut(4);
    assert!(b.open(at(0), 0, Space::Control, 5, head, body).is_ok());
}

#[test]
fn rotation_waits_for_the_peer_to_confirm_the_current_phase_and_to_reach_it() {
    let (mut a, mut b) = pair();
    let unconfirmed = Err(RotateError::Unconfirmed);
    assert_eq!(a.rotate_send(at(0)), unconfirmed, "nothing sent");
    let packet = send(&mut a, at(0), 10);
    assert_eq!(a.rotate_send(at(0)), unconfirmed, "nothing acknowledged");
    a.on_acknowledged(11);
    assert_eq!(a.rotate_send(at(0)), unconfirmed, "never sent");
    receive(&mut b, at(0), &packet).unwrap();
    a.on_acknowledged(10);
    assert_eq!(a.rotate_send(at(0)), Ok(1));
    let packet = send(&mut a, at(0), 11);
    a.on_acknowledged(10);
    assert_eq!(a.rotate_send(at(0)), unconfirmed, "of the old phase");
    a.on_acknowledged(11);
    assert_eq!(a.rotate_send(at(0)), unconfirmed, "the peer has not followed");
    receive(&mut b, at(0), &packet).unwrap();
    control(&mut b, &mut a, 0);
    assert_eq!(a.rotate_send(at(0)), Ok(2));
}

#[test]
fn a_side_that_sends_only_acknowledgements_follows() {
    let (mut a, mut b) = pair();
    for number in 0..5 {
        rotate(&mut a, &mut b, at(0), number);
    }
    assert_eq!((a.send_phase(), b.send_phase()), (5, 4));
    assert_eq!(b.rotate_send(at(0)), Err(RotateError::Unconfirmed), "it does not initiate");
    // A side that opens many packets initiates, so that its peer's key is replaced.
    control(&mut a, &mut b, 9);
    control(&mut b, &mut a, 9);
    assert!(!a.rotation_due(at(0)));
    a.receiving.floor = FloorLimits::with_blocks(FloorLimits::BLOCKS_MAX / 2);
    assert!(a.rotation_due(at(0)));
}

#[test]
fn both_sides_may_initiate_at_once() {
    let (mut a, mut b) = pair();
    let (from_a, from_b) = (send(&mut a, at(0), 0), send(&mut b, at(0), 0));
    receive(&mut a, at(0), &from_b).unwrap();
    receive(&mut b, at(0), &from_a).unwrap();
    a.on_acknowledged(0);
    b.on_acknowledged(0);
    assert_eq!((a.rotate_send(at(0)), b.rotate_send(at(0))), (Ok(1), Ok(1)));
    let (from_a, from_b) = (send(&mut a, at(0), 1), send(&mut b, at(0), 1));
    receive(&mut a, at(0), &from_b).unwrap();
    receive(&mut b, at(0), &from_a).unwrap();
    assert_eq!((a.send_phase(), b.send_phase()), (1, 1));
    assert_eq!((a.receive_phase(), b.receive_phase()), (1, 1));
}

#[test]
fn a_key_is_replaced_after_its_packets_or_its_lifetime() {
    let (mut a, mut b) = pair();
    for number in 0..LIMITS.packets_max {
        let packet = send(&mut a, at(0), number);
        receive(&mut b, at(0), &packet).unwrap();
    }
    assert_eq!(send(&mut a, at(0), 1000).0, 0, "not confirmed: stays");
    a.on_acknowledged(1000);
    let packet = send(&mut a, at(1), 1001);
    assert_eq!(packet.0, 1);
    receive(&mut b, at(1), &packet).unwrap();
    control(&mut b, &mut a, 0);
    a.on_acknowledged(1001);
    assert_eq!(a.prepare_send(at(120_000)), 1);
    assert_eq!(a.prepare_send(at(120_001)), 2);
    assert!(!a.rotation_due(at(999_999)), "an unused key does not age");
}

#[test]
fn a_used_up_key_seals_no_more_until_it_is_replaced() {
    let (mut a, _) = pair();
    a.seal(Space::Data, 0, b"", &mut vec![0; 16], 0).unwrap();
    a.sending.floor = FloorLimits::with_blocks(FloorLimits::BLOCKS_MAX - 1);
    assert!(a.rotation_due(at(0)));
    let mut body = vec![7; 16];
    assert_eq!(a.seal(Space::Data, 1, b"", &mut body, 0), Err(SealError::Exhausted));
    assert_eq!(body, [7; 16], "untouched");
    a.on_acknowledged(0);
    assert_eq!(a.prepare_send(at(0)), 1);
    assert_eq!(a.seal(Space::Data, 1, b"", &mut body, 0), Ok(()));
}

#[test]
fn numbers_rise_for_the_whole_session_and_apart_per_space() {
    let (mut a, mut b) = pair();
    let seal = |a: &mut SessionKeys, space, n| a.seal(space, n, b"", &mut vec![1], 0);
    assert_eq!(seal(&mut a, Space::Data, 7), Ok(()));
    assert_eq!(seal(&mut a, Space::Data, 7), Err(SealError::NumberReused));
    assert_eq!(seal(&mut a, Space::Data, 6), Err(SealError::NumberReused));
    assert_eq!(seal(&mut a, Space::Control, 7), Ok(()));
    assert_eq!(seal(&mut a, Space::Control, NUMBER_MAX + 1), Err(SealError::NumberReused));
    rotate(&mut a, &mut b, at(0), 8);
    assert_eq!(seal(&mut a, Space::Data, 8), Err(SealError::NumberReused), "across rotation");
    assert_eq!(seal(&mut a, Space::Data, NUMBER_MAX), Ok(()));
    assert_eq!(seal(&mut a, Space::Data, NUMBER_MAX), Err(SealError::NumberReused));
}

#[test]
fn a_key_that_met_too_many_forgeries_opens_nothing() {
    let (mut a, mut b) = pair();
    b.receiving.floor = FloorLimits::with_forgeries(FloorLimits::FORGERIES_MAX - 1);
    let packet = send(&mut a, at(0), 0);
    assert!(receive(&mut b, at(0), &(0, 1, packet.2.clone())).is_err());
    assert_eq!(receive(&mut b, at(0), &packet), Err(OpenError::Exhausted));
}

/// One end of a connection with acknowledgements: its keys, the packets in transit to it, and the
/// last packet that it received.
struct End {
    keys: SessionKeys,
    inbound: Vec<(Space, Packet)>,
    numbers: [u64; 2],
    received: Option<u64>,
}

impl End {
    fn new(keys: SessionKeys) -> Self {
        Self { keys, inbound: Vec::new(), numbers: [0; 2], received: None }
    }

    /// Seals a packet whose body acknowledges the last data packet that was received.
    fn emit(&mut self, space: Space) -> (Space, Packet) {
        let phase = self.keys.prepare_send(at(0));
        let number = self.numbers[space as usize];
        self.numbers[space as usize] += 1;
        let mut body = self.received.unwrap_or(u64::MAX).to_be_bytes().to_vec();
        self.keys.seal(space, number, &[phase], &mut body, 0).unwrap();
        (space, (phase, number, body))
    }

    fn absorb(&mut self, (space, (phase, number, mut body)): (Space, Packet)) {
        let behind = self.keys.receive_phase().wrapping_sub(phase);
        let opened = self.keys.open(at(0), phase, space, number, &[phase], &mut body);
        if matches!(behind, 0 | 1 | u8::MAX) {
            let acknowledged = opened.expect("a neighbouring generation opens");
            let acknowledged = u64::from_be_bytes((&*acknowledged).try_into().unwrap());
            self.keys.on_acknowledged(acknowledged);
            if space == Space::Data {
                self.received = Some(number);
            }
        } else {
            assert!(behind < 128, "the sender is {} generations ahead", behind.wrapping_neg());
            assert_eq!(opened, Err(OpenError::UnknownPhase));
        }
    }
}

#[test]
fn three_hundred_rotations_initiated_by_either_side_wrap_the_phase() {
    let (a, b) = pair();
    let (mut a, mut b) = (End::new(a), End::new(b));
    for round in 0..300 {
        for _ in 0..2 {
            b.absorb(a.emit(Space::Data));
            a.absorb(b.emit(Space::Data));
        }
        let initiator = if round % 3 == 0 { &mut a } else { &mut b };
        initiator.keys.rotate_send(at(0)).unwrap();
    }
    for _ in 0..2 {
        b.absorb(a.emit(Space::Data));
        a.absorb(b.emit(Space::Data));
    }
    for keys in [&a.keys, &b.keys] {
        assert_eq!((keys.send_phase(), keys.receive_phase()), (44, 44));
    }
}

proptest! {
    /// Any interleaving of sends, deliveries (reordered, lost) and rotations by either side, with
    /// data in both directions or in one. Each packet that arrives opens, unless it is two
    /// generations old, and a sender is never more than one generation ahead.
    #[test]
    fn rotations_interleaved_with_traffic_lose_nothing(
        one_way: bool,
        steps in proptest::collection::vec((any::<bool>(), 0..10_u8, any::<u16>()), 1..600),
    ) {
        let (a, b) = pair();
        let mut ends = (End::new(a), End::new(b));
        for (from_a, action, pick) in steps {
            let (from, to) = if from_a {
                (&mut ends.0, &mut ends.1)
            } else {
                (&mut ends.1, &mut ends.0)
            };
            let index = usize::from(pick) % to.inbound.len().max(1);
            match action {
                0..=2 => {
                    let space =
                        if one_way && !from_a { Space::Control } else { Space::Data };
                    to.inbound.push(from.emit(space));
                }
                3..=6 if !to.inbound.is_empty() => {
                    let packet = to.inbound.swap_remove(index);
                    to.absorb(packet);
                }
                7 if !to.inbound.is_empty() => {
                    to.inbound.swap_remove(index);
                }
                _ => {
                    let _ = from.keys.rotate_send(at(0));
                }
            }
            for (from, to) in [(&ends.0.keys, &ends.1.keys), (&ends.1.keys, &ends.0.keys)] {
                prop_assert!(from.send_phase().wrapping_sub(to.receive_phase()) <= 1);
            }
        }
    }

    #[test]
    fn noise_never_opens_and_never_moves_the_phase(
        phase: u8,
        number: u64,
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (_, mut b) = pair();
        prop_assert!(b.open(at(0), phase, Space::Data, number, &[phase], &mut bytes).is_err());
        prop_assert_eq!(b.receive_phase(), 0);
    }
}

#[test]
fn a_session_is_small() {
    let (seal, open) = (size_of::<SealKey>(), size_of::<OpenKey>());
    println!("SealKey {seal} bytes, OpenKey {open}, SessionKeys {}", size_of::<SessionKeys>());
    assert!(size_of::<SessionKeys>() <= 1536);
}

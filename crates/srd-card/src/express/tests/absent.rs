//! Common limit of the queues for peers that have made no offer.

use super::cloud::{between, cloud};
use super::*;
use srd_proto::{DownReason, Event};

/// Largest number of bytes that wait for all absent peers.
const ABSENT_BYTES_MAX: usize = 1_000_000;
/// Largest number of bytes that wait for one peer.
const QUEUE_BYTES_MAX: usize = 300_000;
/// Number of frames that are sent to a peer: more than its queue takes.
const FRAMES: u64 = 400;

impl Rig {
    /// Adds a peer to the first end that never answers.
    fn add_absent(&mut self, number: usize) -> PeerSlot {
        let (now, end) = (self.now, &mut self.ends[0]);
        let id = end.endpoint.add_peer(now, known(number)).unwrap();
        let allowed = vec![inner(number)];
        end.express.add_peer(now, PeerSettings { id, allowed, express: true, express_udp: true })
    }

    /// Sends frames of a cloud to a peer of the first end, each peer from another interface.
    fn flood(&mut self, to: PeerSlot) {
        let tenant = to.0 + 1;
        let interface = u64::from(tenant);
        let packet = v4(protocol::UDP, (1, 2), &[0; 1200]);
        let frame = [&[0; OFFLOAD_BYTES][..], &packet].concat();
        for _ in 0..FRAMES {
            let trailer = between(interface);
            let parcel = Parcel { to, tenant, interface, trailer, express: true };
            self.ends[0].express.from_cloud(self.now, parcel, frame.clone());
        }
    }

    /// Returns the bytes that wait for a peer of the first end.
    fn queued(&self, slot: PeerSlot) -> usize {
        self.ends[0].express.report(slot).unwrap().queued_bytes
    }
}

/// Q4: each absent peer had a limit of its own only.
#[test]
fn regression_queues_for_absent_peers_have_a_common_limit() {
    let config =
        Config { absent_bytes_max: ABSENT_BYTES_MAX, queue_bytes_max: QUEUE_BYTES_MAX, ..cloud() };
    let mut rig = Rig::new(config, cloud());
    rig.run_ms(20);
    let present = rig.ends[0].peer;
    let mut absent = Vec::new();
    for number in 10..40 {
        let slot = rig.add_absent(number);
        absent.push(slot);
        rig.flood(slot);
        let sum: usize = absent.iter().map(|slot| rig.queued(*slot)).sum();
        assert!(sum <= ABSENT_BYTES_MAX, "{sum} bytes for {} peers", absent.len());
    }
    assert!(absent.iter().take(3).all(|slot| rig.queued(*slot) > 0));
    let dropped = |rig: &Rig| rig.traffic(0).queue_dropped_full;
    assert!(dropped(&rig) > 20 * FRAMES, "{} frames dropped", dropped(&rig));

    // A peer that has made an offer keeps its own limit, until it does not answer any more.
    rig.flood(present);
    assert!(rig.queued(present) > QUEUE_BYTES_MAX / 3);
    let before = dropped(&rig);
    let peer = rig.ends[0].endpoint.peer_at(outer(1)).unwrap();
    let event = Event::PeerDown { peer, reason: DownReason::Unresponsive };
    rig.ends[0].express.event(rig.now, &event);
    let all = absent.iter().chain([&present]);
    let sum: usize = all.map(|slot| rig.queued(*slot)).sum();
    assert!(sum <= ABSENT_BYTES_MAX && dropped(&rig) > before, "{sum} bytes");

    // Peers that are removed leave their space to others.
    for slot in absent {
        rig.ends[0].express.remove_peer(slot);
    }
    let last = rig.add_absent(50);
    rig.flood(last);
    assert!(rig.queued(last) > QUEUE_BYTES_MAX / 3, "{} bytes", rig.queued(last));
}

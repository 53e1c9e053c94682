//! Invariants of a peer between two calls, which debug builds check.

use super::{DATAGRAM_HEADER_BYTES, ECHOES_MAX, PROBES_MAX, Peer, Rx, Tx, psn_window};
use crate::config::Config;
use crate::send::send_queue::DatagramState;
use crate::send::sent_packets::Fate;

impl Peer {
    /// Number of entries that [`Peer::audit`] visits: it visits a datagram once for each list in
    /// which the datagram may be.
    pub(crate) fn audit_cost(&self) -> usize {
        1 + self.tx.as_ref().map_or(0, |tx| tx.sent.span() + 8 * tx.queue.slots_used())
    }

    /// # Panics
    /// Panics if an invariant is violated.
    pub(crate) fn audit(&self, config: &Config) {
        assert!(
            self.tx.is_none() || self.hibernated.is_none(),
            "{:?} hibernates and works",
            self.id
        );
        if let Some(tx) = &self.tx {
            tx.audit(config);
        }
        if let Some(rx) = &self.rx {
            rx.audit(config);
        }
    }
}

impl Tx {
    fn audit(&self, config: &Config) {
        self.queue.audit();
        assert!(self.queue.len() <= config.send_queue_datagrams_max as usize);
        assert!(self.unreliable.len() <= config.unreliable_queue_datagrams_max as usize);
        assert!(self.probes.len() <= PROBES_MAX);
        assert!(self.sent.span() <= psn_window(config), "more PSNs than the window has");
        let (mut bytes, mut packets) = (0, 0);
        for (psn, record) in self.sent.iter() {
            if record.fate == Fate::InFlight {
                bytes += u64::from(record.bytes);
                packets += 1;
            }
            let word = self.known[usize::try_from(psn / 64).unwrap_or(0) & (self.known.len() - 1)];
            let known = word >> (psn % 64) & 1 == 1;
            assert_eq!(known, record.fate == Fate::Acked, "PSN {psn}: {:?}", record.fate);
        }
        assert_eq!((bytes, packets), (self.sent.in_flight_bytes(), self.sent.in_flight_packets()));
        let mut unsettled = 0;
        for slot in self.queue.slots(None) {
            let held = self.queue.held(slot);
            unsettled += (held.payload.len() + DATAGRAM_HEADER_BYTES) as u64;
            if held.place == DatagramState::InFlight {
                let record = self.sent.record(held.last_psn);
                let travels = record.is_some_and(|r| r.fate == Fate::InFlight && r.slot == slot);
                assert!(travels, "datagram in slot {slot} is in flight, and no packet of it is");
            }
        }
        assert_eq!(self.queued_bytes, self.settled_bytes + unsettled, "bytes offered");
        assert!(self.cumulative <= self.sent.next().0);
        let waits = self.sent.in_flight_packets() > 0;
        assert_eq!(waits, self.rto_at != crate::time::Instant::FAR_FUTURE, "retransmission timer");
    }
}

impl Rx {
    fn audit(&self, config: &Config) {
        assert!(self.verdicts.len() <= usize::from(config.window_packets_max));
        assert!(self.echoes.len() <= ECHOES_MAX);
        assert!(self.tuples.len() <= usize::from(config.ack_tuples_max));
        assert!(self.received.cumulative() <= self.received.highest());
        let window = u64::from(config.window_packets_max);
        assert!(self.received.highest() <= self.received.floor() + window, "beyond the window");
    }
}

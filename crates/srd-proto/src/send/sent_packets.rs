//! The packets in flight: a ring of small records, indexed by PSN.
//!
//! Invariant: the ring covers `[base, next)`. A record is removed from the front when it is not
//! needed any more: its packet is acknowledged, or it is lost and the datagram is settled. `base`
//! is the floor that every packet carries.

use alloc::collections::VecDeque;

use crate::ids::{PathId, Psn};
use crate::time::Instant;

/// State of a sent packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Neither acknowledged nor declared lost.
    InFlight,
    /// Acknowledged by the peer.
    Acked,
    /// Declared lost; the datagram is sent again under another PSN.
    Lost,
}

/// One sent packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPacket {
    /// Time of sending.
    pub sent_at: Instant,
    /// Slot of the packet's datagram in the send queue.
    pub slot: u32,
    /// Size of the packet as windows count it: header and payload of the datagram, without the tag.
    pub bytes: u16,
    /// Path on which the packet was sent.
    pub path: PathId,
    /// Low bits of the path's generation at the time of sending.
    pub generation: u8,
    /// State of the packet.
    pub fate: Fate,
    /// Whether this PSN is the datagram's identity (its first transmission).
    pub first: bool,
    /// Whether the peer acknowledges this packet without the delay of interactive mode, so that the
    /// packet measures the round-trip time.
    pub asks: bool,
}

/// The ring of sent packets.
#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    ring: VecDeque<SentPacket>,
    base: u64,
    in_flight_bytes: u64,
    in_flight_packets: u32,
    /// Lower bound of the PSNs in flight, from which a search for the oldest packet in flight
    /// begins.
    scan_from: u64,
}

impl SentPackets {
    /// Creates an empty ring; the next packet will have this PSN.
    pub(crate) fn from(next: Psn) -> Self {
        Self { base: next.0, scan_from: next.0, ..Self::default() }
    }

    /// The floor: the lowest PSN that is not settled.
    pub(crate) fn base(&self) -> Psn {
        Psn(self.base)
    }

    /// The PSN that the next packet will have.
    pub(crate) fn next(&self) -> Psn {
        Psn(self.base + self.ring.len() as u64)
    }

    /// Number of PSNs from the floor to the newest packet.
    pub(crate) fn span(&self) -> usize {
        self.ring.len()
    }

    /// Bytes in flight.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Packets in flight.
    pub(crate) fn in_flight_packets(&self) -> u32 {
        self.in_flight_packets
    }

    /// Records a packet as sent, under the PSN that `next` returned.
    pub(crate) fn push(&mut self, sent: SentPacket) {
        self.in_flight_bytes += u64::from(sent.bytes);
        self.in_flight_packets += 1;
        self.ring.push_back(sent);
    }

    /// Returns the record of a packet, if it is still in the ring.
    pub(crate) fn record(&self, psn: u64) -> Option<&SentPacket> {
        let index = psn.checked_sub(self.base)?;
        self.ring.get(usize::try_from(index).ok()?)
    }

    /// Changes the fate of a packet. Returns the record as it was before; `None` if the packet
    /// already had this fate, was acknowledged before, or is not in the ring.
    pub(crate) fn settle(&mut self, psn: u64, fate: Fate) -> Option<SentPacket> {
        let index = usize::try_from(psn.checked_sub(self.base)?).ok()?;
        let record = self.ring.get_mut(index)?;
        let before = *record;
        if before.fate == Fate::Acked || before.fate == fate {
            return None;
        }
        if before.fate == Fate::InFlight {
            self.in_flight_bytes -= u64::from(before.bytes);
            self.in_flight_packets -= 1;
        }
        record.fate = fate;
        Some(before)
    }

    /// Removes records from the front until it reaches one that is still needed. `settled` returns
    /// whether the datagram of a lost packet is settled.
    pub(crate) fn advance(&mut self, settled: impl Fn(&SentPacket, Psn) -> bool) {
        while let Some(front) = self.ring.front() {
            let done = match front.fate {
                Fate::Acked => true,
                Fate::InFlight => false,
                Fate::Lost => !front.first || settled(front, Psn(self.base)),
            };
            if !done {
                break;
            }
            self.ring.pop_front();
            self.base += 1;
        }
        self.scan_from = self.scan_from.max(self.base);
    }

    /// Each record in the ring, with its PSN.
    #[cfg(debug_assertions)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &SentPacket)> {
        (self.base..).zip(&self.ring)
    }

    /// Time of sending of the newest packet in the ring.
    pub(crate) fn newest_sent_at(&self) -> Option<Instant> {
        self.ring.back().map(|s| s.sent_at)
    }

    /// Moves the floor past all sent packets and removes their records. No packet may be in flight.
    pub(crate) fn abandon(&mut self) {
        debug_assert!(self.in_flight_packets == 0, "what is in flight cannot be forgotten");
        self.base += self.ring.len() as u64;
        self.ring.clear();
        self.scan_from = self.base;
    }

    /// The oldest packet in flight.
    pub(crate) fn oldest_in_flight(&mut self) -> Option<(Psn, SentPacket)> {
        self.next_in_flight(self.scan_from).inspect(|(psn, _)| self.scan_from = psn.0)
    }

    /// The first packet in flight at or after a PSN.
    pub(crate) fn next_in_flight(&self, from: u64) -> Option<(Psn, SentPacket)> {
        let start = usize::try_from(from.max(self.base) - self.base).ok()?;
        self.ring
            .range(start.min(self.ring.len())..)
            .enumerate()
            .find(|(_, s)| s.fate == Fate::InFlight)
            .map(|(i, s)| (Psn(self.base + (start + i) as u64), *s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(first: bool) -> SentPacket {
        SentPacket {
            sent_at: Instant::ZERO,
            slot: 0,
            bytes: 100,
            path: PathId(0),
            generation: 0,
            fate: Fate::InFlight,
            first,
            asks: true,
        }
    }

    #[test]
    fn a_record_is_small() {
        assert!(size_of::<SentPacket>() <= 24);
    }

    #[test]
    fn floor_waits_for_the_identity_of_an_unsettled_datagram() {
        let mut packets = SentPackets::default();
        packets.push(sent(true));
        packets.push(sent(true));
        assert!(packets.settle(0, Fate::Lost).is_some());
        assert!(packets.settle(1, Fate::Acked).is_some());
        packets.advance(|_, _| false);
        assert_eq!(packets.base(), Psn(0));
        packets.advance(|_, _| true);
        assert_eq!((packets.base(), packets.in_flight_bytes()), (Psn(2), 0));
    }

    #[test]
    fn a_packet_settles_once_but_a_lost_one_may_still_arrive() {
        let mut packets = SentPackets::default();
        packets.push(sent(true));
        assert!(packets.settle(0, Fate::Lost).is_some());
        assert!(packets.settle(0, Fate::Lost).is_none());
        assert_eq!(packets.settle(0, Fate::Acked).map(|s| s.fate), Some(Fate::Lost));
        assert!(packets.settle(0, Fate::Acked).is_none());
        assert!(packets.settle(9, Fate::Acked).is_none());
    }
}

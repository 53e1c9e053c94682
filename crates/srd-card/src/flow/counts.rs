//! Counters of a flow in both directions, and the rate at which the guest sends. They are a column
//! of the flow table.

use srd_proto::time::Duration;

use crate::meta::key::Direction;

/// Packets and bytes of one direction of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Count {
    pub(crate) pkts: u64,
    pub(crate) bytes: u64,
}

/// Counters of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    egress: Count,
    ingress: Count,
    /// Whether SRD carried the last packet that the guest sent.
    pub(crate) rides_srd: bool,
    /// Rate at which the guest sends, in bits per second, as the last call of `take_rate` computed
    /// it.
    pub(crate) bps: u64,
    bytes_before: u64,
}

impl Counts {
    /// Counts packets that pass, and notes whether SRD carried them.
    pub(crate) fn add(&mut self, direction: Direction, pkts: u64, bytes: u64, by_srd: bool) {
        let count = match direction {
            Direction::Egress => {
                self.rides_srd = by_srd;
                &mut self.egress
            }
            Direction::Ingress => &mut self.ingress,
        };
        count.pkts += pkts;
        count.bytes += bytes;
    }

    /// Returns the packets and bytes of one direction.
    pub(crate) fn of(&self, direction: Direction) -> Count {
        match direction {
            Direction::Egress => self.egress,
            Direction::Ingress => self.ingress,
        }
    }

    /// Computes the average rate since the last call, which was `elapsed` ago.
    pub(crate) fn take_rate(&mut self, elapsed: Duration) {
        let bits = u128::from(self.egress.bytes - self.bytes_before) * 8;
        let bps = bits * 1_000_000_000 / u128::from(elapsed.as_nanos().max(1));
        self.bps = u64::try_from(bps).unwrap_or(u64::MAX);
        self.bytes_before = self.egress.bytes;
    }
}

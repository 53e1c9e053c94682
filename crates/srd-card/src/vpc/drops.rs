//! Why packets were dropped.

use alloc::collections::BTreeMap;

use srd_vpc::judge::Reason;

/// Why a packet was dropped. Limits count for themselves: [`crate::limits::Allowances`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// It is no packet, or its offload header contradicts it.
    Malformed,
    /// The rules refuse it.
    Rule(Reason),
    /// It is for an interface that is not on this host.
    NotHere,
    /// The host that sent it does not have the interface that it names, or is no edge.
    NotItsHost,
    /// It begins a connection, and the instance has used up its allowance.
    Tracking,
    /// The interface that it is for is on no host.
    NotPlaced,
    /// No host is the edge of the gateway that it leaves by.
    NoEdge,
    /// It came from the internet, and the rules changed while it waited for a limit.
    Changed,
    /// It is larger than what the gateway carries, and may not be cut.
    TooBig,
}

/// How many packets were dropped for each cause; a super-packet counts as the packets it stands
/// for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Drops(BTreeMap<Cause, u64>);

impl Drops {
    pub(super) fn count(&mut self, cause: Cause, packets: u64) {
        *self.0.entry(cause).or_default() += packets;
    }

    /// Packets dropped for a cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.0.get(&cause).copied().unwrap_or_default()
    }

    /// All causes that occurred.
    pub fn all(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        self.0.iter().map(|(cause, packets)| (*cause, *packets))
    }

    /// Packets dropped for any cause.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

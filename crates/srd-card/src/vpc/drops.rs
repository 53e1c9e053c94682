//! Causes of dropped packets, and their counters.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use srd_vpc::judge::{MissingObject, Reason};

use super::tables::nat::NatError;
use crate::store::{Reader, Stored, StoredError, stored_values};

/// Cause of a dropped packet. Drops of limits have counters of their own:
/// [`crate::limits::Allowances`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// The frame contains no IP packet, or an offload header that contradicts the packet.
    Malformed,
    /// The rules refuse the packet.
    Rule(Reason),
    /// The packet is for an interface that is not on this host.
    NotHere,
    /// The host that sent the packet is not the host of the sending interface; or the packet is
    /// from a gateway, and the host is the edge of no gateway.
    NotItsHost,
    /// The packet begins a connection, and the instance has used up its allowance of tracked
    /// connections.
    Tracking,
    /// The interface that the packet is for is on no host.
    NotPlaced,
    /// No host is the edge of the gateway through which the packet has to leave.
    NoEdge,
    /// The packet came from the internet, and the rules changed while it waited for a limit.
    Changed,
    /// The location of the packet's receiver, or of its sender, was requested from the control
    /// plane, and no answer came in time; or too many packets or queries waited for answers.
    Unanswered,
    /// The card has no space for the answer with the location of an interface on another host.
    AnswersFull,
    /// The packet is larger than its path carries, and may not be fragmented.
    TooBig,
    /// The packet is a later fragment. Its first fragment is unknown, and the rules need the ports
    /// or the ICMP type, which only the first fragment contains; or its first fragment was refused.
    FirstFragment,
    /// A NAT gateway on the path to another interface does not translate the packet.
    Nat(NatError),
    /// The packet is for the address of a NAT gateway, and belongs to no connection of the gateway.
    NoNatConnection,
}

impl Cause {
    /// Number of causes in this enum.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns all causes, in the order of [`Drops::counts`].
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied()
    }

    /// Name of the cause, for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Rule(reason) => reason.name(),
            Self::NotHere => "not on this host",
            Self::NotItsHost => "not its host",
            Self::Tracking => "tracked connections",
            Self::NotPlaced => "on no host",
            Self::NoEdge => "no edge",
            Self::Changed => "rules changed",
            Self::Unanswered => "no answer",
            Self::AnswersFull => "answers full",
            Self::TooBig => "too big",
            Self::FirstFragment => "no first fragment",
            Self::Nat(error) => error.name(),
            Self::NoNatConnection => "no connection of a nat gateway",
        }
    }
}

/// Number of dropped packets for each cause; a super-packet counts as the packets that it
/// represents.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Drops(BTreeMap<Cause, u64>);

impl Drops {
    pub(super) fn count(&mut self, cause: Cause, packets: u64) {
        *self.0.entry(cause).or_default() += packets;
    }

    /// Returns the number of packets dropped for a cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.0.get(&cause).copied().unwrap_or_default()
    }

    /// Returns all causes that have occurred, each with its number of dropped packets.
    pub fn all(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        self.0.iter().map(|(cause, packets)| (*cause, *packets))
    }

    /// Returns the number of packets dropped for each cause, zeros included, in the order of
    /// [`Cause::all`].
    pub fn counts(&self) -> [u64; Cause::COUNT] {
        let mut counts = [0; Cause::COUNT];
        for (cause, packets) in self.all() {
            if let Some(place) = Cause::ALL.iter().position(|of| *of == cause) {
                counts[place] = packets;
            }
        }
        counts
    }

    /// Returns the number of packets dropped for any cause.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

stored_values!(Cause:
    [Cause::Malformed],
    [Cause::NotHere],
    [Cause::NotItsHost],
    [Cause::Tracking],
    [Cause::NotPlaced],
    [Cause::NoEdge],
    [Cause::Changed],
    [Cause::TooBig],
    [Cause::Unanswered],
    [Cause::AnswersFull],
    [Cause::FirstFragment],
    [Cause::Nat(NatError::Protocol)],
    [Cause::Nat(NatError::Fragment)],
    [Cause::Nat(NatError::NoPort)],
    [Cause::Nat(NatError::NoConnection)],
    [Cause::Nat(NatError::ErrorAboutNothing)],
    [Cause::NoNatConnection],
    [Cause::Rule(Reason::Families)],
    [Cause::Rule(Reason::NotItsAddress)],
    [Cause::Rule(Reason::NotFromOutside)],
    [Cause::Rule(Reason::GroupsOut)],
    [Cause::Rule(Reason::GroupsIn)],
    [Cause::Rule(Reason::AclOut)],
    [Cause::Rule(Reason::AclIn)],
    [Cause::Rule(Reason::NoRoute)],
    [Cause::Rule(Reason::Blackhole)],
    [Cause::Rule(Reason::NoPublicAddress)],
    [Cause::Rule(Reason::Detached)],
    [Cause::Rule(Reason::WrongFamily)],
    [Cause::Rule(Reason::NotCarried)],
    [Cause::Rule(Reason::OutwardsOnly)],
    [Cause::Rule(Reason::NotPeered)],
    [Cause::Rule(Reason::NoTransit)],
    [Cause::Rule(Reason::NoInterface)],
    [Cause::Rule(Reason::ChecksDestination)],
    [Cause::Rule(Reason::PrivateNat)],
    [Cause::Rule(Reason::AnotherWayBack)],
    [Cause::Rule(Reason::Circle)],
    [Cause::Rule(Reason::ToItself)],
    [Cause::Rule(Reason::Missing(MissingObject::Eni))],
    [Cause::Rule(Reason::Missing(MissingObject::Subnet))],
    [Cause::Rule(Reason::Missing(MissingObject::Gateway))],
    [Cause::Rule(Reason::OpensNoConnection)],
);

impl Stored for Drops {
    fn write(&self, out: &mut Vec<u8>) {
        self.all().collect::<Vec<_>>().write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        let count = from.count()?;
        let all = (0..count).map(|_| Ok((Cause::read(from)?, from.counter()?)));
        Ok(Self(all.collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_in_the_order_of_the_causes() {
        let mut drops = Drops::default();
        for (n, cause) in (1..).zip(Cause::all()) {
            drops.count(cause, n);
        }
        let counts = drops.counts();
        assert!((1..).zip(counts).all(|(n, count)| n == count), "{counts:?}");
        assert!(Cause::all().zip(counts).all(|(cause, count)| drops.of(cause) == count));
        assert_eq!(Drops::default().counts(), [0; Cause::COUNT]);
    }
}

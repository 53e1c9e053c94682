//! First fragments that an interface has sent or received, by their sender.

use core::net::{IpAddr, Ipv6Addr};

use srd_proto::time::Instant;

use crate::store::stored;
use crate::vpc::tables::flow::Sender;
use crate::vpc::tables::fragments::{Datagram, First, Fragments};

/// First fragments that an interface has sent, and first fragments that it has received.
#[derive(Debug, Default)]
pub(in crate::vpc) struct Firsts {
    sent: Fragments<First, (), Of>,
    /// First fragments from other interfaces. The owner of an entry is the sender.
    received: Fragments<First, Sender, Of>,
    /// First fragments from the internet. The owner of an entry is the source address; for IPv6,
    /// its network of 64 bits.
    from_outside: Fragments<First, IpAddr, Of>,
    /// First fragments that the rules have refused. They have entries of their own, so that they do
    /// not replace first fragments that have passed.
    refused: Fragments<First, Option<Sender>, Of>,
}

/// A datagram, and its sender if the interface receives it; `None` if the interface has sent it.
type Of = (Option<Sender>, Datagram);

stored!(Firsts { sent, received, from_outside, refused });

/// Returns the owner of first fragments from an address of the internet: the address; for IPv6, its
/// network of 64 bits.
fn owner(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl Firsts {
    /// Returns the data of the first fragment of a datagram, and whether the rules have admitted
    /// it; `None` if it is unknown. `from` is the sender of a datagram that the interface receives,
    /// and `None` for one that the interface sends.
    pub(in crate::vpc) fn get(
        &self,
        now: Instant,
        from: Option<&Sender>,
        datagram: Datagram,
    ) -> Option<(First, bool)> {
        let key = (from.cloned(), datagram);
        let passed = match from.map(|from| from.eni) {
            None => self.sent.get(now, &key),
            Some(Some(_)) => self.received.get(now, &key),
            Some(None) => self.from_outside.get(now, &key),
        };
        let refused = || self.refused.get(now, &key).map(|first| (first, false));
        passed.map(|first| (first, true)).or_else(refused)
    }

    pub(in crate::vpc) fn put(
        &mut self,
        now: Instant,
        from: Option<&Sender>,
        datagram: Datagram,
        first: First,
        passes: bool,
    ) {
        let key = (from.cloned(), datagram);
        // An earlier datagram with the same identification is over.
        self.refused.forget(&key);
        self.sent.forget(&key);
        self.received.forget(&key);
        self.from_outside.forget(&key);
        match from {
            from if !passes => self.refused.put(now, from.cloned(), key, first),
            None => self.sent.put(now, (), key, first),
            Some(sender) if sender.eni.is_some() => {
                self.received.put(now, sender.clone(), key, first);
            }
            Some(_) => self.from_outside.put(now, owner(datagram.source), key, first),
        }
    }
}

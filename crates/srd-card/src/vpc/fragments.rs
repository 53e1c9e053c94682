//! What the first fragment of a datagram says for the later ones, which show neither ports nor a
//! type of ICMP (T1).
//!
//! A later fragment is what its first one is: the same rules, the same flow. One whose first
//! fragment has not come, or is forgotten, shows addresses and protocol only.
//!
//! Bound: [`DATAGRAMS_MAX`] datagrams, of which a new one takes the place of the oldest; each is
//! forgotten after [`KEPT`].

use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;

use srd_proto::time::{Duration, Instant};
use srd_vpc::packet::Inner;

use crate::meta::packet::Packet;

/// Datagrams whose first fragment is remembered: of one direction of an interface, or of a NAT
/// gateway's side.
pub(super) const DATAGRAMS_MAX: usize = 1024;
/// How long a first fragment is remembered: as long as Linux waits for the rest of a datagram.
pub(super) const KEPT: Duration = Duration::from_secs(30);

/// What all fragments of a datagram have in common (RFC 791, RFC 8200).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Datagram {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    pub(super) id: u32,
}

impl Datagram {
    /// The datagram that a packet is a fragment of; `None` if it is whole.
    pub(super) fn of(packet: &Packet, bytes: &[u8]) -> Option<Self> {
        let Packet { source, destination, protocol, .. } = *packet;
        Some(Self { source, destination, protocol, id: packet.fragment_id(bytes)? })
    }
}

/// What a first fragment shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct First {
    /// As rules see it.
    pub(super) inner: Inner,
    /// As flows are told apart: ports, or an echo's identifier twice.
    pub(super) ports: (u16, u16),
}

/// Datagrams by what their fragments have in common.
#[derive(Debug)]
pub(super) struct Fragments<T, K = Datagram> {
    known: BTreeMap<K, (u64, Instant, T)>,
    /// In the order in which they came. An entry whose number is not that of the datagram is of
    /// an earlier one with the same identification.
    order: VecDeque<(u64, K)>,
    number: u64,
}

impl<T, K> Default for Fragments<T, K> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), order: VecDeque::new(), number: 0 }
    }
}

impl<T: Copy, K: Ord + Copy> Fragments<T, K> {
    /// A first fragment has come. A sender counts its datagrams in few bits, so that a new one
    /// takes the place of an earlier one.
    pub(super) fn put(&mut self, now: Instant, datagram: K, what: T) {
        if self.order.len() >= DATAGRAMS_MAX {
            self.forget_oldest();
        }
        self.number += 1;
        self.known.insert(datagram, (self.number, now, what));
        self.order.push_back((self.number, datagram));
    }

    fn forget_oldest(&mut self) {
        let Some((number, datagram)) = self.order.pop_front() else { return };
        if self.known.get(&datagram).is_some_and(|(of, ..)| *of == number) {
            self.known.remove(&datagram);
        }
    }

    /// What the first fragment of a datagram has said.
    pub(super) fn get(&self, now: Instant, datagram: &K) -> Option<T> {
        let (_, at, what) = self.known.get(datagram)?;
        (now < *at + KEPT).then_some(*what)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.order.len().max(self.known.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(id: u32) -> Datagram {
        let [source, destination] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        Datagram { source, destination, protocol: 17, id }
    }

    #[test]
    fn a_first_fragment_is_remembered_for_its_time_and_up_to_the_bound() {
        let mut fragments = Fragments::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        fragments.put(at(0), datagram(1), 'a');
        assert_eq!(fragments.get(at(29), &datagram(1)), Some('a'));
        assert_eq!(fragments.get(at(30), &datagram(1)), None);
        assert_eq!(fragments.get(at(0), &datagram(2)), None);
        fragments.put(at(40), datagram(1), 'b');
        assert_eq!(fragments.get(at(41), &datagram(1)), Some('b'));
        let most = u32::try_from(DATAGRAMS_MAX).unwrap();
        for id in 1..=most {
            fragments.put(at(41), datagram(100 + id), 'c');
            assert!(fragments.len() <= DATAGRAMS_MAX);
        }
        assert_eq!(fragments.get(at(41), &datagram(1)), None, "the oldest has given way");
        assert_eq!(fragments.get(at(41), &datagram(100 + 1)), Some('c'));
        // One that uses an identification again and again takes no more than one place.
        (0..5 * most).for_each(|_| fragments.put(at(42), datagram(7), 'd'));
        assert!(fragments.len() <= DATAGRAMS_MAX);
        assert_eq!(fragments.get(at(42), &datagram(7)), Some('d'));
    }
}

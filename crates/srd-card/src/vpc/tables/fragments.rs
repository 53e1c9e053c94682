//! First fragments, stored for the later fragments of their datagrams, which contain neither ports
//! nor a type of ICMP (T1).
//!
//! A later fragment is treated as the first fragment of its datagram: by the same rules, as part of
//! the same flow. If the first fragment has not arrived, or has been removed, only addresses and
//! protocol of a later fragment are known.
//!
//! Bound: a table has [`DATAGRAMS_MAX`] datagrams, each with an owner. A new datagram replaces the
//! oldest one of the owner with the most datagrams, provided that this owner still has more than
//! the new datagram's owner. So each owner keeps its part of the entries, whatever the other owners
//! do. A datagram expires after [`KEPT`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::{Duration, Instant};
use srd_vpc::packet::Inner;

use crate::meta::packet::Packet;
use crate::store::{Reader, Stored, StoredError, stored, write_count};
use crate::vpc::tables::shares::Shares;

/// Largest number of datagrams in one table. An interface has a table each for sent datagrams, for
/// datagrams from interfaces, for datagrams from the internet, and for refused datagrams. The NAT
/// gateways of a host have a table for each direction.
pub(in crate::vpc) const DATAGRAMS_MAX: usize = 1024;
/// Time after which a first fragment is not used any more: the reassembly timeout of Linux.
pub(in crate::vpc) const KEPT: Duration = Duration::from_secs(30);

/// Fields that are equal in all fragments of a datagram (RFC 791, RFC 8200).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::vpc) struct Datagram {
    pub(in crate::vpc) source: IpAddr,
    pub(in crate::vpc) destination: IpAddr,
    pub(in crate::vpc) protocol: u8,
    pub(in crate::vpc) id: u32,
}

stored!(Datagram { source, destination, protocol, id });

impl Datagram {
    /// Returns the datagram to which a fragment belongs; `None` for a packet that is no fragment.
    pub(in crate::vpc) fn of(packet: &Packet, bytes: &[u8]) -> Option<Self> {
        let Packet { source, destination, .. } = *packet;
        let (protocol, id) = packet.fragment_id(bytes)?;
        Some(Self { source, destination, protocol, id })
    }
}

/// Data that only a first fragment contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::vpc) struct First {
    /// Protocol and ports, or ICMP type and code, in the form that the rules use.
    pub(in crate::vpc) inner: Inner,
    /// Ports that identify the flow; for an ICMP echo, both are its identifier.
    pub(in crate::vpc) ports: (u16, u16),
}

stored!(First { inner, ports });

/// Table of datagrams whose first fragment has been seen. `T` is the data stored for a datagram,
/// `O` the owner of an entry, and `K` the key of a datagram.
#[derive(Debug)]
pub(in crate::vpc) struct Fragments<T, O, K> {
    known: BTreeMap<K, DatagramEntry<T, O>>,
    /// Keys of each owner's datagrams, in order of arrival.
    order: BTreeMap<(O, u64), K>,
    shares: Shares<O>,
    number: u64,
}

#[derive(Clone, PartialEq, Debug)]
struct DatagramEntry<T, O> {
    owner: O,
    number: u64,
    at: Instant,
    what: T,
}

impl<T, O, K> Default for Fragments<T, O, K> {
    fn default() -> Self {
        let (known, order) = (BTreeMap::new(), BTreeMap::new());
        Self { known, order, shares: Shares::default(), number: 0 }
    }
}

impl<T: Copy, O: Ord + Clone, K: Ord + Clone> Fragments<T, O, K> {
    /// Stores a first fragment. Senders reuse identifications, so a new datagram replaces an
    /// earlier datagram with the same identification.
    pub(in crate::vpc) fn put(&mut self, now: Instant, owner: O, datagram: K, what: T) {
        self.forget(&datagram);
        if self.known.len() >= DATAGRAMS_MAX {
            let other = self.shares.gives_way_to(&owner).cloned();
            // An owner with entries replaces its own oldest one if no other owner has to give way.
            let own = (self.shares.get(&owner) > 0).then(|| owner.clone());
            if let Some(of) = other.or(own).or_else(|| self.shares.most().cloned()) {
                self.forget_oldest(&of);
            }
        }
        self.number += 1;
        let number = self.number;
        self.order.insert((owner.clone(), number), datagram.clone());
        self.shares.add(&owner);
        self.known.insert(datagram, DatagramEntry { owner, number, at: now, what });
    }

    fn forget_oldest(&mut self, owner: &O) {
        let mut of = self.order.range((owner.clone(), 0)..);
        if let Some(datagram) = of.next().map(|(_, datagram)| datagram.clone()) {
            self.forget(&datagram);
        }
    }

    /// Removes the entry of a datagram, if there is one.
    pub(in crate::vpc) fn forget(&mut self, datagram: &K) {
        if let Some(DatagramEntry { owner, number, .. }) = self.known.remove(datagram) {
            self.shares.remove(&owner);
            self.order.remove(&(owner, number));
        }
    }

    /// Returns the data of the first fragment of a datagram; `None` if it is unknown or has
    /// expired.
    pub(in crate::vpc) fn get(&self, now: Instant, datagram: &K) -> Option<T> {
        let DatagramEntry { at, what, .. } = self.known.get(datagram)?;
        (now < *at + KEPT).then_some(*what)
    }

    #[cfg(test)]
    pub(in crate::vpc) fn len(&self) -> usize {
        self.order.len().max(self.known.len())
    }
}

/// Datagrams are written in the order of arrival for each owner, so that the next card replaces
/// the same datagram first.
impl<T, O, K> Stored for Fragments<T, O, K>
where
    T: Stored + Copy,
    O: Stored + Ord + Clone,
    K: Stored + Ord + Clone,
{
    fn write(&self, out: &mut Vec<u8>) {
        let all = self
            .order
            .values()
            .filter_map(|datagram| self.known.get(datagram).map(|known| (datagram, known)));
        write_count(self.order.len(), out);
        for (datagram, DatagramEntry { owner, at, what, .. }) in all {
            owner.write(out);
            datagram.write(out);
            (*at, *what).write(out);
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        let mut fragments = Self::default();
        let count = from.count()?;
        if count > DATAGRAMS_MAX {
            return Err(StoredError::Wrong("first fragments"));
        }
        for _ in 0..count {
            let (owner, datagram) = <(O, K)>::read(from)?;
            let (at, what) = <(Instant, T)>::read(from)?;
            fragments.put(at, owner, datagram, what);
        }
        Ok(fragments)
    }
}

impl Stored for Inner {
    fn write(&self, out: &mut Vec<u8>) {
        let (number, one, two) = match *self {
            Self::Tcp(from, to) => (0_u8, from, to),
            Self::Udp(from, to) => (1, from, to),
            Self::Icmp(kind, code) => (2, kind.into(), code.into()),
            Self::Other(protocol) => (3, protocol.into(), 0),
        };
        number.write(out);
        (one, two).write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        let wrong = StoredError::Wrong("what a first fragment shows");
        let byte = |value: u16| u8::try_from(value).map_err(|_| wrong);
        let number = u8::read(from)?;
        let (one, two) = <(u16, u16)>::read(from)?;
        Ok(match number {
            0 => Self::Tcp(one, two),
            1 => Self::Udp(one, two),
            2 => Self::Icmp(byte(one)?, byte(two)?),
            3 if two == 0 => Self::Other(byte(one)?),
            _ => return Err(wrong),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_vpc::id::EniId;

    fn datagram(id: u32) -> Datagram {
        let [source, destination] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        Datagram { source, destination, protocol: 17, id }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    const MOST: u32 = 1024;
    const _: () = assert!(MOST as usize == DATAGRAMS_MAX);

    #[test]
    fn a_first_fragment_is_remembered_for_its_time_and_up_to_the_bound() {
        let mut fragments = Fragments::default();
        fragments.put(at(0), (), datagram(1), 'a');
        assert_eq!(fragments.get(at(29), &datagram(1)), Some('a'));
        assert_eq!(fragments.get(at(30), &datagram(1)), None);
        assert_eq!(fragments.get(at(0), &datagram(2)), None);
        fragments.put(at(40), (), datagram(1), 'b');
        assert_eq!(fragments.get(at(41), &datagram(1)), Some('b'));
        for id in 1..=MOST {
            fragments.put(at(41), (), datagram(100 + id), 'c');
            assert!(fragments.len() <= DATAGRAMS_MAX);
        }
        assert_eq!(fragments.get(at(41), &datagram(1)), None, "the oldest has given way");
        assert_eq!(fragments.get(at(41), &datagram(100 + 1)), Some('c'));
        // A sender that repeats an identification uses only one entry.
        (0..5 * MOST).for_each(|_| fragments.put(at(42), (), datagram(7), 'd'));
        assert!(fragments.len() <= DATAGRAMS_MAX);
        assert_eq!(fragments.get(at(42), &datagram(7)), Some('d'));
        assert_eq!(fragments.get(at(42), &datagram(102)), Some('c'));
        fragments.forget(&datagram(7));
        assert_eq!(fragments.get(at(42), &datagram(7)), None, "another first one was refused");
    }

    #[test]
    fn regression_an_owner_of_many_datagrams_leaves_the_others_their_places() {
        let mut fragments = Fragments::default();
        (0..100).for_each(|id| fragments.put(at(0), 'a', datagram(id), 'a'));
        (0..5 * MOST).for_each(|id| fragments.put(at(1), 'b', datagram(1000 + id), 'b'));
        assert_eq!(fragments.len(), DATAGRAMS_MAX);
        assert!((0..100).all(|id| fragments.get(at(2), &datagram(id)) == Some('a')));
        // Owners that come later get their part, and no more.
        (0..5 * MOST).for_each(|id| fragments.put(at(2), 'c', datagram(10_000 + id), 'c'));
        assert!((0..100).all(|id| fragments.get(at(2), &datagram(id)) == Some('a')));
        let last = (1000 + 5 * MOST - 1, 10_000 + 5 * MOST - 1);
        assert_eq!(fragments.get(at(2), &datagram(last.0)), Some('b'));
        assert_eq!(fragments.get(at(2), &datagram(last.1)), Some('c'));
        let [a, b, c] = ['a', 'b', 'c'].map(|owner| fragments.shares.get(&owner));
        assert!(a == 100 && b.abs_diff(c) <= 1, "{a} {b} {c}");
        // An owner without a datagram gets an entry even if all others have only one.
        let mut fragments = Fragments::default();
        (0..2 * MOST).for_each(|id| fragments.put(at(0), id, datagram(id), 'a'));
        assert_eq!(fragments.get(at(0), &datagram(2 * MOST - 1)), Some('a'));
        assert_eq!(fragments.len(), DATAGRAMS_MAX);
    }

    #[test]
    fn what_is_written_is_read_and_gives_way_in_the_same_order() {
        let mut fragments = Fragments::default();
        let shown =
            [Inner::Tcp(1, 2), Inner::Udp(3, 65_535), Inner::Icmp(8, 255), Inner::Other(47)];
        let first = |inner| First { inner, ports: (5, 6) };
        for (id, inner) in (0..).zip(shown) {
            fragments.put(at(u64::from(id)), EniId((id % 2).into()), datagram(id), first(inner));
        }
        fragments.put(at(9), EniId(0), datagram(0), first(Inner::Other(1)));
        let mut out = Vec::new();
        fragments.write(&mut out);
        let mut from = Reader(&out);
        let mut read = Fragments::<First, EniId, Datagram>::read(&mut from).unwrap();
        from.end().unwrap();
        let all = |of: &Fragments<First, EniId, Datagram>| -> Vec<_> {
            let all = of.known.iter();
            all.map(|(datagram, known)| (*datagram, known.at, known.what)).collect()
        };
        assert_eq!(all(&read), all(&fragments));
        for length in 0..out.len() {
            let cut = Fragments::<First, EniId, Datagram>::read(&mut Reader(&out[..length]));
            assert!(cut.is_err(), "{length}");
        }
        for id in 100..99 + MOST {
            for of in [&mut fragments, &mut read] {
                of.put(at(10), EniId((id % 3).into()), datagram(id), first(shown[0]));
            }
            assert_eq!(all(&read), all(&fragments));
        }
        let mut out = Vec::new();
        fragments.write(&mut out);
        let more = MOST + 1;
        out[..4].copy_from_slice(&more.to_le_bytes());
        let read = Fragments::<First, EniId, Datagram>::read(&mut Reader(&out));
        assert!(read.is_err(), "more than the bound");
    }
}

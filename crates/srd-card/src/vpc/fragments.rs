//! First fragments, remembered for the later ones of their datagrams, which show neither ports nor
//! a type of ICMP (T1).
//!
//! A later fragment is what its first one is: the same rules, the same flow. One whose first
//! fragment has not come, or is forgotten, shows addresses and protocol only.
//!
//! Bound: a table has [`DATAGRAMS_MAX`] datagrams, each with an owner. The owner that has most
//! gives up its oldest one for an owner that has fewer, so that each keeps its part of the places,
//! whatever the others do. A datagram is forgotten after [`KEPT`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::{Duration, Instant};
use srd_vpc::packet::Inner;

use super::shares::Shares;
use crate::meta::packet::Packet;
use crate::store::{Reader, Stored, StoredError, stored, write_count};

/// Datagrams whose first fragment is remembered: of what an interface sends, of what interfaces or
/// the internet send to it, and of either side of the NAT gateways of a host.
pub(super) const DATAGRAMS_MAX: usize = 1024;
/// How long a first fragment is remembered: as long as Linux waits for the rest of a datagram.
pub(super) const KEPT: Duration = Duration::from_secs(30);

/// The fields that all fragments of a datagram have in common (RFC 791, RFC 8200).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Datagram {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    pub(super) id: u32,
}

stored!(Datagram { source, destination, protocol, id });

impl Datagram {
    /// The datagram that a packet is a fragment of; `None` if it is whole.
    pub(super) fn of(packet: &Packet, bytes: &[u8]) -> Option<Self> {
        let Packet { source, destination, protocol, .. } = *packet;
        Some(Self { source, destination, protocol, id: packet.fragment_id(bytes)? })
    }
}

/// The facts that a first fragment shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct First {
    /// As rules see it.
    pub(super) inner: Inner,
    /// As flows are told apart: ports, or an echo's identifier twice.
    pub(super) ports: (u16, u16),
}

stored!(First { inner, ports });

/// Datagrams by what their fragments have in common. `O`: what owns a place.
#[derive(Debug)]
pub(super) struct Fragments<T, O, K> {
    known: BTreeMap<K, Known<T, O>>,
    /// The datagrams of each owner in the order in which they came.
    order: BTreeMap<(O, u64), K>,
    shares: Shares<O>,
    number: u64,
}

#[derive(Clone, PartialEq, Debug)]
struct Known<T, O> {
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
    /// A first fragment has passed. A sender counts its datagrams in few bits, so that a new one
    /// takes the place of an earlier one.
    pub(super) fn put(&mut self, now: Instant, owner: O, datagram: K, what: T) {
        self.forget(&datagram);
        if self.known.len() >= DATAGRAMS_MAX {
            let other = self.shares.gives_way_to(&owner).cloned();
            // Of an owner that has none yet, another one's place; else its own oldest.
            let own = (self.shares.get(&owner) > 0).then(|| owner.clone());
            if let Some(of) = other.or(own).or_else(|| self.shares.most().cloned()) {
                self.forget_oldest(&of);
            }
        }
        self.number += 1;
        let number = self.number;
        self.order.insert((owner.clone(), number), datagram.clone());
        self.shares.add(&owner);
        self.known.insert(datagram, Known { owner, number, at: now, what });
    }

    fn forget_oldest(&mut self, owner: &O) {
        let mut of = self.order.range((owner.clone(), 0)..);
        if let Some(datagram) = of.next().map(|(_, datagram)| datagram.clone()) {
            self.forget(&datagram);
        }
    }

    /// A datagram has another first fragment, which has not passed.
    pub(super) fn forget(&mut self, datagram: &K) {
        if let Some(Known { owner, number, .. }) = self.known.remove(datagram) {
            self.shares.remove(&owner);
            self.order.remove(&(owner, number));
        }
    }

    /// The facts that the first fragment of a datagram has shown.
    pub(super) fn get(&self, now: Instant, datagram: &K) -> Option<T> {
        let Known { at, what, .. } = self.known.get(datagram)?;
        (now < *at + KEPT).then_some(*what)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.order.len().max(self.known.len())
    }
}

/// Datagrams are written in the order in which those of each owner came: in the other card the same
/// one gives way next.
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
        for (datagram, Known { owner, at, what, .. }) in all {
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
        // One that uses an identification again and again takes no more than one place.
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
        // Owners that come later have their part, and no more than that.
        (0..5 * MOST).for_each(|id| fragments.put(at(2), 'c', datagram(10_000 + id), 'c'));
        assert!((0..100).all(|id| fragments.get(at(2), &datagram(id)) == Some('a')));
        let last = (1000 + 5 * MOST - 1, 10_000 + 5 * MOST - 1);
        assert_eq!(fragments.get(at(2), &datagram(last.0)), Some('b'));
        assert_eq!(fragments.get(at(2), &datagram(last.1)), Some('c'));
        let [a, b, c] = ['a', 'b', 'c'].map(|owner| fragments.shares.get(&owner));
        assert!(a == 100 && b.abs_diff(c) <= 1, "{a} {b} {c}");
        // An owner without any has one when all others have one.
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

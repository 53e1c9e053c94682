//! First fragments, remembered for the later ones of their datagrams, which show neither ports nor
//! a type of ICMP (T1).
//!
//! A later fragment is what its first one is: the same rules, the same flow. One whose first
//! fragment has not come, or is forgotten, shows addresses and protocol only.
//!
//! Bound: [`DATAGRAMS_MAX`] datagrams, of which a new one takes the place of the oldest; each is
//! forgotten after [`KEPT`].

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::{Duration, Instant};
use srd_vpc::packet::Inner;

use crate::meta::packet::Packet;
use crate::store::{Reader, Stored, StoredError, stored, write_count};

/// Datagrams whose first fragment is remembered: of one direction of an interface, or of a NAT
/// gateway's side.
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

    /// The facts that the first fragment of a datagram has shown.
    pub(super) fn get(&self, now: Instant, datagram: &K) -> Option<T> {
        let (_, at, what) = self.known.get(datagram)?;
        (now < *at + KEPT).then_some(*what)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.order.len().max(self.known.len())
    }
}

/// All places are written, those whose datagram has come again, too: in the other card the same one
/// gives way next.
impl<T: Stored + Copy, K: Stored + Ord + Copy> Stored for Fragments<T, K> {
    fn write(&self, out: &mut Vec<u8>) {
        write_count(self.order.len(), out);
        for (number, datagram) in &self.order {
            datagram.write(out);
            let known = self.known.get(datagram).filter(|(of, ..)| of == number);
            known.map(|(_, at, what)| (*at, *what)).write(out);
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        let mut fragments = Self::default();
        let count = from.count()?;
        if count > DATAGRAMS_MAX {
            return Err(StoredError::Wrong("first fragments"));
        }
        for _ in 0..count {
            let (datagram, known) = <(K, Option<(Instant, T)>)>::read(from)?;
            fragments.number += 1;
            fragments.order.push_back((fragments.number, datagram));
            if let Some((at, what)) = known {
                fragments.known.insert(datagram, (fragments.number, at, what));
            }
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

    #[test]
    fn what_is_written_is_read_and_gives_way_in_the_same_order() {
        let mut fragments = Fragments::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let shown =
            [Inner::Tcp(1, 2), Inner::Udp(3, 65_535), Inner::Icmp(8, 255), Inner::Other(47)];
        let first = |inner| First { inner, ports: (5, 6) };
        for (id, inner) in (0..).zip(shown) {
            fragments.put(at(u64::from(id)), datagram(id), first(inner));
        }
        // The first one's place is kept, and is another's now.
        fragments.put(at(9), datagram(0), first(Inner::Other(1)));
        let mut out = Vec::new();
        fragments.write(&mut out);
        let mut from = Reader(&out);
        let mut read = Fragments::<First>::read(&mut from).unwrap();
        from.end().unwrap();
        assert_eq!((&read.known, &read.order), (&fragments.known, &fragments.order));
        for length in 0..out.len() {
            assert!(Fragments::<First>::read(&mut Reader(&out[..length])).is_err(), "{length}");
        }
        let most = u32::try_from(DATAGRAMS_MAX).unwrap();
        for id in 100..99 + most {
            for of in [&mut fragments, &mut read] {
                of.put(at(10), datagram(id), first(shown[0]));
            }
            assert_eq!(read.known, fragments.known);
        }
        let mut out = Vec::new();
        fragments.write(&mut out);
        let more = most + 1;
        out[..4].copy_from_slice(&more.to_le_bytes());
        assert!(Fragments::<First>::read(&mut Reader(&out)).is_err(), "more than the bound");
    }
}

//! Hosts to which answers for NAT gateways have to be sent: connections that gateways of other
//! hosts have to the interfaces of this host.
//!
//! An *end* is the interface behind the gateway. Bound: [`RETURNS_MAX`] connections for each
//! interface of this host. If all are in use, a new connection replaces an expired one of its end,
//! or one of the end with the most connections, provided that this end still has more than the new
//! connection's end; otherwise the new connection is refused. If gateways of two hosts have taken
//! the same port, the port belongs to the first host, unless the end there has more than [`MANY`]
//! connections more.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use srd_proto::time::Instant;
use srd_vpc::id::EniId;

use crate::store::{Reader, Stored, StoredError, write_count};
use crate::track::Key;
use crate::vpc::tables::cursors::Cursors;
use crate::vpc::tables::nat::{self, NatError};
use crate::vpc::tables::shares::Shares;

/// Largest number of connections of other hosts' gateways to one interface.
pub(in crate::vpc) const RETURNS_MAX: usize = 1 << 16;
/// Number of entries that each new connection examines in order to remove expired ones.
const SWEEP: usize = 4;
/// Number of an end's connections that are examined at a time for an expired one if all are in use.
const SEARCHED: usize = 64;
/// Number of connections of an end (the interface behind a gateway) that are examined if one of
/// them has to be replaced. The connection with the longest silence among them is replaced.
const LOOKED_AT: usize = 8;

/// Difference in numbers of connections above which an end (the interface behind a gateway) loses a
/// port to another end, whose gateway has taken the same port. So an end that takes all ports
/// leaves some to the other ends.
const MANY: usize = 1 << 10;

/// An interface behind a NAT gateway of another host: the name of the host, and the interface.
pub(in crate::vpc) type End = (Arc<str>, Option<EniId>);

/// Connections that NAT gateways of other hosts have to one interface of this host. For each, the
/// host to which answers have to be sent, by the key of the flow at the interface.
#[derive(Debug, Default)]
pub(in crate::vpc) struct Returns {
    known: BTreeMap<Key, (End, Instant)>,
    of: BTreeSet<(End, Key)>,
    shares: Shares<End>,
    swept: Option<Key>,
    /// For an end that needs another connection, the connection that was examined last.
    searched: Cursors<End, Key>,
    /// Connection that was replaced last, after which the search for the next connection to replace
    /// begins.
    gave_way: Option<(End, Key)>,
}

impl Returns {
    /// Stores, or prolongs, a connection of a gateway of another host, from which a packet has
    /// arrived.
    ///
    /// # Errors
    /// [`NatError::NoPort`] if the port belongs to a gateway of a different host, or if there are
    /// too many connections.
    pub(in crate::vpc) fn put(
        &mut self,
        now: Instant,
        key: &Key,
        host: &Arc<str>,
        eni: Option<EniId>,
    ) -> Result<(), NatError> {
        let end = (host.clone(), eni);
        match self.known.get_mut(key) {
            Some((of, at)) if *of == end => {
                *at = now;
                return Ok(());
            }
            Some((of, at)) => {
                // The gateway of the same host has given the port to another connection.
                let is_over = of.0 == *host || *at + nat::IDLE <= now;
                let is_of_many = self.shares.get(of) > self.shares.get(&end) + MANY;
                if !is_over && !is_of_many {
                    return Err(NatError::NoPort);
                }
                self.forget(key);
            }
            None => self.sweep(now),
        }
        if self.known.len() >= RETURNS_MAX && !self.forget_one_of(now, &end) {
            let most = self.shares.gives_way_to(&end).cloned();
            self.give_way(most.ok_or(NatError::NoPort)?);
        }
        self.know(*key, end, now);
        Ok(())
    }

    fn know(&mut self, key: Key, end: End, at: Instant) {
        self.of.insert((end.clone(), key));
        self.shares.add(&end);
        self.known.insert(key, (end, at));
    }

    /// Returns the host to which an answer has to be sent, and prolongs the connection; `None` if
    /// the connection is unknown or has expired.
    pub(in crate::vpc) fn get(&mut self, now: Instant, key: &Key) -> Option<Arc<str>> {
        let ((host, _), at) = self.known.get_mut(key).filter(|(_, at)| now < *at + nat::IDLE)?;
        *at = now;
        Some(host.clone())
    }

    fn forget(&mut self, key: &Key) {
        if let Some((end, _)) = self.known.remove(key) {
            self.shares.remove(&end);
            self.of.remove(&(end, *key));
        }
    }

    /// Removes one connection of an end, preferably one that has been silent for long.
    fn give_way(&mut self, end: End) {
        use core::ops::Bound::{Excluded, Included, Unbounded};
        let first = (end.clone(), Key::FIRST);
        let last = self.gave_way.as_ref().filter(|(of, _)| *of == end);
        let behind = last.map_or(Included(&first), Excluded);
        let of = |from| {
            let all = self.of.range((from, Unbounded));
            all.take_while(|(of, _)| *of == end)
        };
        let looked_at = of(behind).chain(of(Included(&first))).take(LOOKED_AT);
        let oldest = looked_at.min_by_key(|(_, key)| self.known.get(key).map(|(_, at)| *at));
        if let Some((_, key)) = oldest.cloned() {
            self.forget(&key);
            self.gave_way = Some((end, key));
        }
    }

    /// Examines the next [`SEARCHED`] connections of an end, up to the first that has expired, and
    /// removes this one. Returns whether there was one. // V20
    fn forget_one_of(&mut self, now: Instant, end: &End) -> bool {
        use core::ops::Bound::{Excluded, Included, Unbounded};
        let first = (end.clone(), Key::FIRST);
        let behind = self.searched.after(end).map(|key| (end.clone(), *key));
        let behind = behind.as_ref().map_or(Included(&first), Excluded);
        let own = self.of.range((behind, Unbounded)).take_while(|(of, _)| of == end);
        let (mut examined, mut last, mut expired) = (0, None, None);
        for (_, key) in own.take(SEARCHED) {
            (examined, last) = (examined + 1, Some(*key));
            if self.known.get(key).is_none_or(|(_, at)| *at + nat::IDLE <= now) {
                expired = last;
                break;
            }
        }
        let is_end = expired.is_none() && examined < SEARCHED;
        self.searched.set(end, last.filter(|_| !is_end));
        expired.into_iter().for_each(|key| self.forget(&key));
        expired.is_some()
    }

    fn sweep(&mut self, now: Instant) {
        use core::ops::Bound::{Excluded, Unbounded};
        let from = self.swept.map_or(Unbounded, Excluded);
        let next = self.known.range((from, Unbounded)).take(SWEEP);
        let looked: Vec<_> = next.map(|(key, (_, at))| (*key, *at + nat::IDLE <= now)).collect();
        self.swept = looked.last().map(|(key, _)| *key);
        for (key, _) in looked.into_iter().filter(|(_, is_over)| *is_over) {
            self.forget(&key);
        }
    }
}

impl Stored for Returns {
    fn write(&self, out: &mut Vec<u8>) {
        write_count(self.known.len(), out);
        for (key, (end, at)) in &self.known {
            key.write(out);
            end.write(out);
            at.write(out);
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        let mut returns = Self::default();
        for _ in 0..from.count()? {
            let (key, end) = <(Key, End)>::read(from)?;
            let at = Instant::read(from)?;
            if returns.known.len() >= RETURNS_MAX || returns.known.contains_key(&key) {
                return Err(StoredError::Wrong("connections of other hosts' NAT gateways"));
            }
            returns.know(key, end, at);
        }
        Ok(returns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::key::Direction;
    use crate::meta::packet::{Packet, protocol};
    use crate::testing::v4;
    use srd_proto::time::Duration;

    fn key(number: u8, port: u16) -> Key {
        let bytes = v4(number, (port, 53), b"");
        Key::of(&Packet::read(&bytes).unwrap(), &bytes, Direction::Ingress, 0)
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    const ENI: Option<EniId> = Some(EniId(1));

    #[test]
    fn a_port_is_the_first_hosts_and_the_table_has_a_bound() {
        let [one, two] = ["one", "two"].map(Arc::<str>::from);
        let udp = |port| key(protocol::UDP, port);
        let mut returns = Returns::default();
        returns.put(at(0), &udp(1), &one, ENI).unwrap();
        assert_eq!(returns.put(at(1), &udp(1), &two, ENI), Err(NatError::NoPort));
        assert_eq!(returns.get(at(2), &udp(1)), Some(one.clone()));
        assert_eq!(returns.get(at(2), &udp(2)), None);
        assert_eq!(returns.get(at(400), &udp(1)), None, "idle for too long");
        returns.put(at(400), &udp(1), &two, ENI).unwrap();
        assert_eq!(returns.get(at(401), &udp(1)), Some(two));
        let mut full = Returns::default();
        (0..=u16::MAX).for_each(|port| full.put(at(0), &udp(port), &one, ENI).unwrap());
        let other = key(protocol::TCP, 1);
        assert_eq!(full.put(at(1), &other, &one, ENI), Err(NatError::NoPort));
        full.put(at(400), &other, &one, ENI).unwrap();
        let mut out = Vec::new();
        full.write(&mut out);
        let read = Returns::read(&mut Reader(&out)).unwrap();
        assert_eq!((read.known, read.of), (full.known, full.of));
    }

    /// In an earlier version, an end was refused until a search had passed the connections of all
    /// other ends.
    #[test]
    fn regression_expired_connections_of_an_end_make_room_for_its_own() {
        let one = Arc::<str>::from("one");
        let [quiet, other] = [1, 2].map(|id| Some(EniId(id)));
        let mut returns = Returns::default();
        // The key of the other end is the smaller one in the order of the search.
        let half = u16::try_from(RETURNS_MAX / 2).unwrap();
        let udp = |port| key(protocol::UDP, port);
        (0..half).for_each(|port| returns.put(at(300), &udp(port), &one, other).unwrap());
        (half..=u16::MAX).for_each(|port| returns.put(at(0), &udp(port), &one, quiet).unwrap());
        for port in 0..1000 {
            returns.put(at(351), &key(protocol::TCP, port), &one, quiet).unwrap();
        }
        (0..half).for_each(|port| assert!(returns.get(at(351), &udp(port)).is_some()));
    }

    #[test]
    fn regression_an_end_that_takes_all_places_leaves_others_their_part() {
        let [one, two] = ["one", "two"].map(Arc::<str>::from);
        let [greedy, other, third] = [1, 2, 3].map(|id| Some(EniId(id)));
        let udp = |port| key(protocol::UDP, port);
        let tcp = |port| key(protocol::TCP, port);
        let mut returns = Returns::default();
        (0..=u16::MAX).for_each(|port| returns.put(at(0), &udp(port), &one, greedy).unwrap());
        // Another interface of the same host, and one of another host.
        let part = u16::try_from(RETURNS_MAX / 3).unwrap();
        for port in 0..part {
            returns.put(at(1), &tcp(port), &one, other).unwrap();
            returns.put(at(1), &tcp(port + part), &two, third).unwrap();
        }
        assert_eq!(returns.known.len(), RETURNS_MAX);
        let all = returns.known.values();
        assert_eq!(all.filter(|((_, eni), _)| *eni != greedy).count(), 2 * usize::from(part));
        // The connections of the others stay, whatever the greedy end sends.
        for port in 0..=u16::MAX {
            let _ = returns.put(at(2), &udp(port), &one, greedy);
        }
        (0..2 * part).for_each(|port| assert!(returns.get(at(3), &tcp(port)).is_some()));
        // A port of the greedy end's gateway goes to an end with few connections.
        let mut returns = Returns::default();
        (0..=5000).for_each(|port| returns.put(at(0), &udp(port), &one, greedy).unwrap());
        returns.put(at(1), &udp(7), &two, third).unwrap();
        assert_eq!(returns.put(at(2), &udp(7), &one, greedy), Err(NatError::NoPort));
        assert_eq!(returns.get(at(2), &udp(7)), Some(two));
    }
}

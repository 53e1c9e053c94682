//! To which host answers go that are for a NAT gateway whose connections come from another host.
//!
//! Bound: [`RETURNS_MAX`] connections for each interface at this end; new ones beyond are refused.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use srd_proto::time::Instant;

use super::nat::{self, NatError};
use crate::store::{Reader, Stored, StoredError, write_count};
use crate::track::Key;

/// Connections of other hosts' gateways to one interface.
pub(super) const RETURNS_MAX: usize = 1 << 16;
/// Entries that a new one looks at to free those that are over.
const SWEEP: usize = 4;

/// To which host answers go that are for a NAT gateway, by their flow at the interface here.
#[derive(Debug, Default)]
pub(super) struct Returns {
    known: BTreeMap<Key, (Arc<str>, Instant)>,
    swept: Option<Key>,
}

impl Returns {
    /// A packet of a gateway of another host has come.
    ///
    /// # Errors
    /// A gateway of yet another host has the port, or there are too many.
    pub(super) fn put(&mut self, now: Instant, key: &Key, host: &Arc<str>) -> Result<(), NatError> {
        match self.known.get_mut(key) {
            Some((of, at)) if *of == *host || *at + nat::IDLE <= now => {
                if *of != *host {
                    *of = host.clone();
                }
                *at = now;
                return Ok(());
            }
            Some(_) => return Err(NatError::NoPort),
            None => self.sweep(now),
        }
        if self.known.len() >= RETURNS_MAX {
            return Err(NatError::NoPort);
        }
        self.known.insert(*key, (host.clone(), now));
        Ok(())
    }

    /// The host that an answer goes to.
    pub(super) fn get(&mut self, now: Instant, key: &Key) -> Option<Arc<str>> {
        let (host, at) = self.known.get_mut(key).filter(|(_, at)| now < *at + nat::IDLE)?;
        *at = now;
        Some(host.clone())
    }

    fn sweep(&mut self, now: Instant) {
        use core::ops::Bound::{Excluded, Unbounded};
        let from = self.swept.map_or(Unbounded, Excluded);
        let next = self.known.range((from, Unbounded)).take(SWEEP);
        let looked: Vec<_> = next.map(|(key, (_, at))| (*key, *at + nat::IDLE <= now)).collect();
        self.swept = looked.last().map(|(key, _)| *key);
        for (key, _) in looked.into_iter().filter(|(_, is_over)| *is_over) {
            self.known.remove(&key);
        }
    }
}

impl Stored for Returns {
    fn write(&self, out: &mut Vec<u8>) {
        write_count(self.known.len(), out);
        for (key, (host, at)) in &self.known {
            key.write(out);
            host.write(out);
            at.write(out);
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        let mut returns = Self::default();
        for _ in 0..from.count()? {
            let (key, host) = <(Key, Arc<str>)>::read(from)?;
            returns.known.insert(key, (host, Instant::read(from)?));
        }
        if returns.known.len() > RETURNS_MAX {
            return Err(StoredError::Wrong("connections of other hosts' NAT gateways"));
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

    fn key(port: u16) -> Key {
        let bytes = v4(protocol::UDP, (port, 53), b"");
        Key::of(&Packet::read(&bytes).unwrap(), &bytes, Direction::Ingress, 0)
    }

    #[test]
    fn a_port_is_the_first_hosts_and_the_table_has_a_bound() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let [one, two] = ["one", "two"].map(Arc::<str>::from);
        let mut returns = Returns::default();
        returns.put(at(0), &key(1), &one).unwrap();
        assert_eq!(returns.put(at(1), &key(1), &two), Err(NatError::NoPort));
        assert_eq!(returns.get(at(2), &key(1)), Some(one.clone()));
        assert_eq!(returns.get(at(2), &key(2)), None);
        assert_eq!(returns.get(at(400), &key(1)), None, "idle for too long");
        returns.put(at(400), &key(1), &two).unwrap();
        assert_eq!(returns.get(at(401), &key(1)), Some(two));
        let mut full = Returns::default();
        (0..=u16::MAX).for_each(|port| full.put(at(0), &key(port), &one).unwrap());
        let other = {
            let bytes = v4(protocol::TCP, (1, 53), b"");
            Key::of(&Packet::read(&bytes).unwrap(), &bytes, Direction::Ingress, 0)
        };
        assert_eq!(full.put(at(1), &other, &one), Err(NatError::NoPort));
        // Each try looks at a few that may be over.
        assert!(
            (0..).take(RETURNS_MAX / SWEEP + 2).any(|_| full.put(at(400), &other, &one).is_ok())
        );
        let mut out = Vec::new();
        full.write(&mut out);
        let read = Returns::read(&mut Reader(&out)).unwrap();
        assert_eq!(read.known, full.known);
    }
}

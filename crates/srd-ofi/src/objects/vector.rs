//! Address vectors: peers by number.
//!
//! Numbers are indices, given in ascending order as long as nothing was removed, so an application
//! can use them as indices of a table or keys of a map. An address that is inserted again keeps its
//! number, and must be removed once for each insertion: the sender of a message has only one
//! number.

use std::collections::{BTreeSet, HashMap};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::errno::{FI_EINVAL, FI_ENOENT, FI_ENOSPC};
use crate::objects::domain::Slot;
use crate::objects::hosts::Hosts;
use crate::requests::address::Address;
use crate::{Errno, Outcome};

/// Largest number of addresses in a vector.
pub const VECTOR_MAX: usize = 1 << 20;

/// An address vector.
#[derive(Debug)]
pub struct AddressVector {
    /// Slot of the vector, of the limited number of address vectors in its domain.
    pub slot: Slot,
    /// Endpoints that use the vector.
    pub hosts: Hosts,
    table: Mutex<Table>,
}

impl AddressVector {
    /// Returns an empty vector.
    #[must_use]
    pub fn new(slot: Slot) -> Self {
        Self { slot, hosts: Hosts::default(), table: Mutex::new(Table::new(VECTOR_MAX)) }
    }

    /// Inserts an address and returns its number.
    ///
    /// # Errors
    /// `FI_EINVAL` if the address family differs from the domain's, or the IP address is
    /// unspecified; `FI_ENOSPC` beyond [`VECTOR_MAX`]; `FI_EOPBADSTATE` in the child of a fork.
    pub fn insert(&self, address: Address) -> Outcome<u64> {
        self.slot.check()?;
        if address.ip.is_ipv4() != self.slot.domain().ip.is_ipv4() || address.ip.is_unspecified() {
            return Err(Errno(FI_EINVAL));
        }
        self.lock().insert(address)
    }

    /// Undoes one insertion of an address. The last removal frees the number.
    ///
    /// # Errors
    /// `FI_EINVAL` if the number is not in use; `FI_EOPBADSTATE` in the child of a fork.
    pub fn remove(&self, number: u64) -> Outcome {
        self.slot.check()?;
        let Some(at) = self.lock().remove(number)? else { return Ok(()) };
        // The number is reused only after every endpoint has forgotten its peer.
        self.hosts.each(|host| host.forget(number));
        self.lock().free.insert(at);
        Ok(())
    }

    /// Returns the number of an address or, if it is absent, of its socket address for any run.
    #[must_use]
    pub fn number_of(&self, address: Address) -> Option<u64> {
        let table = self.lock();
        let anyone = Address { incarnation: 0, ..address };
        let found = table.numbers.get(&address).or_else(|| table.numbers.get(&anyone));
        found.map(|at| *at as u64)
    }

    /// Returns the address with a number.
    ///
    /// # Errors
    /// `FI_EINVAL` if the number is not in use; `FI_EOPBADSTATE` in the child of a fork.
    pub fn find(&self, number: u64) -> Outcome<Address> {
        self.slot.check()?;
        self.lock().find(number).ok_or(Errno(FI_EINVAL))
    }

    /// Returns the number of bytes of an address of this vector.
    #[must_use]
    pub fn address_bytes(&self) -> usize {
        if self.slot.domain().ip.is_ipv4() { 16 } else { 28 }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Table {
    entries: Vec<Option<(Address, u32)>>,
    numbers: HashMap<Address, usize>,
    free: BTreeSet<usize>,
    limit: usize,
}

impl Table {
    fn new(limit: usize) -> Self {
        Self { entries: Vec::new(), numbers: HashMap::new(), free: BTreeSet::new(), limit }
    }

    fn insert(&mut self, address: Address) -> Outcome<u64> {
        if let Some(&at) = self.numbers.get(&address) {
            if let Some((_, uses)) = &mut self.entries[at] {
                *uses = uses.checked_add(1).ok_or(Errno(FI_ENOSPC))?;
            }
            return Ok(at as u64);
        }
        let at = match self.free.pop_first() {
            Some(at) => at,
            None if self.entries.len() < self.limit => {
                self.entries.push(None);
                self.entries.len() - 1
            }
            None => return Err(Errno(FI_ENOSPC)),
        };
        self.entries[at] = Some((address, 1));
        self.numbers.insert(address, at);
        Ok(at as u64)
    }

    /// Undoes one insertion of an address. Returns its index if the last insertion was undone.
    fn remove(&mut self, number: u64) -> Outcome<Option<usize>> {
        let at = usize::try_from(number).map_err(|_| Errno(FI_EINVAL))?;
        let entry = self.entries.get_mut(at).ok_or(Errno(FI_EINVAL))?;
        let (address, uses) = entry.as_mut().ok_or(Errno(FI_EINVAL))?;
        *uses -= 1;
        if *uses == 0 {
            self.numbers.remove(address);
            *entry = None;
            return Ok(Some(at));
        }
        Ok(None)
    }

    fn find(&self, number: u64) -> Option<Address> {
        let entry = self.entries.get(usize::try_from(number).ok()?)?;
        entry.map(|(address, _)| address)
    }
}

/// Resolves a host's name or address, and a port number, to socket addresses.
///
/// # Errors
/// `FI_ENOENT` for an unknown name; `FI_EINVAL` for an invalid port.
pub fn resolve(node: &str, service: Option<&str>) -> Outcome<Vec<SocketAddr>> {
    let port: u16 = match service {
        None => 0,
        Some(service) => service.parse().map_err(|_| Errno(FI_EINVAL))?,
    };
    let found = (node, port).to_socket_addrs().map_err(|_| Errno(FI_ENOENT))?;
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::domain::{Kind, tests::domain};

    fn address(port: u16) -> Address {
        Address { ip: [10, 0, 0, 1].into(), port, incarnation: 1 }
    }

    #[test]
    fn numbers_ascend_and_the_lowest_free_one_is_used_again() {
        let mut table = Table::new(8);
        let numbers: Vec<_> = (0..4).map(|port| table.insert(address(port)).unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        let removed = [2, 1].map(|number| table.remove(number).unwrap().unwrap());
        assert_eq!((table.find(1), table.insert(address(8))), (None, Ok(4)), "not free yet");
        table.free.extend(removed);
        assert_eq!(table.insert(address(9)), Ok(1));
        assert_eq!(table.find(1), Some(address(9)));
    }

    #[test]
    fn an_address_keeps_its_number_until_it_is_removed_as_often() {
        let mut table = Table::new(8);
        assert_eq!(table.insert(address(1)), table.insert(address(1)));
        table.remove(0).unwrap();
        assert_eq!(table.find(0), Some(address(1)));
        table.remove(0).unwrap();
        assert_eq!(table.find(0), None);
        assert_eq!(table.remove(0), Err(Errno(FI_EINVAL)));
        assert_eq!(table.remove(77), Err(Errno(FI_EINVAL)));
    }

    #[test]
    fn a_restarted_peer_has_another_number() {
        let mut table = Table::new(8);
        let again = Address { incarnation: 2, ..address(1) };
        assert_ne!(table.insert(address(1)), table.insert(again));
    }

    #[test]
    fn a_vector_has_a_limit() {
        let mut table = Table::new(2);
        table.insert(address(1)).unwrap();
        table.insert(address(2)).unwrap();
        assert_eq!(table.insert(address(3)), Err(Errno(FI_ENOSPC)));
        let at = table.remove(0).unwrap().unwrap();
        table.free.insert(at);
        assert_eq!(table.insert(address(3)), Ok(0));
    }

    #[test]
    fn addresses_of_another_family_or_of_nobody_are_refused() {
        let vector = AddressVector::new(Slot::take(&domain(), Kind::Vector).unwrap());
        for ip in ["2001:db8::1", "0.0.0.0"] {
            let address = Address { ip: ip.parse().unwrap(), port: 1, incarnation: 0 };
            assert_eq!(vector.insert(address), Err(Errno(FI_EINVAL)));
        }
        assert_eq!(vector.insert(address(1)), Ok(0));
    }

    #[test]
    fn hosts_are_found_by_name_and_number() {
        assert_eq!(resolve("127.0.0.1", Some("7")).unwrap(), ["127.0.0.1:7".parse().unwrap()]);
        assert!(!resolve("localhost", None).unwrap().is_empty());
        assert_eq!(resolve("127.0.0.1", Some("70000")), Err(Errno(FI_EINVAL)));
    }
}

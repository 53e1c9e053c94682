//! Memory registrations: the range, the owner and the access rights of each.
//!
//! A key consists of the generation of its registration's slot (12 bits) and the slot (20 bits). So
//! the key of deregistered memory is invalid, until its slot was used 4,096 more times. The caller
//! may choose the remote key of a registration; then this key is the only one that peers can use.
//! Bound: [`MRS_MAX`] registrations.

use hashbrown::HashMap;

use crate::error::CreateError;
use crate::hash::Keyed;
use crate::slots::{Key, Slots};

/// Largest number of registrations: the number of slots that a key can represent.
pub const MRS_MAX: u32 = 1 << 20;
const GENERATION_BITS: u32 = 12;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

/// Access rights to registered memory (`IBV_ACCESS_*`). Sending from the memory needs no right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// Whether received data may be placed in the memory.
    pub local_write: bool,
    /// Whether peers may write to the memory; requires `local_write` as well.
    pub remote_write: bool,
    /// Whether peers may read the memory.
    pub remote_read: bool,
}

/// A piece of memory to register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registration {
    /// Number of the region in the caller's [`crate::Memory`].
    pub region: u64,
    /// Address of the first byte, as work requests and peers name it.
    pub addr: u64,
    /// Length of the piece in bytes.
    pub length: u64,
    /// Access rights to the memory.
    pub access: Access,
}

/// Keys of a registration. As on EFA, the two keys are the same number, unless the caller chose the
/// remote key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mr {
    /// Local key, for work requests of this device.
    pub lkey: u32,
    /// Remote key, with which peers read or write the memory.
    pub rkey: u64,
}

/// Purpose of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Sending data from the memory.
    Gather,
    /// Placing the data that this device's receive and read requests receive.
    Scatter,
    /// A write by a peer to the memory.
    RemoteWrite,
    /// A read by a peer from the memory.
    RemoteRead,
}

/// A checked range of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryLocation {
    pub(crate) region: u64,
    pub(crate) offset: u64,
    pub(crate) key: u32,
}

/// A range that a work request or a peer names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) key: u64,
}

#[derive(Debug)]
struct Entry {
    pd: Key,
    registration: Registration,
    /// Remote key, if the caller chose it; `None` if the remote key equals the local key.
    chosen: Option<u64>,
    /// Offset of the registration's first byte in its region.
    base: u64,
    /// Number of peers' reads that are being answered from the registration.
    lent: u32,
    /// Whether the memory was deregistered. If so, no key is valid for it, and its slot stays in
    /// use until the answers to all peers' reads from it have ended.
    gone: bool,
}

/// Table of the registrations.
#[derive(Debug)]
pub(crate) struct Regions {
    entries: Slots<Entry>,
    /// Registrations by the remote keys that callers chose.
    chosen: HashMap<u64, Key, Keyed>,
    leaving: usize,
}

impl Regions {
    pub(crate) fn new(seed: u64) -> Self {
        let chosen = HashMap::with_hasher(Keyed::new(seed));
        Self { entries: Slots::default(), chosen, leaving: 0 }
    }

    pub(crate) fn register(
        &mut self,
        pd: Key,
        registration: Registration,
        (rkey, base): (Option<u64>, u64),
        mrs_max: u32,
    ) -> Result<Mr, CreateError> {
        let Registration { addr, length, access, .. } = registration;
        if addr.checked_add(length).and(base.checked_add(length)).is_none()
            || access.remote_write && !access.local_write
        {
            return Err(CreateError::Invalid);
        }
        if rkey.is_some_and(|rkey| self.chosen.contains_key(&rkey)) {
            return Err(CreateError::Exists);
        }
        let entry = Entry { pd, registration, chosen: rkey, base, lent: 0, gone: false };
        let key = self.entries.insert(entry, mrs_max.min(MRS_MAX)).ok_or(CreateError::Full)?;
        let number = Self::number(key);
        if let Some(rkey) = rkey {
            self.chosen.insert(rkey, key);
        }
        Ok(Mr { lkey: number, rkey: rkey.unwrap_or(number.into()) })
    }

    /// Returns the registration of a local key, even if it was deregistered.
    fn find_any(&self, number: u32) -> Option<Key> {
        let key = self.entries.key_at(number >> GENERATION_BITS)?;
        (key.generation & GENERATION_MASK == number & GENERATION_MASK).then_some(key)
    }

    fn find(&self, number: u32) -> Option<Key> {
        let key = self.find_any(number)?;
        (!self.entries.get(key)?.gone).then_some(key)
    }

    pub(crate) fn deregister(&mut self, lkey: u32) -> bool {
        let Some(key) = self.find(lkey) else { return false };
        let Some(entry) = self.entries.get_mut(key) else { return false };
        entry.gone = true;
        if let Some(rkey) = entry.chosen {
            self.chosen.remove(&rkey);
        }
        if entry.lent == 0 {
            self.entries.remove(key);
        } else {
            self.leaving += 1;
        }
        true
    }

    /// Returns the registration that a peer names.
    fn find_remote(&self, rkey: u64) -> Option<Key> {
        if let Some(key) = self.chosen.get(&rkey) {
            return Some(*key);
        }
        let key = self.find(u32::try_from(rkey).ok()?)?;
        self.entries.get(key)?.chosen.is_none().then_some(key)
    }

    /// Returns the local key of the registration in a slot.
    fn number(key: Key) -> u32 {
        key.index << GENERATION_BITS | key.generation & GENERATION_MASK
    }

    /// Whether a protection domain has registrations.
    pub(crate) fn has(&self, pd: Key) -> bool {
        self.entries.iter().any(|(_, entry)| entry.pd == pd && !entry.gone)
    }

    /// Records that the answer to a peer's read of a registration starts (`by` = 1) or ends (`by` =
    /// -1).
    pub(crate) fn lend(&mut self, lkey: u32, by: i32) {
        let Some(key) = self.find_any(lkey) else { return };
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.lent = entry.lent.saturating_add_signed(by);
        if entry.gone && entry.lent == 0 {
            self.entries.remove(key);
            self.leaving -= 1;
        }
    }

    /// Returns the number of registrations that were deregistered while peers' reads were being
    /// answered from them.
    pub(crate) fn leaving(&self) -> usize {
        self.leaving
    }

    /// Whether peers' reads of a registration are being answered.
    pub(crate) fn is_lent(&self, lkey: u32) -> bool {
        let entry = self.find_any(lkey).and_then(|key| self.entries.get(key));
        entry.is_some_and(|entry| entry.lent > 0)
    }

    /// Whether a local key is valid: its memory was not deregistered.
    pub(crate) fn is_live(&self, key: u32) -> bool {
        self.find(key).is_some()
    }

    /// Returns the location of a range, if `pd` may use the range for this purpose.
    pub(crate) fn check(&self, pd: Key, range: Range, purpose: Purpose) -> Option<MemoryLocation> {
        let key = match purpose {
            Purpose::Gather | Purpose::Scatter => self.find(u32::try_from(range.key).ok()?)?,
            Purpose::RemoteWrite | Purpose::RemoteRead => self.find_remote(range.key)?,
        };
        let entry = self.entries.get(key)?;
        let Registration { region, addr, length, access } = entry.registration;
        let allowed = match purpose {
            Purpose::Gather => true,
            Purpose::Scatter => access.local_write,
            Purpose::RemoteWrite => access.remote_write,
            Purpose::RemoteRead => access.remote_read,
        };
        let offset = range.addr.checked_sub(addr)?;
        let fits = offset.checked_add(range.length).is_some_and(|end| end <= length);
        let offset = entry.base.checked_add(offset)?;
        let place = MemoryLocation { region, offset, key: Self::number(key) };
        (entry.pd == pd && allowed && fits).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: Key = Key { index: 0, generation: 1 };
    const ALL: Access = Access { local_write: true, remote_write: true, remote_read: true };

    fn piece(access: Access) -> Registration {
        Registration { region: 9, addr: 1000, length: 100, access }
    }

    #[test]
    fn bounds_are_exact_and_do_not_overflow() {
        let mut regions = Regions::new(1);
        let key = regions.register(PD, piece(ALL), (None, 0), 4).unwrap().rkey;
        let check = |addr, length| {
            regions.check(PD, Range { addr, length, key }, Purpose::RemoteRead).map(|p| p.offset)
        };
        assert_eq!(check(1000, 100), Some(0));
        assert_eq!(check(1099, 1), Some(99));
        assert_eq!(check(1100, 0), Some(100));
        assert_eq!(check(999, 1), None);
        assert_eq!(check(1000, 101), None);
        assert_eq!(check(1001, u64::MAX), None);
        assert_eq!(check(u64::MAX, 1), None);
        let over = Registration { addr: u64::MAX, ..piece(ALL) };
        assert_eq!(regions.register(PD, over, (None, 0), 4), Err(CreateError::Invalid));
    }

    #[test]
    fn rights_are_asked_one_by_one() {
        let mut regions = Regions::new(1);
        let read = Access { remote_read: true, ..Access::default() };
        let key = regions.register(PD, piece(read), (None, 0), 4).unwrap().rkey;
        let range = Range { addr: 1000, length: 1, key };
        let may = |purpose| regions.check(PD, range, purpose).is_some();
        assert!(may(Purpose::Gather) && may(Purpose::RemoteRead));
        assert!(!may(Purpose::Scatter) && !may(Purpose::RemoteWrite));
        let other = Key { index: 1, generation: 1 };
        assert!(regions.check(other, range, Purpose::Gather).is_none(), "another domain's");
        let half = Access { remote_write: true, ..Access::default() };
        assert_eq!(regions.register(PD, piece(half), (None, 0), 4), Err(CreateError::Invalid));
    }

    #[test]
    fn a_key_dies_with_its_registration_and_the_table_has_a_bound() {
        let mut regions = Regions::new(1);
        let old = regions.register(PD, piece(ALL), (None, 0), 1).unwrap().lkey;
        assert_eq!(regions.register(PD, piece(ALL), (None, 0), 1), Err(CreateError::Full));
        assert!(regions.deregister(old) && !regions.deregister(old));
        let new = regions.register(PD, piece(ALL), (None, 0), 1).unwrap().lkey;
        assert_ne!(old, new);
        assert!(!regions.is_live(old) && regions.is_live(new) && regions.has(PD));
    }

    #[test]
    fn a_chosen_key_is_the_only_one_that_peers_can_use_and_is_given_once() {
        let mut regions = Regions::new(1);
        let plain = regions.register(PD, piece(ALL), (None, 0), 4).unwrap();
        let range = |key: u64| Range { addr: 1000, length: 1, key };
        let mine = Registration { region: 7, ..piece(ALL) };
        let chosen = regions.register(PD, mine, (Some(plain.rkey), 0), 4).unwrap();
        let region = |key, purpose| regions.check(PD, range(key), purpose).map(|p| p.region);
        assert_eq!(region(plain.rkey, Purpose::RemoteRead), Some(7), "the caller's choice wins");
        assert_eq!(region(chosen.lkey.into(), Purpose::RemoteRead), None);
        assert_eq!(region(chosen.lkey.into(), Purpose::Gather), Some(7));
        let again = regions.register(PD, mine, (Some(plain.rkey), 0), 4);
        assert_eq!(again, Err(CreateError::Exists));
        assert!(regions.deregister(chosen.lkey));
        regions.register(PD, mine, (Some(u64::MAX), 0), 4).unwrap();
    }
}

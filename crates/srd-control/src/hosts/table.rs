//! The hosts and tokens in memory, and the changes since a generation.
//!
//! A change of a host and the new generation are one transaction. In the order of the store, a host
//! precedes the generation: a removal gets the generation that is read next. The last
//! `REMOVALS_MAX` removals are remembered. A host that has an older generation, or a generation
//! that this controller has not sent to it, gets a snapshot. If the state was replaced by an older
//! one, its generations begin a new time line.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ipnet::IpNet;
use srd_enrol::{Capacity, ControllerIdentities, Fingerprint, FromController, Identity, Peer};
use tokio::sync::watch;

use super::record::{self, HOST, HostRecord, IDENTITY, IdentityRecord, META, Meta, TOKEN};
use super::record::{TokenRecord, put};

/// Largest number of remembered removals.
const REMOVALS_MAX: usize = 1024;

/// The hosts, which the transactions of [`crate::control::Control`] change and sessions read.
#[derive(Clone, Default)]
pub struct Hosts(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: RwLock<Table>,
    /// Number of the last change, which wakes the sessions.
    version: watch::Sender<u64>,
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hosts({})", self.table().hosts.len())
    }
}

impl Hosts {
    /// Returns the table. It cannot change until the result is dropped.
    pub fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.0.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a signal for each further change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Reads a record of the store, or its removal.
    ///
    /// # Errors
    /// If the value is not a record.
    pub(crate) fn read(&self, key: &str, value: Option<&str>) -> Result<(), String> {
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        table.read(key, value)?;
        drop(table);
        self.0.version.send_modify(|version| *version += 1);
        Ok(())
    }

    /// Returns all records for the store.
    pub(crate) fn records(&self) -> Vec<(String, String)> {
        self.table().records()
    }
}

/// The hosts and tokens.
#[derive(Debug, Default)]
pub struct Table {
    pub(super) identity: Option<Identity>,
    /// The identity that replaces the present one.
    pub(super) next_identity: Option<Identity>,
    pub(super) meta: Meta,
    pub(super) hosts: BTreeMap<String, HostRecord>,
    pub(super) tokens: BTreeMap<String, TokenRecord>,
    by_identity: BTreeMap<Fingerprint, String>,
    /// Hosts that were removed, each with the generation of its removal.
    removals: VecDeque<(u64, String)>,
    /// Hosts that were removed in the transaction whose generation is read next.
    removed: Vec<String>,
    /// Generation since which all removals are remembered; `None` until the first generation is
    /// read.
    complete_since: Option<u64>,
    time_line: u64,
}

impl Table {
    /// Fingerprint of this controller; `None` if it accepts no hosts.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.identity.as_ref().map(Identity::fingerprint)
    }

    /// Fingerprints of the identities of this controller; `None` if it accepts no hosts.
    pub fn controller(&self) -> Option<ControllerIdentities> {
        let next = self.next_identity.as_ref().map(Identity::fingerprint);
        Some(ControllerIdentities { present: self.fingerprint()?, next })
    }

    /// Returns the identities that this controller shows to hosts: the next one, then the present
    /// one.
    pub(super) fn identities(&self) -> Vec<Identity> {
        self.next_identity.iter().chain(&self.identity).cloned().collect()
    }

    /// Generation of the last change of a host.
    pub fn generation(&self) -> u64 {
        self.meta.generation
    }

    /// Number of times that the generation has gone back since the start of this controller. Equal
    /// generations of different time lines may stand for different hosts.
    pub(super) fn time_line(&self) -> u64 {
        self.time_line
    }

    /// Block from which overlay addresses are assigned.
    pub fn overlay(&self) -> Option<IpNet> {
        self.meta.overlay
    }

    /// Returns the name of the host with this identity.
    pub fn name_of(&self, identity: Fingerprint) -> Option<&str> {
        self.by_identity.get(&identity).map(String::as_str)
    }

    /// Returns the overlay address of a host, with the length of the overlay's prefix.
    pub(super) fn address_of(&self, record: &HostRecord) -> IpNet {
        let bits = self.meta.overlay.map(|block| block.prefix_len());
        let address = IpNet::from(record.address);
        bits.and_then(|bits| IpNet::new(record.address, bits).ok()).unwrap_or(address)
    }

    /// Whether there is a host with this name.
    pub fn has(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// Whether a host has this overlay address.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.hosts.values().any(|host| host.address == address)
    }

    /// Hosts that accept instances.
    pub fn capacities(&self) -> impl Iterator<Item = (&str, &Capacity)> {
        let all = self.hosts.iter();
        all.filter_map(|(name, record)| Some((name.as_str(), record.host.capacity.as_ref()?)))
    }

    /// Whether the operator has requested another key of a host.
    pub fn must_rotate(&self, name: &str) -> bool {
        self.hosts.get(name).is_some_and(|host| host.must_rotate)
    }

    /// Returns the message that leads a host from a generation to the present one, and the present
    /// generation; `None` if there is no change. Generation 0 stands for no peers at all.
    pub fn since(&self, generation: u64, own: &str) -> Option<(u64, FromController)> {
        let present = self.meta.generation;
        if generation == present && generation != 0 {
            return None;
        }
        let others = || self.hosts.iter().filter(|(name, _)| *name != own);
        let peer = |(name, host): (&String, &HostRecord)| host.peer(name);
        let is_delta = self.complete_since.is_some_and(|since| generation >= since)
            && (1..present).contains(&generation);
        if !is_delta {
            let peers: Vec<Peer> = others().map(peer).collect();
            return Some((present, FromController::Snapshot { generation: present, peers }));
        }
        let changed = others().filter(|(_, host)| host.generation > generation).map(peer).collect();
        let newer = self.removals.iter().filter(|(at, _)| *at > generation);
        let mut removed: Vec<String> = newer.map(|(_, name)| name.clone()).collect();
        removed.retain(|name| !self.hosts.contains_key(name));
        removed.sort();
        removed.dedup();
        Some((present, FromController::Delta { generation: present, changed, removed }))
    }

    fn read(&mut self, key: &str, value: Option<&str>) -> Result<(), String> {
        if key == IDENTITY {
            let record: Option<IdentityRecord> = value.map(record::read).transpose()?;
            let (key, next) = record.map(|of| (of.key, of.next)).unzip();
            self.identity = key.map(|text| Identity::parse(&text)).transpose()?;
            self.next_identity = next.flatten().map(|text| Identity::parse(&text)).transpose()?;
            return Ok(());
        }
        if key == META {
            let former = self.meta.generation;
            self.meta = value.map(record::read).transpose()?.unwrap_or_default();
            if self.meta.generation < former {
                self.time_line += 1;
                self.removals.clear();
                self.complete_since = None;
            }
            self.date_removals();
            return Ok(());
        }
        if let Some(id) = key.strip_prefix(TOKEN) {
            match value {
                Some(value) => drop(self.tokens.insert(id.to_owned(), record::read(value)?)),
                None => drop(self.tokens.remove(id)),
            }
            return Ok(());
        }
        let name = key.strip_prefix(HOST).ok_or("the key has another form than keys of hosts")?;
        let record: Option<HostRecord> = value.map(record::read).transpose()?;
        if let Some(old) = self.hosts.remove(name) {
            self.by_identity.remove(&old.identity);
        }
        match record {
            Some(record) => {
                self.by_identity.insert(record.identity, name.to_owned());
                self.hosts.insert(name.to_owned(), record);
            }
            None => self.removed.push(name.to_owned()),
        }
        Ok(())
    }

    /// Gives the removals of a transaction the generation of the transaction.
    fn date_removals(&mut self) {
        let generation = self.meta.generation;
        let since = *self.complete_since.get_or_insert(generation);
        self.removals.extend(self.removed.drain(..).map(|name| (generation, name)));
        while self.removals.len() > REMOVALS_MAX {
            let oldest = self.removals.pop_front();
            self.complete_since = Some(oldest.map_or(since, |(at, _)| at));
        }
    }

    fn records(&self) -> Vec<(String, String)> {
        let next = self.next_identity.as_ref().map(Identity::expose);
        let record = |own: &Identity| IdentityRecord { key: own.expose(), next };
        let identity = self.identity.as_ref().map(|own| put(IDENTITY, &record(own)));
        let hosts = self.hosts.iter().map(|(name, host)| put(format!("{HOST}{name}"), host));
        let meta = (self.meta != Meta::default()).then(|| put(META, &self.meta));
        let tokens = self.tokens.iter().map(|(id, token)| put(format!("{TOKEN}{id}"), token));
        let all = identity.into_iter().chain(hosts).chain(meta).chain(tokens);
        all.filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

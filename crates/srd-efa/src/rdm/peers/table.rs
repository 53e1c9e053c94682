//! Peers by number: those that the application has added, and those that have only sent to this
//! endpoint.
//!
//! A peer that the application has not added is a **stranger**: it has one number for all of its
//! runs (H7). Its state is dropped after the transport has removed the peer. The transport may
//! remove a peer that the application has removed, or that is down. For each new stranger, two
//! older strangers are checked, whose state may be dropped.
//!
//! The number of a removed peer is not used for another peer while a receive names it or a stored
//! message came from it.
//!
//! Bounds: `peers_max` numbers, of which `strangers_max` are for strangers. A further peer is
//! refused for now, and tries again.

use alloc::boxed::Box;
use core::net::SocketAddr;

use srd_proto::{Endpoint, PeerId};

use crate::layer::completion::Outcome;
use crate::layer::world::{Peer, Refused, World};
use crate::rdm::peers::connection::{Connection, Entry};
use crate::rdm::state::Rdm;

/// Number of strangers (peers that the application has not inserted) whose removal is considered
/// for each new stranger.
pub(crate) const STRANGERS_LOOKED_AT: usize = 2;
/// Number of strangers whose removal is considered for a new stranger after one was refused because
/// the table is full.
const STRANGERS_LOOKED_AT_CROWDED: usize = 64;
/// Number of removed peers whose numbers are considered to be freed for each new number.
const REMOVED_LOOKED_AT: usize = 2;

impl Rdm {
    pub(crate) fn entry(&self, peer: Peer) -> Option<&Entry> {
        self.entries.get(peer.0 as usize)?.as_ref()
    }

    pub(crate) fn conn(&self, index: u32) -> Option<&Connection> {
        self.conns.get(index as usize)?.as_deref()
    }

    pub(crate) fn conn_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.conns.get_mut(index as usize)?.as_deref_mut()
    }

    /// Returns the connection of a transport peer.
    pub(crate) fn conn_of(&self, peer: PeerId) -> Option<u32> {
        self.conn(peer.index()).filter(|conn| conn.id == peer).map(|_| peer.index())
    }

    /// Records that a connection has work for the next call of
    /// [`Rdm::pump`](crate::rdm::Rdm::pump).
    pub(crate) fn wake(&mut self, index: u32) {
        if let Some(conn) = self.conn_mut(index)
            && !core::mem::replace(&mut conn.ready, true)
        {
            self.ready.push_back(index);
        }
    }

    /// Returns the peer at an address; the address of this endpoint is the endpoint itself.
    /// `incarnation`: the requested run, zero for any run. The peer must be removed as many times
    /// as it was added.
    ///
    /// # Errors
    /// `Again` if there are too many peers; `Invalid` if the transport has no key for the peer.
    pub fn add_peer(
        &mut self,
        world: &mut World<'_>,
        address: SocketAddr,
        incarnation: u64,
    ) -> Result<Peer, Refused> {
        let heard = world.endpoint.peer_at(address).and_then(|id| self.conn_of(id));
        if let Some(number) = self.known(address, incarnation, heard) {
            if let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) {
                entry.references += 1;
                if entry.references == 1
                    && let Err(refused) = self.reach(world, number, address)
                {
                    self.unreference(number);
                    return Err(refused);
                }
            }
            self.rename(Peer(number));
            return Ok(Peer(number));
        }
        let conn = if address == self.local_address {
            None
        } else {
            let id = world.keep_peer(address)?;
            Some(self.make_conn(id, address).ok_or(Refused::Again)?)
        };
        let entry = Entry { address, incarnation, references: 1, conn, listed: false };
        let number = self.enter(entry).ok_or(Refused::Again)?;
        self.choose_source(conn);
        self.rename(Peer(number));
        Ok(Peer(number))
    }

    /// Makes the transport keep the peer of an entry that the application adds. The transport may
    /// have removed the peer before, while the number stayed in use.
    fn reach(
        &mut self,
        world: &mut World<'_>,
        number: u32,
        address: SocketAddr,
    ) -> Result<(), Refused> {
        if address == self.local_address {
            return Ok(());
        }
        let conn = self.entry(Peer(number)).and_then(|entry| self.conn(entry.conn?));
        if let Some(id) = conn.map(|conn| conn.id)
            && world.endpoint.address_of(id).is_some()
        {
            world.endpoint.keep_peer(id);
            return Ok(());
        }
        let id = world.keep_peer(address)?;
        let index = self.make_conn(id, address).ok_or(Refused::Again)?;
        self.attach(number, index);
        Ok(())
    }

    /// Assigns a connection to an entry, instead of the connection that the entry has.
    fn attach(&mut self, number: u32, index: u32) {
        let entry = self.entries.get_mut(number as usize).and_then(Option::as_mut);
        let Some(before) = entry.map(|entry| entry.conn.replace(index)) else { return };
        self.former.remove(&number);
        if before == Some(index) {
            return;
        }
        if let Some(conn) = before.and_then(|before| self.conn_mut(before)) {
            conn.entries.retain(|other| *other != number);
        }
        if let Some(conn) = self.conn_mut(index) {
            conn.entries.push(number);
        }
    }

    /// Undoes one reference of the application to an entry. Returns the references that remain.
    fn unreference(&mut self, number: u32) -> Option<u32> {
        let entry = self.entries.get_mut(number as usize)?.as_mut()?;
        entry.references = entry.references.saturating_sub(1);
        Some(entry.references)
    }

    /// Returns the number of an existing peer: an entry for this address and run, or, if any run is
    /// requested, the peer that has sent from this address.
    fn known(&mut self, address: SocketAddr, incarnation: u64, heard: Option<u32>) -> Option<u32> {
        if let Some(number) = self.by_name.get(&(address, incarnation)) {
            return Some(*number);
        }
        let conn = self.conn(heard.filter(|_| incarnation == 0)?)?;
        let number = conn.source?;
        let entry = self.entries.get_mut(number as usize)?.as_mut()?;
        if entry.references > 0 {
            return None;
        }
        self.by_name.remove(&(address, entry.incarnation));
        entry.incarnation = 0;
        self.by_name.insert((address, 0), number);
        Some(number)
    }

    /// Adds an entry under the lowest free number. Returns the number; `None` if there are too many
    /// peers.
    pub(crate) fn enter(&mut self, entry: Entry) -> Option<u32> {
        self.free_removed();
        let next = u32::try_from(self.entries.len()).ok()?;
        let number = self.free.pop_first().unwrap_or(next);
        if number == next {
            if number >= self.bounds.peers_max {
                return None;
            }
            self.entries.push(None);
            self.uses.push(0);
        }
        self.by_name.insert((entry.address, entry.incarnation), number);
        self.entries[number as usize] = Some(entry);
        if let Some(conn) = entry.conn.and_then(|index| self.conn_mut(index)) {
            conn.entries.push(number);
        }
        Some(number)
    }

    /// Frees a number, which then refers to no peer.
    fn erase(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::take) else {
            return;
        };
        self.by_name.remove(&(entry.address, entry.incarnation));
        self.former.remove(&number);
        self.free.insert(number);
        if let Some(uses) = self.uses.get_mut(number as usize) {
            *uses = uses.wrapping_add(1);
        }
        if let Some(conn) = entry.conn.and_then(|index| self.conn_mut(index)) {
            conn.entries.retain(|other| *other != number);
        }
    }

    /// Returns how many times the number of a peer was freed: an application that keeps the number
    /// together with this count notices when the number refers to another peer. The count wraps
    /// around.
    pub fn uses(&self, peer: Peer) -> u32 {
        self.uses.get(peer.0 as usize).copied().unwrap_or(0)
    }

    /// Whether a receive names a number, or a message from it is stored.
    fn knows(&self, number: u32) -> bool {
        self.tagged.knows(number) || self.plain.knows(number)
    }

    /// Whether a message from a number is stored that no caller has claimed.
    pub(crate) fn stores(&self, number: u32) -> bool {
        self.tagged.first_from(number).is_some() || self.plain.first_from(number).is_some()
    }

    /// Frees a number that the application does not use any more; later, if receives or stored
    /// messages refer to it.
    fn erase_or_list(&mut self, number: u32) {
        if !self.knows(number) {
            self.erase(number);
        } else if let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut)
            && !core::mem::replace(&mut entry.listed, true)
        {
            self.removed.push_back(number);
        }
    }

    /// Frees numbers of removed peers to which nothing refers any more.
    fn free_removed(&mut self) {
        for _ in 0..REMOVED_LOOKED_AT.min(self.removed.len()) {
            let Some(number) = self.removed.pop_front() else { return };
            let entry = self.entries.get_mut(number as usize).and_then(Option::as_mut);
            let Some(entry) = entry.filter(|entry| entry.listed) else { continue };
            entry.listed = false;
            // The peer may have been added again, or may have sent since.
            if entry.references == 0 && !self.writes(number) {
                self.erase_or_list(number);
            }
        }
    }

    /// Whether messages of the peer's current run are from this number.
    fn writes(&self, number: u32) -> bool {
        let conn = self.entry(Peer(number)).and_then(|entry| self.conn(entry.conn?));
        conn.is_some_and(|conn| conn.source == Some(number))
    }

    /// Records that the application has added or removed a peer: the peer's connection may become,
    /// or cease to be, a stranger's.
    fn rename(&mut self, peer: Peer) {
        let Some(index) = self.entry(peer).and_then(|entry| entry.conn) else { return };
        let Some(conn) = self.conn(index) else { return };
        let named = |number: &u32| self.entry(Peer(*number)).is_some_and(|e| e.references > 0);
        let (id, before, named) = (conn.id, conn.named, conn.entries.iter().any(named));
        if let Some(conn) = self.conn_mut(index) {
            conn.named = named;
        }
        match (before, named) {
            (false, true) => self.strangers_count -= 1,
            (true, false) => {
                self.strangers_count += 1;
                self.watch(index);
                self.released.push(id);
            }
            _ => {}
        }
    }

    /// Adds a stranger once to the list of strangers that are checked.
    fn watch(&mut self, index: u32) {
        if let Some(conn) = self.conn_mut(index)
            && !core::mem::replace(&mut conn.watched, true)
        {
            let id = conn.id;
            self.strangers.push_back(id);
        }
    }

    /// Allows the transport to remove peers that are not needed. If a stranger was refused, drops
    /// strangers that the transport has removed.
    pub(crate) fn release_peers(&mut self, world: &mut World<'_>) {
        for id in core::mem::take(&mut self.released) {
            let conn = self.conn_of(id).and_then(|index| self.conn(index));
            if conn.is_some_and(|conn| !conn.named) {
                world.endpoint.release_peer(world.now, id);
            }
        }
        if core::mem::take(&mut self.crowded) {
            self.forget_strangers(world.endpoint, STRANGERS_LOOKED_AT_CROWDED);
        }
    }

    /// Checks some strangers, and drops a stranger if the transport has removed it, and it has no
    /// messages or operations.
    pub(crate) fn forget_strangers(&mut self, endpoint: &Endpoint, looks: usize) {
        for _ in 0..looks.min(self.strangers.len()) {
            let Some(id) = self.strangers.pop_front() else { return };
            let Some(index) = self.conn_of(id) else { continue };
            if let Some(conn) = self.conn_mut(index) {
                conn.watched = false;
                if conn.named {
                    continue;
                }
            }
            if endpoint.address_of(id).is_none() && self.is_unused(index) {
                self.drop_conn(index);
            } else {
                self.watch(index);
            }
        }
    }

    /// Whether no operation of a connection's peer is in progress and none of its messages is
    /// stored.
    fn is_unused(&self, index: u32) -> bool {
        let Some(conn) = self.conn(index) else { return false };
        let idle = conn.in_flight == 0 && conn.reads_active == 0 && conn.reads.is_empty();
        let kept = |n: &u32| self.knows(*n);
        idle && !conn.entries.iter().any(kept)
            && !self.ops.iter().any(|(_, op)| op.conn == index)
            && !self.controls.iter().any(|(_, control)| control.conn == index)
    }

    /// Returns the connection of a transport peer; makes it if it does not exist.
    pub(crate) fn make_conn(&mut self, id: PeerId, address: SocketAddr) -> Option<u32> {
        let index = id.index();
        if let Some(found) = self.conn_of(id) {
            return Some(found);
        }
        self.drop_conn(index);
        self.free_removed();
        let ah = self.device.create_ah(self.pd, id).ok()?;
        if self.conns.len() <= index as usize {
            self.conns.resize_with(index as usize + 1, || None);
        }
        let conn = Connection::new(id, ah, address, self.payload_to(address.ip()));
        self.conns[index as usize] = Some(Box::new(conn));
        self.conn_count += 1;
        self.strangers_count += 1;
        self.watch(index);
        Some(index)
    }

    /// Drops a connection whose peer the transport has removed. The transport may have reused the
    /// peer's index.
    fn drop_conn(&mut self, index: u32) {
        if self.conn(index).is_none() {
            return;
        }
        self.drop_incoming(index, Outcome::Removed);
        self.fail_conn(index, Outcome::Removed);
        let Some(mut conn) = self.conns[index as usize].take() else { return };
        self.drop_reads(&mut conn, Outcome::Removed);
        self.probed.remove(&index);
        let _ = self.device.destroy_ah(conn.ah);
        self.conn_count -= 1;
        self.strangers_count -= u32::from(!conn.named);
        for number in conn.entries {
            let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else {
                continue;
            };
            entry.conn = None;
            let is_unused = entry.references == 0;
            if self.stores(number) {
                self.former.insert(number);
            }
            if is_unused {
                self.erase_or_list(number);
            }
        }
    }

    /// Chooses the number of the run at the other end of a connection: the entry of this run, or
    /// the entry of its address for any run.
    pub(crate) fn choose_source(&mut self, conn: Option<u32>) {
        let Some((index, conn)) = conn.and_then(|index| Some((index, self.conn(index)?))) else {
            return;
        };
        if conn.remote == 0 {
            return;
        }
        let (address, remote) = (conn.address, conn.remote);
        let named = self.by_name.get(&(address, remote)).or(self.by_name.get(&(address, 0)));
        let source = match named.copied() {
            Some(number) => {
                if self.entry(Peer(number)).is_some_and(|entry| entry.references == 0) {
                    self.attach(number, index);
                }
                Some(number)
            }
            None => self.unnamed(index, address, remote),
        };
        if let Some(conn) = self.conn_mut(index) {
            conn.source = source;
        }
    }

    /// Returns the number for a run that the application has not added. If an earlier run of the
    /// same peer had such a number, it is used again.
    fn unnamed(&mut self, index: u32, address: SocketAddr, incarnation: u64) -> Option<u32> {
        // The number of a removed peer that has not sent stays the number of its run.
        let unnamed = |number: &u32| {
            let entry = self.entry(Peer(*number));
            entry.is_some_and(|e| e.references == 0 && (!e.listed || self.writes(*number)))
        };
        let number = self.conn(index)?.entries.iter().copied().find(|n| unnamed(n));
        let Some(number) = number else {
            let conn = Some(index);
            let entry = Entry { address, incarnation, references: 0, conn, listed: false };
            return self.enter(entry);
        };
        let entry = self.entries.get_mut(number as usize)?.as_mut()?;
        self.by_name.remove(&(entry.address, entry.incarnation));
        entry.incarnation = incarnation;
        self.by_name.insert((address, incarnation), number);
        Some(number)
    }

    /// Undoes one call of [`Rdm::add_peer`]. If no other call remains, the peer is removed: its
    /// outstanding operations end as `Removed` when the transport has released their memory. A peer
    /// that has sent to this endpoint keeps its connection.
    pub fn remove_peer(&mut self, world: &mut World<'_>, peer: Peer) {
        if self.unreference(peer.0) != Some(0) {
            return;
        }
        let conn = self.entry(peer).and_then(|entry| entry.conn);
        let writes = self.writes(peer.0);
        self.fail_peer(peer.0, Outcome::Removed);
        self.rename(peer);
        if !writes {
            self.erase_or_list(peer.0);
        }
        if let Some(index) = conn {
            self.flush(world, index);
        }
    }

    /// Returns the address of a peer, and its run; the run is zero if it is unknown.
    pub fn address_of(&self, peer: Peer) -> Option<(SocketAddr, u64)> {
        let entry = self.entry(peer)?;
        let Some(index) = entry.conn else { return Some((entry.address, self.incarnation)) };
        let current = self.conn(index).map_or(0, |conn| conn.remote);
        let known = if entry.incarnation == 0 { current } else { entry.incarnation };
        Some((entry.address, known))
    }
}

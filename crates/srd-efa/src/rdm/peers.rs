//! Peers by number: whom the application named, and who only wrote to us. Bound: `peers_max`.

use alloc::boxed::Box;
use core::net::SocketAddr;

use srd_proto::PeerId;

use super::link::Link;
use super::{Outcome, Peer, Rdm, Refused, World};

/// A peer as the application numbers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub address: SocketAddr,
    /// The run that is meant; zero for whoever is there.
    pub incarnation: u64,
    /// How often it was added.
    pub references: u32,
    /// The transport's number of it; none for ourselves.
    pub link: Option<u32>,
}

impl Rdm {
    pub(super) fn entry(&self, peer: Peer) -> Option<&Entry> {
        self.entries.get(peer.0 as usize)?.as_ref()
    }

    pub(super) fn link(&self, index: u32) -> Option<&Link> {
        self.links.get(index as usize)?.as_deref()
    }

    pub(super) fn link_mut(&mut self, index: u32) -> Option<&mut Link> {
        self.links.get_mut(index as usize)?.as_deref_mut()
    }

    /// The link of a transport peer.
    pub(super) fn link_of(&self, peer: PeerId) -> Option<u32> {
        self.link(peer.index()).filter(|link| link.id == peer).map(|_| peer.index())
    }

    /// A link has something to do at the next pump.
    pub(super) fn wake(&mut self, index: u32) {
        if let Some(link) = self.link_mut(index)
            && !core::mem::replace(&mut link.ready, true)
        {
            self.ready.push_back(index);
        }
    }

    /// The peer at an address; our own address is the endpoint itself. `incarnation`: the run that
    /// is meant, zero for whoever is there. Added as often as it must be removed.
    ///
    /// # Errors
    /// `Again` when there are too many peers, `Invalid` if the transport knows no key of its.
    pub fn add_peer(
        &mut self,
        world: &mut World<'_>,
        address: SocketAddr,
        incarnation: u64,
    ) -> Result<Peer, Refused> {
        let heard = world.endpoint.peer_at(address).and_then(|id| self.link_of(id));
        if let Some(number) = self.known(address, incarnation, heard) {
            if let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) {
                entry.references += 1;
            }
            return Ok(Peer(number));
        }
        let link = if address == self.own {
            None
        } else {
            let id = world.keep_peer(address)?;
            Some(self.make_link(id, address).ok_or(Refused::Again)?)
        };
        let entry = Entry { address, incarnation, references: 1, link };
        let number = self.enter(entry).ok_or(Refused::Again)?;
        self.choose_source(link);
        Ok(Peer(number))
    }

    /// The number of a peer that is known: under this name, or, if any run will do, as the one
    /// that has written to us.
    fn known(&mut self, address: SocketAddr, incarnation: u64, heard: Option<u32>) -> Option<u32> {
        if let Some(number) = self.by_name.get(&(address, incarnation)) {
            return Some(*number);
        }
        let link = self.link(heard.filter(|_| incarnation == 0)?)?;
        let number = link.source?;
        let entry = self.entries.get_mut(number as usize)?.as_mut()?;
        if entry.references > 0 {
            return None;
        }
        self.by_name.remove(&(address, entry.incarnation));
        entry.incarnation = 0;
        self.by_name.insert((address, 0), number);
        Some(number)
    }

    /// Gives an entry the lowest free number.
    pub(super) fn enter(&mut self, entry: Entry) -> Option<u32> {
        let next = u32::try_from(self.entries.len()).ok()?;
        let number = self.free.pop_first().unwrap_or(next);
        if number == next {
            if number >= self.bounds.peers_max {
                return None;
            }
            self.entries.push(None);
        }
        self.by_name.insert((entry.address, entry.incarnation), number);
        self.entries[number as usize] = Some(entry);
        Some(number)
    }

    /// The link of a transport peer, made if there is none.
    pub(super) fn make_link(&mut self, id: PeerId, address: SocketAddr) -> Option<u32> {
        let index = id.index();
        if let Some(found) = self.link_of(id) {
            return Some(found);
        }
        self.drop_link(index);
        let ah = self.device.create_ah(self.pd, id).ok()?;
        if self.links.len() <= index as usize {
            self.links.resize_with(index as usize + 1, || None);
        }
        let link = Link::new(id, ah, address, self.payload_bytes_max);
        self.links[index as usize] = Some(Box::new(link));
        self.links_count += 1;
        Some(index)
    }

    /// The transport has given a link's place to another peer.
    fn drop_link(&mut self, index: u32) {
        if self.link(index).is_none() {
            return;
        }
        self.drop_incoming(index, Outcome::Removed);
        self.fail_link(index, Outcome::Removed);
        if let Some(link) = self.links[index as usize].take() {
            let _ = self.device.destroy_ah(link.ah);
            self.links_count -= 1;
        }
        for entry in self.entries.iter_mut().flatten() {
            if entry.link == Some(index) {
                entry.link = None;
            }
        }
    }

    /// Decides under which number the run at the other end of a link is known: by its name, or as
    /// whoever is there.
    pub(super) fn choose_source(&mut self, link: Option<u32>) {
        let Some((index, link)) = link.and_then(|index| Some((index, self.link(index)?))) else {
            return;
        };
        if link.remote == 0 {
            return;
        }
        let (address, remote) = (link.address, link.remote);
        let named = self.by_name.get(&(address, remote)).or(self.by_name.get(&(address, 0)));
        let source = match named {
            Some(number) => Some(*number),
            None => {
                let link = Some(index);
                self.enter(Entry { address, incarnation: remote, references: 0, link })
            }
        };
        if let Some(link) = self.link_mut(index) {
            link.source = source;
        }
    }

    /// What is under way to the peer ends as `Removed`, as soon as the transport has let go of
    /// it. Who wrote to us stays known.
    pub fn remove_peer(&mut self, world: &mut World<'_>, peer: Peer) {
        let Some(entry) = self.entries.get_mut(peer.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        entry.references = entry.references.saturating_sub(1);
        if entry.references > 0 {
            return;
        }
        let (name, link) = ((entry.address, entry.incarnation), entry.link);
        let writes = link
            .is_some_and(|index| self.link(index).is_some_and(|link| link.source == Some(peer.0)));
        self.fail_peer(peer.0, Outcome::Removed);
        if !writes {
            self.by_name.remove(&name);
            self.entries[peer.0 as usize] = None;
            self.free.insert(peer.0);
        }
        if let Some(index) = link {
            self.flush(world, index);
        }
    }

    /// Where a peer is, and its run as far as it is known.
    pub fn address_of(&self, peer: Peer) -> Option<(SocketAddr, u64)> {
        let entry = self.entry(peer)?;
        let Some(index) = entry.link else { return Some((entry.address, self.incarnation)) };
        let current = self.link(index).map_or(0, |link| link.remote);
        let known = if entry.incarnation == 0 { current } else { entry.incarnation };
        Some((entry.address, known))
    }
}

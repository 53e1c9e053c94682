//! The rules of a card: its peers, the addresses behind each, and whether SRD is on.
//!
//! A snapshot of them is immutable and shared by reference counting: the card, and later each of
//! its workers, holds one and swaps it as a whole. Each change makes another epoch. An entry of the
//! flow table remembers the epoch under which its flow was judged, so that a change of rules costs
//! the same however many flows there are: each flow is judged again before its next packet.

use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::PeerId;

use super::prefix::{Prefix, Routes};
use crate::meta::Meta;

/// A peer of the card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerSlot(pub u32);

/// The rules about one peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerSettings {
    /// Its name in the transport.
    pub id: PeerId,
    /// Inner addresses behind it.
    pub allowed: Vec<Prefix>,
    /// Whether SRD is on towards it.
    pub express: bool,
    /// For UDP, too.
    pub express_udp: bool,
}

/// The packets that ride SRD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// SRD is on: TCP does.
    pub express: bool,
    /// UDP does, too.
    pub udp: bool,
    /// Tunnels without ports do, too: GRE, ESP, IP in IP.
    pub tunnels: bool,
}

/// How the rules judge a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    /// The peer behind the flow's remote address, if there is one.
    pub(crate) peer: Option<u32>,
    /// The rules that say so.
    pub(crate) epoch: u64,
}

/// A snapshot of the rules.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    epoch: u64,
    carried: Carried,
    peers: Vec<Option<PeerSettings>>,
    routes: Routes<u32>,
}

impl Rules {
    /// Rules without peers.
    pub fn new(carried: Carried) -> Self {
        Self { carried, ..Self::default() }
    }

    /// A number that grows with each change.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The packets that ride SRD at all.
    pub fn enabled(&self) -> Carried {
        self.carried
    }

    /// The packets that ride SRD towards a peer.
    pub fn enabled_for(&self, slot: PeerSlot) -> Carried {
        let peer = self.peer(slot).map_or((false, false), |p| (p.express, p.express_udp));
        let Carried { express, udp, tunnels } = self.carried;
        Carried { express: express && peer.0, udp: udp && peer.1, tunnels }
    }

    /// The peer of a slot.
    pub fn peer(&self, slot: PeerSlot) -> Option<&PeerSettings> {
        self.peers.get(slot.0 as usize)?.as_ref()
    }

    /// Slots that have a peer, or had one.
    pub fn slots(&self) -> impl Iterator<Item = PeerSlot> + use<> {
        (0..u32::try_from(self.peers.len()).unwrap_or(u32::MAX)).map(PeerSlot)
    }

    /// The peer behind an address.
    pub fn peer_of(&self, address: IpAddr) -> Option<PeerSlot> {
        self.routes.find(address).map(PeerSlot)
    }

    /// Judges a packet by itself: the peer behind its remote address is the one that packets of the
    /// flow go to (X3), and the only one that may send them (G1).
    pub(crate) fn judge(&self, meta: &Meta) -> Verdict {
        Verdict { peer: self.routes.find(meta.key.destination), epoch: self.epoch }
    }

    /// Adds a peer. It takes the first slot that is free.
    pub fn add_peer(&mut self, settings: PeerSettings) -> PeerSlot {
        self.epoch += 1;
        let free = self.peers.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        let slot = u32::try_from(index).unwrap_or(u32::MAX);
        for prefix in &settings.allowed {
            self.routes.insert(*prefix, slot);
        }
        self.peers[index] = Some(settings);
        PeerSlot(slot)
    }

    /// Removes a peer, and the way to its addresses.
    pub fn remove_peer(&mut self, slot: PeerSlot) {
        self.epoch += 1;
        self.routes.remove(slot.0);
        if let Some(peer) = self.peers.get_mut(slot.0 as usize) {
            *peer = None;
        }
    }

    /// Changes the addresses behind a peer.
    pub fn set_allowed(&mut self, slot: PeerSlot, allowed: Vec<Prefix>) {
        self.epoch += 1;
        let Some(peer) = self.peers.get_mut(slot.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        self.routes.remove(slot.0);
        for prefix in &allowed {
            self.routes.insert(*prefix, slot.0);
        }
        peer.allowed = allowed;
    }

    /// Turns SRD towards a peer on or off.
    pub fn set_express(&mut self, slot: PeerSlot, express: bool, udp: bool) {
        self.epoch += 1;
        if let Some(peer) = self.peers.get_mut(slot.0 as usize).and_then(Option::as_mut) {
            (peer.express, peer.express_udp) = (express, udp);
        }
    }

    /// Turns SRD on or off as a whole.
    pub fn set_enabled(&mut self, express: bool, udp: bool) {
        self.epoch += 1;
        (self.carried.express, self.carried.udp) = (express, udp);
    }

    /// Turns SRD on or off for tunnels without ports.
    pub fn set_tunnels(&mut self, tunnels: bool) {
        self.epoch += 1;
        self.carried.tunnels = tunnels;
    }
}

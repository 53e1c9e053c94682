//! The rules of a card: its peers, the addresses behind each, and whether SRD is on.
//!
//! A snapshot of the rules is immutable and shared by reference counting; the card replaces it as a
//! whole. Each change of the rules increments their epoch. An entry of the flow table contains the
//! epoch of the rules that evaluated its flow. If this epoch is outdated, the flow is evaluated
//! again before its next packet. So the cost of a change does not depend on the number of flows.

use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::PeerId;

use super::prefix::{Prefix, Routes};
use crate::meta::Meta;

/// Slot of a peer: its index in the card's tables. The slot of a removed peer is used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerSlot(pub u32);

/// Rules of one peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerSettings {
    /// Identifier of the peer in the transport.
    pub id: PeerId,
    /// Inner addresses of the peer: packets to these addresses are sent to the peer, and the peer
    /// may send from no other address.
    pub allowed: Vec<Prefix>,
    /// Whether SRD towards the peer is on.
    pub express: bool,
    /// Whether SRD towards the peer is on for UDP.
    pub express_udp: bool,
}

/// Kinds of packets that SRD carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Whether SRD is on, and carries TCP.
    pub express: bool,
    /// Whether SRD carries UDP.
    pub udp: bool,
    /// Whether SRD carries tunnels without ports: GRE, ESP, IP in IP.
    pub tunnels: bool,
}

/// Verdict of the rules about a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    /// Slot of the peer to which the flow's remote address belongs, if there is one.
    pub(crate) peer: Option<u32>,
    /// Epoch of the rules that gave the verdict.
    pub(crate) epoch: u64,
}

/// A snapshot of the rules: the gate between a guest and its peers. It assigns each inner address
/// to at most one peer, and states which kinds of packets SRD carries to which peer.
///
/// # Calls
///
/// - **Queries**: [`peer_of`](Self::peer_of) for an address, [`peer`](Self::peer) and
///   [`slots`](Self::slots) for the peers, [`enabled`](Self::enabled) and
///   [`enabled_for`](Self::enabled_for) for the kinds of packets. They change nothing.
/// - **Changes**: [`add_peer`](Self::add_peer), [`remove_peer`](Self::remove_peer),
///   [`set_allowed`](Self::set_allowed), [`set_express`](Self::set_express),
///   [`set_enabled`](Self::set_enabled) and [`set_tunnels`](Self::set_tunnels). Each of them
///   increases the [`epoch`](Self::epoch).
///
/// # Contract
///
/// - Packets to an address are sent to the peer with the longest prefix that contains the address
///   (X3 of `docs/spec/express.md`). The same peer, and no other, may send packets from this
///   address (G1). An address without a peer receives nothing and sends nothing.
/// - If two peers have the same prefix, it belongs to the peer whose rules were set last.
/// - A peer gets the first free slot. The slots of the other peers do not change.
/// - [`Express`](crate::Express) uses a snapshot until
///   [`Express::set_rules`](crate::Express::set_rules) replaces it. The new snapshot is a changed
///   copy, with a larger epoch. After the call, the old rules let no packet pass.
///
/// # Limits
///
/// One lookup for each length of prefix in use, once for each flow. The number of peers and
/// prefixes is that of the configuration; the network cannot increase it.
///
/// # Example
///
#[doc = concat!("```ignore\n", include_str!("../../tests/it/gate_example.rs"), "```\n")]
#[derive(Clone, Debug, Default)]
pub struct Rules {
    epoch: u64,
    carried: Carried,
    peers: Vec<Option<PeerSettings>>,
    routes: Routes<u32>,
}

impl Rules {
    /// Creates rules without peers.
    pub fn new(carried: Carried) -> Self {
        Self { carried, ..Self::default() }
    }

    /// Number that increases with each change of the rules.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the kinds of packets for which SRD is switched on in general.
    pub fn enabled(&self) -> Carried {
        self.carried
    }

    /// Returns the kinds of packets for which SRD is on both in general and for this peer. For
    /// tunnels, there is only the general setting.
    pub fn enabled_for(&self, slot: PeerSlot) -> Carried {
        let peer = self.peer(slot).map_or((false, false), |p| (p.express, p.express_udp));
        let Carried { express, udp, tunnels } = self.carried;
        Carried { express: express && peer.0, udp: udp && peer.1, tunnels }
    }

    /// Returns the rules of the peer in a slot; `None` if the slot is free.
    pub fn peer(&self, slot: PeerSlot) -> Option<&PeerSettings> {
        self.peers.get(slot.0 as usize)?.as_ref()
    }

    /// Returns the slots that have a peer, or had a peer.
    pub fn slots(&self) -> impl Iterator<Item = PeerSlot> + use<> {
        (0..u32::try_from(self.peers.len()).unwrap_or(u32::MAX)).map(PeerSlot)
    }

    /// Returns the peer to which an inner address belongs.
    pub fn peer_of(&self, address: IpAddr) -> Option<PeerSlot> {
        self.routes.find(address).map(PeerSlot)
    }

    /// Evaluates a packet without the flow table. The peer to which the packet's remote address
    /// belongs receives the packets of the flow (X3), and only this peer may send them (G1).
    pub(crate) fn judge(&self, meta: &Meta) -> Verdict {
        Verdict { peer: self.routes.find(meta.key.destination), epoch: self.epoch }
    }

    /// Adds a peer, in the first free slot.
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

    /// Removes a peer, and the routes to its addresses.
    pub fn remove_peer(&mut self, slot: PeerSlot) {
        self.epoch += 1;
        self.routes.remove(slot.0);
        if let Some(peer) = self.peers.get_mut(slot.0 as usize) {
            *peer = None;
        }
    }

    /// Replaces the inner addresses of a peer.
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

    /// Turns SRD on or off for all peers.
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

//! Carries out orders in bounded parts, so that packets are processed between two parts.

use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use srd_net::{PacketIo, Tun};
use srd_proto::{AddPeerError, Entropy, Instant};

use super::hosts::Hosts;
use super::peers::Hooked;
use super::{Port, Worker};
use crate::pages::rows::{FlowList, FlowRow, PathList, PathRow};
use crate::plane::PeerNumber;
use crate::run::orders::{Batch, CardSettings, Change, NewPeer, Order, Refused, WorkerDescriptors};

/// Largest number of changes in one round of the worker's loop.
pub(super) const CHANGES_PER_TURN_MAX: usize = 32;

/// Interval at which a worker that waits for its first order checks whether it has to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An order that takes more than one round of the worker's loop.
#[derive(Debug)]
pub(super) enum Pending {
    /// Changes that are still to be made, in reverse order, and the changes that were refused so
    /// far.
    Changes(Batch, Vec<Refused>),
    Paths(PathList),
}

impl<I: PacketIo, P: Port, H: Hosts> Worker<I, P, H> {
    /// Carries out the first order, which adds the peers, before any packet is processed. Otherwise
    /// a peer whose handshake arrives early would be treated as unknown. If this process takes over
    /// from another one, also waits for [`Order::Begin`], and carries out the orders before it.
    /// Returns false if the worker has to end before that, and must not use its sockets. A worker
    /// that is stopped after [`Order::Begin`] has begun: no other process goes on.
    pub(super) fn wait_for_peers(&mut self) -> bool {
        let mut waits = self.takes_over;
        loop {
            // The control thread sends its orders before it stops the worker.
            let next = match self.flags.is_stopped() {
                true => self.orders.try_recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => self.orders.recv_timeout(LOOK_EVERY),
            };
            match next {
                Ok(order) => {
                    waits &= !matches!(order, Order::Begin);
                    self.pending = self.begin(order);
                    while self.pending.is_some() {
                        self.take_orders();
                    }
                    if !waits {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        !waits
    }

    /// Continues an unfinished order, or takes the next order. Returns false if there is no order.
    pub(super) fn take_orders(&mut self) -> bool {
        let pending = match self.pending.take() {
            Some(pending) => pending,
            None => match self.orders.try_recv() {
                Ok(order) => match self.begin(order) {
                    Some(pending) => pending,
                    None => return true,
                },
                Err(_) => return false,
            },
        };
        self.pending = match pending {
            Pending::Changes(batch, refused) => self.apply_some(batch, refused),
            Pending::Paths(list) => self.list_paths(list),
        };
        true
    }

    /// Carries out an order. If it takes more than one round, returns it as unfinished.
    fn begin(&mut self, order: Order) -> Option<Pending> {
        self.publisher.took_order();
        match order {
            Order::Apply(mut batch) => {
                batch.changes.reverse();
                return Some(Pending::Changes(batch, Vec::new()));
            }
            Order::Paths(list) => return Some(Pending::Paths(list)),
            Order::Flows(list) => self.list_flows(list),
            Order::Descriptors(done) => done.send(self.descriptors()),
            Order::Hold(hold) => hold.wait(),
            Order::Begin => {}
            Order::Capture(tap) => {
                self.endpoint.io().taps().add(tap.clone());
                self.card.port.add_tap(tap);
                self.name_addresses();
            }
        }
        None
    }

    fn apply_some(&mut self, mut batch: Batch, mut refused: Vec<Refused>) -> Option<Pending> {
        for _ in 0..CHANGES_PER_TURN_MAX {
            let Some(change) = batch.changes.pop() else { break };
            if let Err(refusal) = self.apply(change) {
                refused.push(refusal);
            }
        }
        if !batch.changes.is_empty() {
            return Some(Pending::Changes(batch, refused));
        }
        self.publish_totals();
        batch.done.send(refused);
        None
    }

    fn apply(&mut self, change: Change) -> Result<(), Refused> {
        let now = self.endpoint.now();
        match change {
            Change::CheckAddress(number, address) => {
                let core = self.endpoint.core();
                let there = core.peer_at(address);
                let is_own = |id| self.card.peers.number_of(core, id) == Some(number);
                if there.is_some_and(|id| !is_own(id)) {
                    return Err((number, AddPeerError::AddressInUse));
                }
            }
            Change::Withdraw(number) => self.withdraw(number),
            Change::Remove(number) => {
                self.withdraw(number);
                if let Some(name) = self.card.peers.forget(number) {
                    self.card.hosts.forget(&name);
                }
            }
            Change::Allow(number, allowed) => {
                if let Some(hooked) = self.card.peers.hooked(number) {
                    self.card.express.set_allowed(hooked.slot, allowed);
                }
            }
            Change::Express(number, express, udp) => {
                if let Some(hooked) = self.card.peers.hooked(number) {
                    self.card.express.set_express(now, hooked.slot, express, udp);
                    self.write_row(now, number);
                }
            }
            Change::Add(number, peer) => {
                self.add(number, *peer).map_err(|error| (number, error))?;
                self.write_row(now, number);
            }
            Change::Card(settings) => self.set_card(now, settings),
            Change::Key(key) => _ = self.endpoint.rekey(key.bytes()),
        }
        Ok(())
    }

    fn write_row(&mut self, now: Instant, number: PeerNumber) {
        self.card.peers.write(now, number, self.endpoint.core(), &self.card.express);
    }

    /// Adds a peer to the transport and to the card.
    fn add(&mut self, number: PeerNumber, peer: NewPeer) -> Result<(), AddPeerError> {
        let (core, now) = self.endpoint.core_mut();
        let address = peer.transport.address;
        let id = core.add_peer(now, peer.transport)?;
        let NewPeer { allowed, express, express_udp, page, cloud_host, .. } = peer;
        let settings = srd_card::PeerSettings { id, allowed, express, express_udp };
        let slot = self.card.express.add_peer(now, settings);
        if let Some(name) = &cloud_host {
            self.card.hosts.add(slot, name, address);
        }
        let former = self.card.peers.insert(number, Hooked { id, slot }, page, cloud_host);
        if let Some(name) = former {
            self.card.hosts.forget(&name);
        }
        Ok(())
    }

    /// Ends the context with a peer.
    fn withdraw(&mut self, number: PeerNumber) {
        let (core, now) = self.endpoint.core_mut();
        if let Some(hooked) = self.card.peers.withdraw(number, core, &self.card.express) {
            self.card.hosts.remove(now, hooked.slot);
            self.card.express.remove_peer(hooked.slot);
            core.remove_peer(now, hooked.id);
        }
    }

    fn set_card(&mut self, now: Instant, settings: CardSettings) {
        let express = &mut self.card.express;
        express.set_enabled(now, settings.express, settings.express_udp);
        if express.rules().enabled().tunnels != settings.express_tunnels {
            express.set_tunnels(now, settings.express_tunnels);
        }
        express.set_order(settings.udp_bypass, settings.order_wait);
        express.set_queue_target(settings.queue_target);
        self.set_poll(settings.poll);
    }

    /// Returns descriptors of the sockets and of the queues of the interface.
    fn descriptors(&mut self) -> io::Result<WorkerDescriptors> {
        let queues = self.card.port.queues();
        Ok(WorkerDescriptors {
            sockets: self.endpoint.io().sockets()?,
            queues: queues.iter().map(Tun::fd).collect(),
            udp_segmentation: queues.iter().all(Tun::udp_segmentation),
        })
    }

    fn list_flows(&self, mut list: FlowList) {
        for report in self.card.express.busiest(list.most) {
            if let Some(peer) = self.card.peers.at(report.peer) {
                list.rows.push(FlowRow { peer, report });
            }
        }
        list.done.send(list.rows);
    }

    /// Copies the paths of one peer to the list, or sends the list if no peer is left.
    fn list_paths(&self, mut list: PathList) -> Option<Pending> {
        let Some(peer) = list.peers.pop() else {
            list.done.send(list.rows);
            return None;
        };
        let Some(hooked) = self.card.peers.hooked(peer) else { return Some(Pending::Paths(list)) };
        let core = self.endpoint.core();
        for (path, report) in (0..).zip(core.paths(hooked.id)) {
            if list.rows.len() == list.rows.capacity() {
                break;
            }
            let entropy = Entropy(report.entropy);
            let destination = core.destination(hooked.id, entropy);
            let source = destination.map(|to| self.endpoint.source(entropy, to));
            list.rows.push(PathRow { peer, path, report, source, destination });
        }
        Some(Pending::Paths(list))
    }
}

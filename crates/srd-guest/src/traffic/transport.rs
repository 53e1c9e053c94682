//! The transport to the other hosts of the cloud: frames of instances over SRD. They are sealed,
//! and each host is identified by its key.
//!
//! ```text
//!   card --to_host--> stage: queues, tenants in turns --> endpoint --> sockets
//!   card <-from_host- stage: order by flow           <-- endpoint <-- sockets
//! ```
//!
//! A flow whose two interfaces have ENA Express uses SRD over all paths. Any other flow is sent
//! plainly, on the path that its hash selects. Packets of both kinds are sealed in the session with
//! the host's key, so that no other program of a machine can pose as a host, whatever its address
//! and port.
//!
//! The endpoint is that of a worker of the node, which the card's loop drives.
//!
//! Bounds: those of the stage ([`srd_card::Express`], which queues and orders frames) and of the
//! endpoint. There is no read while enough frames of the last read wait for the card
//! ([`crate::traffic::received`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::FrameRoute;
use srd_card::{Express, Parcel};
use srd_daemon::config::{Interface, PeerSettings, Protection};
use srd_daemon::run::{CardWorker, Carrier};
use srd_net::PollMode;
use srd_proto::time::Instant;

use crate::traffic::hosts::{Contact, Host, HostTable};
use crate::traffic::received::Received;

/// The name under which this machine's card receives packets from the internet (the edge of its
/// gateways). These packets are trusted. No host has this name.
pub(crate) const EDGE: &str = "(edge)";
/// Lower bound of the number of datagrams that one call of [`Transport::receive`] may read, if
/// fewer frames were requested.
const DATAGRAMS_AT_ONCE_MIN: usize = 64;
/// Upper bound of the number of datagrams that one call of [`Transport::receive`] may read.
const DATAGRAMS_AT_ONCE_MAX: usize = 1024;

/// Options of the transport to the other hosts.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TransportOptions {
    /// The name of this host.
    pub(crate) host: String,
    /// The addresses at which this host receives packets, and the settings of the transport.
    pub(crate) interface: Interface,
    /// The other hosts by name. Each has an address.
    pub(crate) hosts: BTreeMap<String, PeerSettings>,
}

impl TransportOptions {
    /// Whether packets between hosts are neither encrypted nor authenticated.
    pub(crate) fn is_plain(&self) -> bool {
        self.interface.protection == Protection::Plain
    }
}

/// The transport to other hosts.
#[derive(Debug)]
pub(crate) struct Transport {
    carrier: Carrier<HostTable>,
    /// The first error that has made the interface or the sockets unusable, which ends the node;
    /// `None` while they work.
    failure: Option<anyhow::Error>,
    /// Index of the host of the last sent packet, which is usually the host of the next packet as
    /// well.
    last_to: usize,
}

impl Transport {
    /// Uses a worker of the node.
    pub(crate) fn new(worker: CardWorker) -> Result<Self> {
        let carrier = worker.carrier(HostTable::default())?;
        Ok(Self { carrier, failure: None, last_to: 0 })
    }

    fn express(&self) -> &Express {
        self.carrier.express()
    }

    fn table(&self) -> &HostTable {
        self.carrier.hosts()
    }

    fn parts(&mut self) -> (&mut Express, &mut HostTable) {
        self.carrier.parts()
    }

    /// Waits until the hosts of the configuration are known. If the node takes over from another
    /// process, also waits until that process does not go on any more. Returns false if that
    /// process goes on.
    pub(crate) fn wait_for_hosts(&mut self) -> bool {
        self.carrier.wait_for_peers()
    }

    /// Whether the node ends, or cannot continue.
    pub(crate) fn is_stopped(&self) -> bool {
        self.carrier.is_stopped() || self.failure.is_some()
    }

    /// Returns the error that has made the node's interface or sockets unusable.
    pub(crate) fn take_failure(&mut self) -> Option<anyhow::Error> {
        self.failure.take()
    }

    /// Whether a host has come or gone since the last call.
    pub(crate) fn take_relisted(&mut self) -> bool {
        std::mem::take(&mut self.parts().1.relisted)
    }

    /// Returns the method by which the loop waits for packets.
    pub(crate) fn poll(&self) -> PollMode {
        self.carrier.poll()
    }

    /// Prepares a wait for packets.
    pub(crate) fn before_sleep(&mut self) {
        self.carrier.before_sleep();
    }

    /// Returns the maximum size in bytes of a packet to a host that does not use SRD. `None` if
    /// there is no such host.
    pub(crate) fn bytes_max_to(&self, host: &str) -> Option<usize> {
        let table = self.table();
        let slot = table.hosts[table.place(host)?].slot?;
        Some(self.express().cloud_bytes_max(slot))
    }

    /// Returns the maximum size in bytes of a packet that does not use SRD and may go to any host:
    /// the minimum over all hosts.
    pub(crate) fn bytes_max(&self) -> usize {
        let slots = self.table().hosts.iter().filter_map(|host| host.slot);
        let least = slots.map(|slot| self.express().cloud_bytes_max(slot)).min();
        least.unwrap_or(usize::MAX)
    }

    /// Whether [`Transport::bytes_max`] has changed since the last call.
    pub(crate) fn take_mtu_change(&mut self) -> bool {
        std::mem::take(&mut self.parts().1.mtu_changed)
    }

    /// Returns descriptors of which one is readable while received packets wait.
    pub(crate) fn fds(&self) -> Vec<Arc<OwnedFd>> {
        self.carrier.descriptors().to_vec()
    }

    /// Returns the time at which [`Transport::flush`] has to be called next.
    pub(crate) fn due(&self) -> Instant {
        self.carrier.due()
    }

    /// Whether frames or acknowledgements wait to be sent.
    pub(crate) fn has_unsent(&self, now: Instant) -> bool {
        self.carrier.has_unsent(now)
    }

    /// Queues a frame for another host. Returns `false` if there is no such host.
    pub(crate) fn send(&mut self, now: Instant, way: &FrameRoute<'_>, frame: Vec<u8>) -> bool {
        let last_to = self.last_to;
        let (express, table) = self.parts();
        let is_last = table.hosts.get(last_to).is_some_and(|last| last.name == *way.host);
        let place = if is_last { Some(last_to) } else { table.place(way.host) };
        let Some(place) = place else { return false };
        let Host { slot: Some(slot), contact, .. } = &mut table.hosts[place] else { return false };
        contact.sent(frame.len().saturating_sub(OFFLOAD_BYTES), way.express);
        let parcel = Parcel {
            to: *slot,
            // Number zero is reserved.
            tenant: way.instance.saturating_add(1),
            interface: way.envelope.sender(),
            trailer: way.envelope.trailer(),
            express: way.express,
        };
        express.from_cloud(now, parcel, frame);
        self.last_to = place;
        true
    }

    /// Sends everything that may be sent, and runs timers that are due.
    pub(crate) fn flush(&mut self) {
        let sent = self.carrier.send();
        self.note(sent);
    }

    /// Reads packets until there are `most` frames, or until a maximum number of datagrams was
    /// read. A datagram of an unknown peer contains no frame, and such datagrams may arrive faster
    /// than they are discarded. Returns the frames, including those that timers have released. Also
    /// takes packets of the interface.
    pub(crate) fn receive(&mut self, most: usize) -> &mut Received {
        self.work();
        let mut datagrams_left = most.clamp(DATAGRAMS_AT_ONCE_MIN, DATAGRAMS_AT_ONCE_MAX);
        while self.table().received.frames.len() < most && datagrams_left > 0 {
            match self.receive_once() {
                0 => break,
                datagrams => datagrams_left = datagrams_left.saturating_sub(datagrams),
            }
        }
        &mut self.parts().1.received
    }

    /// Takes orders of the control thread, and packets of the interface.
    fn work(&mut self) {
        let worked = self.carrier.work();
        self.note(worked);
    }

    /// Reads some packets. Returns their number; zero also after a failure.
    fn receive_once(&mut self) -> usize {
        match self.carrier.receive() {
            Ok(datagrams) => datagrams,
            Err(error) => {
                self.note(Err(error));
                0
            }
        }
    }

    /// Closes the sessions, so that the other hosts need not wait for a timeout.
    pub(crate) fn close(&mut self) {
        let closed = self.carrier.close();
        self.note(closed.context("saying goodbye"));
    }

    /// Returns the other hosts in the order of their names, with their addresses.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&Arc<str>, SocketAddr)> {
        self.table().hosts.iter().map(|of| (&of.name, of.at))
    }

    /// Returns the counters of a host's traffic.
    pub(crate) fn contact(&self, name: &str) -> Option<&Contact> {
        let table = self.table();
        table.place(name).map(|place| &table.hosts[place].contact)
    }

    /// Whether a frame that the card sent to a host at this time has to wait, because there was no
    /// session with the host.
    pub(crate) fn lacked_session(&self, host: &str, at: Instant) -> bool {
        self.contact(host).is_some_and(|contact| !contact.had_session(at))
    }

    /// Returns the numbers of frames that the stage has dropped, by cause, in the order of
    /// [`srd_card::Counters::drops`].
    pub(crate) fn lost(&self) -> impl Iterator<Item = u64> {
        self.express().counters().drops().map(|(_, frames)| frames)
    }

    /// Returns the utilization of the fullest table or buffer for packets over SRD, in percent.
    pub(crate) fn resource_utilization(&self) -> u64 {
        self.express().resource_utilization()
    }

    /// Returns the counters of each host's traffic, for a process that takes over.
    pub(crate) fn contacts(&self) -> BTreeMap<String, Contact> {
        let hosts = self.table().hosts.iter();
        hosts.map(|of| (of.name.to_string(), of.contact.clone())).collect()
    }

    /// Takes over the counters of the process that hands over the card. Counting continues from
    /// their values. Counters of hosts that are no longer in the settings are dropped.
    pub(crate) fn adopt_contacts(&mut self, contacts: &BTreeMap<String, Contact>) {
        for host in &mut self.parts().1.hosts {
            if let Some(contact) = contacts.get(&*host.name) {
                host.contact = contact.clone();
            }
        }
    }

    /// Logs hosts that are silent now, and hosts that are not silent any more. // V18
    pub(crate) fn look(&mut self) {
        let now = self.carrier.last_look();
        for Host { name, at, contact, .. } in &mut self.parts().1.hosts {
            contact.look(now, name, *at);
        }
    }

    /// Stores the first error, which ends the node.
    fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests;

//! The other hosts of the cloud, and the packets that arrive from them.
//!
//! Bound: one entry for each peer that is a host; the frames of one read are handed to the card
//! before the next read.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::Envelope;
use srd_card::{Arrivals, Arrived, PeerSlot, Trailer};
use srd_daemon::run::Hosts;
use srd_proto::Event;
use srd_proto::time::Instant;

use crate::traffic::hosts::Contact;

/// Frames that were received from other hosts, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The envelope of each frame, with its source and destination, and the frame.
    pub(crate) frames: Vec<(Envelope, Vec<u8>)>,
    /// Runs of successive frames: the host that has sent them, their number, and whether they used
    /// SRD.
    pub(crate) hosts: Vec<(Arc<str>, usize, bool)>,
    /// Frames with an unknown kind of trailer.
    pub(crate) unknown: u64,
}

/// Another host: its address, and counters of its traffic.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: Arc<str>,
    pub(crate) at: SocketAddr,
    /// Slot of the host in the stage; `None` while the host is being replaced.
    pub(crate) slot: Option<PeerSlot>,
    pub(crate) contact: Contact,
}

/// The other hosts, and the frames that they have sent.
#[derive(Debug, Default)]
pub(crate) struct HostTable {
    /// Hosts, sorted by name.
    pub(crate) hosts: Vec<Host>,
    /// For each slot of the stage, the index of its host in `hosts`.
    by_slot: Vec<Option<usize>>,
    pub(crate) received: Received,
    /// Whether the MTU of the network has changed, or a host has come or gone.
    pub(crate) mtu_changed: bool,
    /// Whether a host has come or gone.
    pub(crate) relisted: bool,
    /// Time of the present arrivals.
    now: Instant,
}

impl HostTable {
    /// Returns the index of a host; `None` if there is no such host.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.hosts.binary_search_by(|host| (*host.name).cmp(name)).ok()
    }

    fn of_slot(&mut self, slot: PeerSlot) -> Option<&mut Host> {
        let place = self.by_slot.get(slot.0 as usize).copied().flatten()?;
        self.hosts.get_mut(place)
    }

    /// Notes that a host has come or gone.
    fn relist(&mut self) {
        self.by_slot.clear();
        for (place, host) in self.hosts.iter().enumerate() {
            let Some(PeerSlot(slot)) = host.slot else { continue };
            let slot = slot as usize;
            if self.by_slot.len() <= slot {
                self.by_slot.resize(slot + 1, None);
            }
            self.by_slot[slot] = Some(place);
        }
        (self.mtu_changed, self.relisted) = (true, true);
    }
}

impl Arrivals for HostTable {
    fn arrived(&mut self, how: Arrived, trailer: Trailer, frame: &[u8]) {
        let Arrived { from, packets, by_srd } = how;
        let place = self.by_slot.get(from.0 as usize).copied().flatten();
        let Some(host) = place.and_then(|place| self.hosts.get_mut(place)) else { return };
        let Ok(envelope) = Envelope::of(trailer) else {
            self.received.unknown += packets;
            return;
        };
        host.contact.received(self.now, frame.len().saturating_sub(OFFLOAD_BYTES), by_srd);
        let Received { frames, hosts, .. } = &mut self.received;
        frames.push((envelope, frame.to_vec()));
        match hosts.last_mut() {
            Some((last, count, rode)) if Arc::ptr_eq(last, &host.name) && *rode == by_srd => {
                *count += 1;
            }
            _ => hosts.push((Arc::clone(&host.name), 1, by_srd)),
        }
    }
}

impl Hosts for HostTable {
    const MAY_EXIST: bool = true;

    fn at(&mut self, now: Instant) {
        self.now = now;
    }

    fn add(&mut self, slot: PeerSlot, name: &Arc<str>, address: Option<SocketAddr>) {
        let at = address.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let slot = Some(slot);
        match self.hosts.binary_search_by(|host| host.name.cmp(name)) {
            Ok(place) => {
                let host = &mut self.hosts[place];
                (host.at, host.slot) = (at, slot);
            }
            Err(place) => {
                let contact = Contact::default();
                self.hosts.insert(place, Host { name: Arc::clone(name), at, slot, contact });
            }
        }
        self.relist();
    }

    fn remove(&mut self, now: Instant, slot: PeerSlot) {
        if let Some(host) = self.of_slot(slot) {
            host.slot = None;
            host.contact.is_down(now);
            self.relist();
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(place) = self.place(name) {
            self.hosts.remove(place);
            self.relist();
        }
    }

    fn event(&mut self, now: Instant, slot: PeerSlot, event: &Event) {
        self.mtu_changed |= matches!(event, Event::PathMtu { .. });
        let Some(Host { name, at, contact, .. }) = self.of_slot(slot) else { return };
        match event {
            Event::PeerUp { .. } => contact.is_up(now),
            Event::PeerDown { .. } => contact.is_down(now),
            Event::Diagnosis { what, .. } => contact.saw(now, *what, name, *at),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[(&str, u32)]) -> HostTable {
        let mut table = HostTable::default();
        for (name, slot) in names {
            let at = Some(([192, 0, 2, 1], 7471).into());
            table.add(PeerSlot(*slot), &Arc::from(*name), at);
        }
        table
    }

    fn slots(table: &HostTable) -> Vec<(&str, Option<u32>)> {
        table.hosts.iter().map(|host| (&*host.name, host.slot.map(|slot| slot.0))).collect()
    }

    #[test]
    fn hosts_come_and_go_and_a_host_that_returns_keeps_its_counters() {
        let mut table = table(&[("c", 0), ("a", 3), ("b", 1)]);
        assert_eq!(slots(&table), [("a", Some(3)), ("b", Some(1)), ("c", Some(0))]);
        assert!(table.of_slot(PeerSlot(3)).is_some_and(|host| &*host.name == "a"));
        table.hosts[1].contact.sent(100, true);
        let before = table.hosts[1].contact.clone();
        table.relisted = false;
        table.remove(Instant::ZERO, PeerSlot(1));
        assert!(table.of_slot(PeerSlot(1)).is_none() && table.relisted);
        table.add(PeerSlot(2), &Arc::from("b"), None);
        assert_eq!(slots(&table)[1], ("b", Some(2)));
        let host = &table.hosts[1];
        let sent = |contact: &Contact| contact.report(Instant::ZERO, "b", host.at).sent_bytes;
        assert_eq!((sent(&host.contact), sent(&before)), (100, 100));
        table.forget("a");
        assert_eq!(slots(&table), [("b", Some(2)), ("c", Some(0))]);
        assert!(table.of_slot(PeerSlot(0)).is_some_and(|host| &*host.name == "c"));
    }
}

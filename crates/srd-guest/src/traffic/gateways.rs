//! Destinations of the card's packets: devices of instances, the internet's side and other hosts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::nat::{self, Nat, NatError};
use srd_card::vpc::{Envelope, Environment, FrameRoute, PortId};
use srd_net::Tun;
use srd_proto::time::{Duration, Instant};
use srd_vpc::id::{EniId, NatGatewayId};
use srd_vpc::judge::Service as Link;

use crate::interfaces::kernel::Kernel;
use crate::interfaces::port::Port;
use crate::link_local::Services;
use crate::machine::edge::Edge;
use crate::traffic::beside::Neighbours;
use crate::traffic::transport::{EDGE, Transport};

/// Longest time for which a packet to another host waits for further packets, so that one system
/// call sends them together. The packet waits only while the loop reads packets of instances.
const HELD_MAX: Duration = Duration::from_micros(200);

/// Largest number of frames that return from the internet's side at once. The card processes fewer
/// frames together, except those that have waited for limits.
const RETURNING_MAX: usize = 4096;

/// Name of the counter of packets to other hosts that were lost.
const TO_HOST: &str = "to another host";
/// Name of the counter of packets to other workers of this host that were lost.
const TO_WORKER: &str = "to another worker";
/// Name of the counter of packets of other workers that a NAT gateway did not translate.
const BY_NAT: &str = "by a nat gateway";

/// The internet's side: the device, and the connections of NAT gateways; and the transport to other
/// hosts.
#[derive(Debug)]
pub(crate) struct Gateways {
    pub(crate) edge: Option<Edge>,
    pub(crate) transport: Option<Transport>,
    /// The other workers of this host; `None` if this is the only one.
    pub(crate) beside: Option<Neighbours>,
    pub(crate) name: Arc<str>,
    pub(crate) nat: Nat,
    /// TCP resets for interfaces that sent segments of connections of which a NAT gateway has no
    /// state any more. Bound: one for each frame that the card processes at once.
    pub(crate) resets: Vec<(EniId, Vec<u8>)>,
    /// Frames to public addresses of the cloud, if this host has no internet's side. They return as
    /// if they came from the internet. Bound: [`RETURNING_MAX`].
    pub(crate) returning: Vec<Vec<u8>>,
    /// Time since which packets to other hosts wait to be sent; `None` if no packet waits.
    held_since: Option<Instant>,
    /// Number of packets that were lost because neither a host, nor the network outside of the
    /// cloud, nor a service of the card accepted them, by reason.
    pub(crate) lost: BTreeMap<Cow<'static, str>, u64>,
}

impl Gateways {
    /// Creates gateways without the internet's side, and without other hosts.
    pub(crate) fn new(beside: Option<Neighbours>) -> Self {
        let (nat, lost, held_since) = (Nat::default(), BTreeMap::new(), None);
        let (resets, returning, name) = (Vec::new(), Vec::new(), EDGE.into());
        let (edge, transport) = (None, None);
        Self { edge, transport, beside, name, nat, resets, returning, held_since, lost }
    }

    /// Whether this is the first worker of the host, which has the internet's side.
    pub(crate) fn are_first(&self) -> bool {
        self.beside.as_ref().is_none_or(|of| of.redirect.beside.worker() == 0)
    }

    /// Returns the name of the edge of the gateways in the card of this worker.
    pub(crate) fn edge_name(&self) -> Arc<str> {
        match &self.beside {
            Some(of) if !self.are_first() => Arc::clone(of.redirect.beside.first()),
            _ => Arc::clone(&self.name),
        }
    }

    /// Returns the descriptors on which the loop waits for packets from the internet's side and
    /// from other hosts.
    pub(crate) fn fds(&self) -> Vec<Arc<OwnedFd>> {
        let edge = self.edge.as_ref().and_then(Edge::tun).map(Tun::fd);
        let transport = self.transport.iter().flat_map(Transport::fds);
        edge.into_iter().chain(transport).collect()
    }

    /// Whether the node that this card belongs to ends.
    pub(crate) fn is_stopped(&self) -> bool {
        self.transport.as_ref().is_some_and(Transport::is_stopped)
    }

    pub(crate) fn lose(&mut self, why: &'static str) {
        self.lose_all(why, 1);
    }

    pub(crate) fn lose_all(&mut self, why: &'static str, packets: u64) {
        if packets > 0 {
            *self.lost.entry(Cow::Borrowed(why)).or_default() += packets;
        }
    }

    /// After a turn that began and ended at these times, sends the packets to other hosts if the
    /// first of them has waited for [`HELD_MAX`]. // V17
    pub(crate) fn flush_if_due(&mut self, began: Instant, ended: Instant) {
        self.flush_beside();
        if !self.transport.as_ref().is_some_and(|transport| transport.has_unsent(ended)) {
            return;
        }
        let since = *self.held_since.get_or_insert(began);
        if ended.since(since) >= HELD_MAX {
            self.flush();
        }
    }

    /// Sends all packets that wait for other hosts.
    pub(crate) fn flush(&mut self) {
        self.flush_beside();
        self.held_since = None;
        if let Some(transport) = &mut self.transport {
            transport.flush();
        }
    }

    /// Moves the frames for other workers into their queues.
    fn flush_beside(&mut self) {
        let Some(beside) = &mut self.beside else { return };
        beside.exchange.flush();
        let dropped = beside.exchange.take_dropped();
        self.lose_all(TO_WORKER, dropped);
    }

    /// Translates a frame by a NAT gateway, and sends it to the internet.
    fn leave_by_nat(
        &mut self,
        now: Instant,
        publics: &BTreeMap<NatGatewayId, std::net::Ipv4Addr>,
        (nat, from): (NatGatewayId, EniId),
        mut frame: Vec<u8>,
    ) -> Result<(), NatError> {
        let Some(public) = publics.get(&nat) else {
            self.lose("nat without address");
            return Ok(());
        };
        let translated = self.nat.leave(now, nat, *public, from, &mut frame);
        match translated {
            Ok(()) => self.leave(now, &frame),
            Err(NatError::NoConnection) => {
                self.resets.extend(nat::reset(&frame).map(|reset| (from, reset)));
            }
            Err(_) => {}
        }
        translated
    }

    /// Sends a frame to the internet.
    fn leave(&mut self, now: Instant, frame: &[u8]) {
        // The edge has IPv4 only: IPv6 addresses of this machine are no part of the internet.
        if frame.get(OFFLOAD_BYTES).is_some_and(|first| first >> 4 != 4) {
            return self.lose("internet by ipv6");
        }
        if self.edge.is_none() && self.returning.len() < RETURNING_MAX {
            // The card sends only packets to public addresses of the cloud here.
            self.returning.push(frame.to_vec());
            return;
        }
        let own = self.edge.as_mut().and_then(|edge| edge.own.as_mut());
        let packet = frame.get(OFFLOAD_BYTES..).unwrap_or_default();
        if own.is_some_and(|own| own.refuses(now, packet)) {
            return self.lose("to this machine itself");
        }
        let written = self.edge.as_ref().and_then(Edge::tun).map(|tun| tun.write(frame));
        if !matches!(written, Some(Ok(()))) {
            self.lose("internet");
        }
    }
}

/// The destinations of the card's packets: devices, gateways and services.
pub(crate) struct Outside<'a> {
    pub(crate) devices: &'a mut BTreeMap<PortId, Port>,
    /// Interfaces with packets that wait for an interrupt.
    pub(crate) held: &'a mut BTreeSet<PortId>,
    /// Interfaces with packets that may be joined with the next packets.
    pub(crate) joining: Vec<PortId>,
    pub(crate) gateways: &'a mut Gateways,
    pub(crate) services: &'a mut Services,
    pub(crate) publics: &'a BTreeMap<NatGatewayId, std::net::Ipv4Addr>,
    pub(crate) now: Instant,
}

impl Outside<'_> {
    /// Gives instances the packets that wait to be joined with later packets, because no more
    /// packets follow immediately.
    pub(crate) fn finish(&mut self) {
        for port in self.joining.drain(..) {
            let Some(device) = self.devices.get_mut(&port) else { continue };
            if let Some(kernel) = device.kernel_mut() {
                kernel.finish(self.now);
            }
            if device.poll_timeout().is_some() {
                self.held.insert(port);
            }
        }
    }

    /// Sends a frame of another worker to the internet, possibly through a NAT gateway.
    pub(crate) fn leave_for_worker(&mut self, envelope: Envelope, frame: Vec<u8>) {
        match envelope {
            Envelope::Leaving { .. } => self.gateways.leave(self.now, &frame),
            Envelope::ByNat { from, nat } => {
                let (now, publics) = (self.now, self.publics);
                if self.gateways.leave_by_nat(now, publics, (nat, from), frame).is_err() {
                    self.gateways.lose(BY_NAT);
                }
            }
            _ => self.gateways.lose(TO_WORKER),
        }
    }
}

impl Environment for Outside<'_> {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        let Some(device) = self.devices.get_mut(&port) else {
            return self.gateways.lose("device");
        };
        device.write(self.now, frame);
        if device.kernel().is_some_and(Kernel::is_joining) && !self.joining.contains(&port) {
            self.joining.push(port);
        }
        if device.poll_timeout().is_some() {
            self.held.insert(port);
        }
    }

    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        if **way.host == *self.gateways.name {
            self.gateways.leave(self.now, &frame);
            return;
        }
        let frame = match &mut self.gateways.beside {
            None => frame,
            Some(beside) => match beside.send(way.host, way.envelope, frame) {
                Ok(()) => return,
                Err(frame) => frame,
            },
        };
        let now = self.now;
        let transport = self.gateways.transport.as_mut();
        if !transport.is_some_and(|transport| transport.send(now, &way, frame)) {
            self.gateways.lose(TO_HOST);
        }
    }

    fn to_nat(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) -> Result<(), NatError> {
        if let Envelope::ByNat { from, nat } = way.envelope
            && **way.host == *self.gateways.name
        {
            return self.gateways.leave_by_nat(self.now, self.publics, (nat, from), frame);
        }
        self.to_host(way, frame);
        Ok(())
    }

    fn host_bytes_max(&self, host: &str) -> Option<usize> {
        self.gateways.transport.as_ref()?.bytes_max_to(host)
    }

    fn to_service(&mut self, port: PortId, _: Link, frame: Vec<u8>) {
        if !self.services.take(port, &frame) {
            self.gateways.lose("to a service");
        }
    }
}

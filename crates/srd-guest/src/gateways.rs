//! Where the card's packets go: devices of instances, and the internet's side.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use srd_card::vpc::nat::Nat;
use srd_card::vpc::{Around, Envelope, PortId};
use srd_proto::time::Instant;
use srd_vpc::id::{NatGatewayId, VpcId};
use srd_vpc::judge::Service as Link;

use crate::edge::Edge;
use crate::kernel::Kernel;
use crate::link_local::Services;
use crate::port::Port;
use crate::underlay::Underlay;

/// The name of the edge, which is no host's.
const EDGE: &str = "(edge)";

/// Why a packet for another host was lost.
const TO_HOST: &str = "to another host";

/// The internet's side: the device, and the connections of NAT gateways.
#[derive(Debug)]
pub(crate) struct Gateways {
    pub(crate) edge: Option<Edge>,
    pub(crate) underlay: Option<Underlay>,
    pub(crate) name: Arc<str>,
    pub(crate) nat: Nat,
    /// Packets that no host, edge or service took.
    pub(crate) lost: BTreeMap<Cow<'static, str>, u64>,
}

impl Gateways {
    pub(crate) fn new(edge: Option<Edge>, underlay: Option<Underlay>) -> Self {
        Self { edge, underlay, name: EDGE.into(), nat: Nat::default(), lost: BTreeMap::new() }
    }

    /// What to wait on.
    pub(crate) fn fds(&self) -> Vec<Arc<OwnedFd>> {
        let edge = self.edge.as_ref().map(|edge| edge.tun.fd());
        let underlay = self.underlay.as_ref().map(Underlay::fd);
        edge.into_iter().chain(underlay).collect()
    }

    pub(crate) fn lose(&mut self, why: &'static str) {
        *self.lost.entry(Cow::Borrowed(why)).or_default() += 1;
    }

    /// Sends what waits for other hosts.
    pub(crate) fn flush(&mut self) {
        let lost = self.underlay.as_mut().map_or(0, Underlay::flush);
        if lost > 0 {
            *self.lost.entry(Cow::Borrowed(TO_HOST)).or_default() += lost;
        }
    }

    /// A frame that leaves.
    fn leave(
        &mut self,
        now: Instant,
        publics: &BTreeMap<NatGatewayId, std::net::Ipv4Addr>,
        envelope: Envelope,
        mut frame: Vec<u8>,
    ) {
        if let Envelope::ByNat { from, nat } = envelope {
            let Some(public) = publics.get(&nat) else { return self.lose("nat without address") };
            if self.nat.leave(now, nat, *public, from, &mut frame).is_err() {
                return self.lose("nat without port");
            }
        }
        let written = self.edge.as_ref().map(|edge| edge.tun.write(&frame));
        if !matches!(written, Some(Ok(()))) {
            self.lose("internet");
        }
    }
}

/// What is around the card.
pub(crate) struct Outside<'a> {
    pub(crate) devices: &'a mut BTreeMap<PortId, Port>,
    /// Interfaces with packets that wait for an interrupt.
    pub(crate) held: &'a mut BTreeSet<PortId>,
    /// Interfaces with packets that may be joined with the next ones.
    pub(crate) joining: Vec<PortId>,
    pub(crate) gateways: &'a mut Gateways,
    pub(crate) services: &'a mut Services,
    pub(crate) publics: &'a BTreeMap<NatGatewayId, std::net::Ipv4Addr>,
    pub(crate) now: Instant,
}

impl Outside<'_> {
    /// No more packets follow at once: those that wait for others to join are given.
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
}

impl Around for Outside<'_> {
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

    fn to_host(
        &mut self,
        host: &Arc<str>,
        vpc: VpcId,
        envelope: Envelope,
        frame: Vec<u8>,
        _: bool,
    ) {
        if **host == *self.gateways.name {
            self.gateways.leave(self.now, self.publics, envelope, frame);
            return;
        }
        let now = self.now;
        let underlay = self.gateways.underlay.as_mut();
        if !underlay.is_some_and(|underlay| underlay.send(now, host, vpc, envelope, &frame)) {
            self.gateways.lose(TO_HOST);
        }
    }

    fn to_service(&mut self, port: PortId, _: Link, frame: Vec<u8>) {
        if !self.services.take(port, &frame) {
            self.gateways.lose("to a service");
        }
    }
}

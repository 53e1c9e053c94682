//! Where the card's packets go: devices of instances, and the internet's side.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context, Result};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::packet::Packet;
use srd_card::vpc::nat::Nat;
use srd_card::vpc::{Around, Card, Envelope, PortId};
use srd_net::Tun;
use srd_proto::time::Instant;
use srd_vpc::id::{EniId, NatGatewayId, VpcId};
use srd_vpc::judge::{Exit, Service as Link};

use crate::edge::Edge;
use crate::service::Service;

/// The name of the edge, which is no host's.
const EDGE: &str = "(edge)";
/// Frames from the internet in one turn.
const BURST: usize = 256;

/// The internet's side: the device, and the connections of NAT gateways.
#[derive(Debug)]
pub(crate) struct Gateways {
    pub(crate) edge: Option<Edge>,
    name: Arc<str>,
    nat: Nat,
    /// Packets that no host, edge or service took.
    pub(crate) lost: BTreeMap<&'static str, u64>,
}

impl Gateways {
    pub(crate) fn new(edge: Option<Edge>) -> Self {
        Self { edge, name: EDGE.into(), nat: Nat::default(), lost: BTreeMap::new() }
    }

    pub(crate) fn fd(&self) -> Option<Arc<OwnedFd>> {
        self.edge.as_ref().map(|edge| edge.tun.fd())
    }

    fn lose(&mut self, why: &'static str) {
        *self.lost.entry(why).or_default() += 1;
    }

    /// A frame that leaves.
    fn leave(
        &mut self,
        now: Instant,
        publics: &BTreeMap<NatGatewayId, Ipv4Addr>,
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
    tuns: &'a BTreeMap<PortId, Tun>,
    gateways: &'a mut Gateways,
    publics: &'a BTreeMap<NatGatewayId, Ipv4Addr>,
    now: Instant,
}

impl Around for Outside<'_> {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        let written = self.tuns.get(&port).map(|tun| tun.write(&frame));
        if !matches!(written, Some(Ok(()))) {
            self.gateways.lose("device");
        }
    }

    fn to_host(&mut self, host: &Arc<str>, _: VpcId, envelope: Envelope, frame: Vec<u8>, _: bool) {
        if **host == *self.gateways.name {
            self.gateways.leave(self.now, self.publics, envelope, frame);
        } else {
            self.gateways.lose("other host");
        }
    }

    fn to_service(&mut self, _: PortId, service: Link, _: Vec<u8>) {
        self.gateways.lose(match service {
            Link::Resolver => "resolver",
            Link::Metadata => "metadata",
            Link::Time => "time",
        });
    }
}

impl Service {
    /// Lets the card work, with what is around it.
    pub(crate) fn with_card(
        &mut self,
        now: Instant,
        work: impl FnOnce(&mut Card, &mut Outside<'_>),
    ) {
        let Self { card, tuns, gateways, guests, .. } = self;
        let publics = &guests.nat_publics;
        work(card, &mut Outside { tuns, gateways, publics, now });
    }

    /// The edge of all gateways is here.
    pub(crate) fn set_edges(&mut self) {
        let world = &self.world;
        let mut edges: BTreeMap<Exit, Arc<str>> = BTreeMap::new();
        if self.gateways.edge.is_some() {
            let internet = world.internet_gateways.keys().map(|id| Exit::InternetGateway(*id));
            let outwards = world.egress_only_gateways.keys().map(|id| Exit::EgressOnlyGateway(*id));
            edges.extend(internet.chain(outwards).map(|exit| (exit, self.gateways.name.clone())));
        }
        self.card.set_edges(edges);
        let publics = world.nat_gateways.iter().filter_map(|(id, gateway)| {
            Some((*id, world.addresses.get(&gateway.address?)?.public))
        });
        let publics: BTreeMap<NatGatewayId, Ipv4Addr> = publics.collect();
        if publics != self.guests.nat_publics {
            self.gateways.nat.keep(&publics);
            self.guests.nat_publics = publics;
        }
    }

    /// What arrives from the internet.
    pub(crate) fn read_edge(&mut self, now: Instant) -> Result<()> {
        for _ in 0..BURST {
            let Some(edge) = &mut self.gateways.edge else { return Ok(()) };
            let frame = edge.tun.read().context("the device of the internet's side is gone")?;
            let Some(mut frame) = frame else { return Ok(()) };
            let packet = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
            if !packet.is_some_and(|packet| edge.has(packet.destination)) {
                // Neighbour and router discovery of the kernel's own.
                continue;
            }
            let by_nat: Option<(NatGatewayId, EniId)> = self.gateways.nat.arrive(now, &mut frame);
            let envelope = match by_nat {
                Some((nat, to)) => Envelope::FromNat { nat, to },
                None if self.is_of_nat(packet.map(|packet| packet.destination)) => {
                    self.gateways.lose("no connection of a nat gateway");
                    continue;
                }
                None => Envelope::Arriving,
            };
            let name = self.gateways.name.clone();
            self.with_card(now, |card, around| card.from_host(now, &name, envelope, frame, around));
        }
        Ok(())
    }

    fn is_of_nat(&self, address: Option<IpAddr>) -> bool {
        let mut publics = self.guests.nat_publics.values();
        matches!(address, Some(IpAddr::V4(address)) if publics.any(|public| *public == address))
    }
}

//! Where the card's packets go: devices of instances, and the internet's side.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Context, Result};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::packet::Packet;
use srd_card::vpc::{Card, Envelope};
use srd_proto::time::Instant;
use srd_vpc::id::{EniId, NatGatewayId};
use srd_vpc::judge::Exit;

use crate::gateways::Outside;
use crate::port::Port;
use crate::state::Service;

/// Frames from the internet in one turn.
const BURST: usize = 256;

impl Service {
    /// Lets the card work, with what is around it.
    pub(crate) fn with_card(
        &mut self,
        now: Instant,
        work: impl FnOnce(&mut Card, &mut Outside<'_>),
    ) {
        let Self { card, devices, held, gateways, services, guests, .. } = self;
        let publics = &guests.nat_publics;
        work(card, &mut Outside { devices, held, gateways, services, publics, now });
    }

    /// Gives packets to guests whose interrupt is due.
    pub(crate) fn interrupt(&mut self, now: Instant) {
        let Self { devices, held, .. } = self;
        held.retain(|port| {
            let Some(kernel) = devices.get_mut(port).and_then(Port::kernel_mut) else {
                return false;
            };
            kernel.interrupt(now);
            kernel.adapter.poll_timeout().is_some()
        });
    }

    /// The network's own services answer.
    pub(crate) fn serve(&mut self, now: Instant) {
        for port in self.services.due(now) {
            let eni = self.card.eni_of(port);
            let facts = eni.and_then(|eni| self.services.facts(&self.world, eni));
            let Some(facts) = facts else {
                self.services.forget(port);
                continue;
            };
            let (frames, refused) = self.services.serve(now, port, &facts);
            (0..refused).for_each(|_| self.gateways.lose("connection to a service"));
            for frame in frames {
                self.with_card(now, |card, around| card.from_service(port, frame, around));
            }
        }
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

    /// What arrives from other hosts.
    pub(crate) fn read_hosts(&mut self, now: Instant) {
        for _ in 0..BURST {
            let Some(underlay) = &mut self.gateways.underlay else { return };
            match underlay.receive() {
                None => return,
                Some(Err(why)) => self.gateways.lose(why),
                Some(Ok((host, envelope, frame))) => {
                    self.with_card(now, |card, around| {
                        card.from_host(now, &host, envelope, frame, around);
                    });
                }
            }
        }
    }

    fn is_of_nat(&self, address: Option<IpAddr>) -> bool {
        let mut publics = self.guests.nat_publics.values();
        matches!(address, Some(IpAddr::V4(address)) if publics.any(|public| *public == address))
    }
}

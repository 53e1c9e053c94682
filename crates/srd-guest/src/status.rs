//! What there is: instances, their interfaces, limits, counters and flows.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result};
use srd_card::limits::Limit;
use srd_card::vpc::PortCounts;
use srd_card::{Direction, vpc};
use srd_proto::time::Instant;
use srd_vpc::id::EniId;
use srd_vpc::object::ExpressSpec;

use crate::gone::Which;
use crate::port::Port;
use crate::protocol::{Flow, Instance, Interface, Status};
use crate::state::{Options, Running, Service};
use crate::trace::protocol_name;
use crate::transport::Transport;

impl Service {
    /// The instances in words, one line each.
    pub fn summary(&self) -> Vec<String> {
        let lines = self.guests.by_name.iter().map(|(name, running)| {
            let devices = running.interfaces.iter().map(|(port, eni, device)| {
                let addresses: Vec<String> =
                    device.addresses.iter().map(|(address, _)| address.to_string()).collect();
                let socket = self.devices.get(port).and_then(Port::vhost_user);
                let mac = mac(self, *eni);
                let socket = socket.map_or_else(String::new, |at| {
                    format!(" at {}, hardware address {mac}", at.path)
                });
                format!("{} {}{socket}", device.name, addresses.join(" "))
            });
            let devices: Vec<String> = devices.collect();
            let (kind, devices) = (running.profile.instance.name, devices.join(", "));
            match &running.namespace {
                Some(namespace) => {
                    format!("{name}: {kind}, namespace {}, {devices}", namespace.name())
                }
                None => format!("{name}: {kind}, {devices}"),
            }
        });
        lines.collect()
    }

    /// The flows of an instance.
    pub(crate) fn flows(&self, instance: &str, most: u16) -> Result<Vec<Flow>> {
        let running = self.guests.by_name.get(instance);
        let running =
            running.with_context(|| format!("there is no instance `{instance}` on this host"))?;
        let mut flows = Vec::new();
        for (port, _, device) in &running.interfaces {
            let all = self.card.flows_of(*port, most.into()).into_iter();
            flows.extend(all.map(|state| flow(&device.name, &state)));
        }
        Ok(flows)
    }

    pub(crate) fn status(&mut self, now: Instant) -> Status {
        let running: Vec<_> = std::mem::take(&mut self.guests.by_name).into_iter().collect();
        let instances =
            running.iter().map(|(name, running)| instance(self, now, name, running)).collect();
        self.guests.by_name = running.into_iter().collect();
        let drops = self.card.drops_of_none();
        let mut drops: BTreeMap<String, u64> =
            drops.all().map(|(cause, packets)| (cause.name().to_owned(), packets)).collect();
        let lost = self.gateways.lost.iter();
        drops.extend(lost.map(|(why, packets)| (format!("lost: {why}"), *packets)));
        let transport = self.gateways.transport.as_ref();
        let between = transport.map(Transport::lost).unwrap_or_default().into_iter();
        drops.extend(between.map(|(why, frames)| (format!("between hosts: {why}"), frames)));
        let Options { host, scale, internet, .. } = &self.options;
        Status {
            host: host.clone(),
            scale: *scale,
            internet: *internet,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: std::time::Duration::from_nanos(now.since(self.began).as_nanos())
                .as_secs_f64(),
            tables: self.tables(),
            hosts: transport.map_or_else(Vec::new, |transport| transport.report(now)),
            instances,
            drops,
            internet_gone: self.gone.why(Which::Edge),
        }
    }
}

fn flow(device: &str, state: &vpc::FlowState) -> Flow {
    let direct = |direct: vpc::Direct| match direct {
        vpc::Direct::Pending => String::from("pending"),
        vpc::Direct::Complete => String::from("complete"),
        vpc::Direct::Refused(reason) => format!("refused: {}", reason.name()),
    };
    let end = |(address, port): (IpAddr, u16)| match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    };
    let protocol = protocol_name(state.protocol);
    Flow {
        device: device.to_owned(),
        protocol,
        local: end(state.local),
        remote: end(state.remote),
        connection: state.connection.map(|state| state.name().to_owned()),
        local_first: state.local_first,
        sent: direct(state.sent),
        received: direct(state.received),
        rides_srd: state.ride.map(|ride| ride.is_ok()),
        plainly: state.ride.and_then(Result::err).map(|why| why.to_string()),
    }
}

/// The counters of ENA Express, in the order of `ethtool -S`. // V22
fn express(service: &Service, eni: EniId, counts: &PortCounts) -> [(&'static str, u64); 5] {
    let attachment = service.world.enis.get(&eni).and_then(|eni| eni.attachment.as_ref());
    let ExpressSpec { enabled, udp } = attachment.map(|of| of.express).unwrap_or_default();
    let transport = service.gateways.transport.as_ref();
    [
        ("ena_srd_mode", u64::from(enabled) | u64::from(udp) << 1),
        ("ena_srd_tx_pkts", counts.express_tx_packets),
        ("ena_srd_eligible_tx_pkts", counts.express_eligible_packets),
        ("ena_srd_rx_pkts", counts.express_rx_packets),
        ("ena_srd_resource_utilization", transport.map_or(0, Transport::resource_utilization)),
    ]
}

fn mac(service: &Service, eni: EniId) -> String {
    let mac = service.world.enis.get(&eni).map(|eni| eni.mac).unwrap_or_default();
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn instance(service: &mut Service, now: Instant, name: &str, running: &Running) -> Instance {
    let Running { id, namespace, profile, interfaces, .. } = running;
    let first = interfaces.first().map(|(port, ..)| *port);
    let card = &mut service.card;
    let credits =
        |card: &mut vpc::Card, way| first.map_or(0, |port| card.credits_bits(now, port, way));
    let credits_bits = [credits(card, Direction::Ingress), credits(card, Direction::Egress)];
    let (tracked, untracked) = first.map_or((0, 0), |port| card.flows(port));
    let fragments_dropped = first.map_or(0, |port| card.held(port, Limit::Fragments).dropped);
    let interfaces = interfaces.iter().map(|(port, eni, device)| {
        let (allowances, available) = service.card.allowances(*port);
        let counts = service.card.counts(*port);
        let express = express(service, *eni, &counts);
        let mut counters: Vec<(String, u64)> = Vec::new();
        let mut add = |name: &str, value: u64| counters.push((name.to_owned(), value));
        let all = allowances.ethtool(available.into()).into_iter();
        for (name, value) in all.chain(express).chain(allowances.ours()) {
            add(name, value);
        }
        add("tx_packets", counts.tx_packets);
        add("tx_bytes", counts.tx_bytes);
        add("rx_packets", counts.rx_packets);
        add("rx_bytes", counts.rx_bytes);
        add("judged_packets", counts.judged);
        add("mirrored_packets", counts.mirrored_packets);
        add("mirrored_bytes", counts.mirrored_bytes);
        add("mirror_dropped_packets", counts.mirror_dropped);
        if let Some(kernel) = service.devices.get(port).and_then(Port::kernel) {
            let all: Vec<_> = kernel.adapter.counts().collect();
            add("rx_overruns", all.iter().map(|queue| queue.rx_overruns).sum());
            for (number, of) in all.into_iter().enumerate() {
                add(&format!("queue_{number}_tx_cnt"), of.tx_packets);
                add(&format!("queue_{number}_tx_bytes"), of.tx_bytes);
                add(&format!("queue_{number}_rx_cnt"), of.rx_packets);
                add(&format!("queue_{number}_rx_bytes"), of.rx_bytes);
            }
        }
        let drops = service.card.drops(*port);
        let drops = drops.all().map(|(cause, packets)| (cause.name().to_owned(), packets));
        let device_drops = service.devices.get(port).map(Port::drops).unwrap_or_default();
        Interface {
            name: service.vpc.eni_name(*eni),
            id: eni.to_string(),
            device: device.name.clone(),
            mac: mac(service, *eni),
            addresses: device.addresses.iter().map(|(a, n)| format!("{a}/{n}")).collect(),
            counters,
            drops: drops.chain(device_drops).collect(),
            vhost_user: service.devices.get(port).and_then(Port::vhost_user),
            gone: service.gone.why(Which::Of(*port)),
        }
    });
    let interfaces = interfaces.collect();
    Instance {
        name: name.to_owned(),
        id: id.to_string(),
        instance_type: profile.instance.name.to_owned(),
        namespace: namespace.as_ref().map(|namespace| namespace.name().clone()),
        interfaces,
        tracked,
        untracked,
        credits_bits,
        bandwidth_bps: [profile.peak_bps(), profile.baseline_bps()],
        packets_per_second: profile.limits().packets_per_second,
        fragments_dropped,
    }
}

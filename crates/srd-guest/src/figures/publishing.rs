//! Publication of the packet thread's figures for readers: [`crate::figures::pages`].

use std::collections::BTreeMap;
use std::sync::Arc;

use srd_card::Direction;
use srd_card::limits::Limit;
use srd_card::vpc::{Card, PortId};
use srd_net::page::Page;
use srd_proto::time::Instant;
use srd_vpc::id::EniId;

use crate::cloud::plane;
use crate::control::protocol::Tables;
use crate::figures::pages::Pages;
use crate::figures::pages::directory::{
    About, Directory, InterfaceRow, Listed, ListedHost, ListedInterface,
};
use crate::figures::pages::figures::{
    DeviceFigures, Figures, InstanceFigures, InterfaceFigures, Totals,
};
use crate::figures::pages::publisher::Row;
use crate::interfaces::adapter::queues_max;
use crate::interfaces::gone::{LostDevices, Which};
use crate::interfaces::port::Port;
use crate::state::{Running, Service};
use crate::traffic::gateways::Gateways;
use crate::traffic::hosts::Contact;
use crate::traffic::transport::Transport;

/// The parts of the card whose figures are published.
struct Sources<'a> {
    card: &'a mut Card,
    devices: &'a BTreeMap<PortId, Port>,
    gone: &'a LostDevices,
    gateways: &'a Gateways,
    asked: plane::Counts,
    lasting: Tables,
}

impl Service {
    /// Writes rows of the pages of figures, if a reader waits for them. One turn of the loop writes
    /// a limited number of rows.
    pub(crate) fn publish(&mut self, now: Instant) {
        if !self.publisher.begins(now) {
            return;
        }
        self.list();
        let Self { publisher, card, devices, gone, gateways, plane, .. } = self;
        let (asked, lasting) = (plane.counts, publisher.lasting());
        let mut sources = Sources { card, devices, gone, gateways, asked, lasting };
        publisher.turn(now, |pages, row| match row {
            Row::Interface(port, row) => sources.write_interface(now, *port, row),
            Row::Host(name, page) => {
                sources.write_host(name, page);
                true
            }
            Row::Totals => sources.write_totals(pages),
        });
    }

    /// Publishes the list of all objects with their names, if names have changed since the last
    /// list.
    pub(crate) fn list(&mut self) {
        if !self.publisher.is_outdated() {
            return;
        }
        let transport = self.gateways.transport.as_ref();
        let about = About {
            host: self.vpc.host().to_owned(),
            scale: self.options.scale,
            internet: self.options.internet,
            began: Some(self.began),
            began_unix_ns: self.began_unix_ns,
            has_transport: transport.is_some(),
        };
        let known = self.publisher.known_rows();
        let listed = |(name, running): (&String, &Running)| Listed {
            name: name.clone(),
            id: running.id,
            namespace: running.namespace.as_ref().map(|namespace| namespace.name().clone()),
            profile: running.profile.clone(),
            interfaces: self.listed_interfaces(running, &known),
        };
        let instances = self.guests.by_name.iter().map(listed).collect();
        let before = self.publisher.directory();
        let hosts = transport.into_iter().flat_map(Transport::hosts).map(|(name, at)| {
            let known = before.hosts.binary_search_by(|of| of.name.cmp(name));
            let page = known.ok().map(|place| Arc::clone(&before.hosts[place].page));
            let page = page.unwrap_or_else(|| Arc::new(Page::new(Contact::WORDS)));
            ListedHost { name: Arc::clone(name), at, page }
        });
        let (vpc, logs) = (self.vpc.clone(), Arc::clone(&self.logs.plan));
        let directory = Directory::new(about, vpc, logs, instances, hosts.collect());
        let rules = self.card.rules();
        let [interfaces, mapped, members] = rules.sizes().map(|n| n as u64);
        let bytes = rules.lasting_bytes() as u64;
        let lasting = Tables { interfaces, mapped, members, bytes, ..Tables::default() };
        self.publisher.list(directory, lasting);
    }

    fn listed_interfaces(
        &self,
        running: &Running,
        known: &BTreeMap<(PortId, EniId), Arc<InterfaceRow>>,
    ) -> Vec<ListedInterface> {
        let queues_max = usize::from(queues_max(&running.profile.instance));
        let interfaces = running.interfaces.iter().map(|(port, eni, device)| {
            let row = known.get(&(*port, *eni)).filter(|row| row.has_room_for(queues_max));
            let socket = self.devices.get(port).and_then(Port::socket);
            ListedInterface {
                port: *port,
                eni: *eni,
                device: device.clone(),
                socket: socket.map(Into::into),
                row: row.map_or_else(|| Arc::new(InterfaceRow::new(queues_max)), Arc::clone),
            }
        });
        interfaces.collect()
    }
}

impl Sources<'_> {
    /// Writes the figures of an interface into its row. Returns `false` if a text of the row could
    /// not be written, because a reader holds its lock.
    fn write_interface(&mut self, now: Instant, port: PortId, row: &InterfaceRow) -> bool {
        let lost = self.gone.loss(Which::Of(port));
        if let Some(failed) = lost
            && row.failed.try_put(failed.cloned()).is_err()
        {
            return false;
        }
        let (allowances, available) = self.card.allowances(port);
        let at = self.devices.get(&port);
        let socket = at.and_then(Port::vhost_user);
        let device = DeviceFigures {
            is_kernel: at.is_some_and(|at| at.kernel().is_some()),
            is_socket: socket.is_some(),
            is_connected: socket.is_some_and(|of| of.is_connected),
            is_running: socket.is_some_and(|of| of.is_running),
            pairs: socket.map_or(0, |of| of.pairs) as u64,
            is_gone: lost.is_some(),
            drops: at.map(Port::drops).unwrap_or_default(),
        };
        let figures = InterfaceFigures {
            counts: self.card.counts(port),
            allowances,
            available: available.into(),
            drops: self.card.drop_counts(port),
            device,
            instance: self.instance(now, port),
        };
        let queues = || at.and_then(Port::kernel).into_iter().flat_map(|of| of.adapter.counts());
        row.page.write(|to| {
            figures.put(to);
            to.put(queues().count() as u64);
            queues().for_each(|queue| queue.put(to));
        });
        true
    }

    fn instance(&mut self, now: Instant, port: PortId) -> InstanceFigures {
        let card = &mut *self.card;
        let ways = [Direction::Ingress, Direction::Egress];
        let (tracked, untracked) = card.flows(port);
        InstanceFigures {
            credits_bits: ways.map(|way| card.credits_bits(now, port, way)),
            tracked: tracked.into(),
            untracked: untracked.into(),
            fragments_dropped: card.held(port, Limit::Fragments).dropped,
        }
    }

    fn write_host(&self, name: &str, page: &Page) {
        let transport = self.gateways.transport.as_ref();
        if let Some(contact) = transport.and_then(|transport| transport.contact(name)) {
            page.write(|to| contact.put(to));
        }
    }

    /// Writes the figures of the whole card. Returns `false` if a text could not be written,
    /// because a reader holds its lock.
    fn write_totals(&self, pages: &Pages) -> bool {
        let lost = self.gone.loss(Which::Edge);
        if let Some(failed) = lost
            && pages.edge_failed.try_put(failed.cloned()).is_err()
        {
            return false;
        }
        let transport = self.gateways.transport.as_ref();
        let rules = self.card.rules();
        let plane::Counts { asked, answered, refused, not_asked } = self.asked;
        let totals = Totals {
            drops: self.card.drops_of_none().counts(),
            lost: pages.lost_names.places(&self.gateways.lost),
            tables: Tables {
                answers: rules.answers() as u64,
                bytes: self.lasting.bytes + rules.answers_bytes() as u64,
                asked,
                answered,
                refused,
                not_asked,
                ..self.lasting
            },
            utilization: transport.map_or(0, Transport::resource_utilization),
            is_edge_gone: lost.is_some(),
        };
        pages.totals.write(|to| {
            totals.put(to);
            transport.into_iter().flat_map(Transport::lost).for_each(|frames| to.put(frames));
        });
        true
    }
}

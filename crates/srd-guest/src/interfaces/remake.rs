//! Detection of deleted devices, and their repair.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;

use anyhow::Result;
use srd_card::vpc::PortId;
use srd_net::Tun;
use srd_proto::time::Instant;

use crate::cloud::world::Vpc;
use crate::interfaces::devices::close;
use crate::interfaces::gone::Which;
use crate::interfaces::port::Port;
use crate::machine::edge;
use crate::machine::maker::DeviceRebuild;
use crate::state::{Running, Service};

impl Service {
    /// Records that the device of the internet's side was deleted, so that it is created again
    /// after a pause.
    pub(crate) fn lose_edge(&mut self, now: Instant, error: &io::Error) {
        if let Some(edge) = &mut self.gateways.edge {
            edge.lose();
            let pause = self.gone.lose(now, Which::Edge, None);
            tracing::warn!(
                "{} was deleted ({error}): no packet passes between instances and the internet's \
                 side until it is made again, in {} s",
                edge::DEVICE,
                pause.as_nanos() / 1_000_000_000
            );
        }
    }

    /// Records that the device of an interface was deleted, so that it is created again after a
    /// pause.
    pub(crate) fn lose_device(&mut self, now: Instant, port: PortId, error: &io::Error) {
        let mut device = self.devices.remove(&port);
        self.held.remove(&port);
        // The queues are closed, because the queues of a deleted device would stay readable for
        // ever.
        if let Some(kernel) = device.as_mut().and_then(Port::kernel_mut) {
            close(kernel.set_queues(Vec::new(), 0));
        }
        let Some((name, running)) = self.guests.of_port(port) else { return };
        let (_, _, of) = running.at(port);
        let pause = self.gone.lose(now, Which::Of(port), device);
        tracing::warn!(
            "the device {} of the instance `{name}` was deleted ({error}): it is made again in \
             {} s",
            of.name,
            pause.as_nanos() / 1_000_000_000
        );
    }

    /// Requests the creation of deleted devices whose pause has ended.
    pub(crate) fn make_again(&mut self, now: Instant) {
        for (which, number) in self.gone.due(now) {
            let asked = match which {
                Which::Edge => self.maker.make_edge(number, Vpc::publics(&self.world)),
                Which::Of(port) => match self.again(port, number) {
                    Some(again) => self.maker.make_device(again),
                    None => {
                        self.gone.forget(port);
                        continue;
                    }
                },
            };
            if let Err(error) = asked {
                self.say_failed(now, which, &error);
            }
        }
    }

    /// Returns the request to create an interface's device again; `None` if the interface is gone
    /// or has no namespace.
    fn again(&self, port: PortId, loss: u64) -> Option<DeviceRebuild> {
        let (_, running) = self.guests.of_port(port)?;
        let (number, several, device) = running.at(port);
        let namespace = running.namespace.as_ref()?.name().clone();
        let lost = self.gone.lost(port)?;
        let settings = &lost.kernel()?.adapter.settings;
        let (queues, ring) = (settings.queues, settings.tx_ring);
        let (place, device) = ((number, several), device.clone());
        Some(DeviceRebuild { loss, namespace, place, device, queues, ring })
    }

    /// Handles the result of creating the device of the internet's side again.
    pub(crate) fn made_edge(
        &mut self,
        now: Instant,
        number: u64,
        made: Result<(Tun, BTreeSet<Ipv4Addr>)>,
    ) {
        if self.gone.which(number) != Some(Which::Edge) {
            return;
        }
        let found = made.and_then(|(tun, routed)| {
            let Some(edge) = &mut self.gateways.edge else { return Ok(()) };
            edge.find(tun, routed);
            // The rules may have changed meanwhile.
            let publics = Vpc::publics(&self.world);
            let (missing, over) = (edge.missing(&publics), edge.take_over(&publics));
            if missing.is_empty() && over.is_empty() {
                return Ok(());
            }
            self.maker.route(missing, over)
        });
        match found {
            Ok(()) => {
                self.gone.found(now, Which::Edge);
                tracing::info!("{} is there again", edge::DEVICE);
            }
            Err(error) => {
                if let Some(edge) = &mut self.gateways.edge {
                    edge.lose();
                }
                self.say_failed(now, Which::Edge, &error);
            }
        }
    }

    /// Handles the result of creating a device of an instance again.
    pub(crate) fn made_device(&mut self, now: Instant, number: u64, made: Result<Vec<Tun>>) {
        // The interface may be gone meanwhile, and its port may belong to another one.
        let Some(which @ Which::Of(port)) = self.gone.which(number) else { return };
        let found = made.and_then(|queues| {
            let Some(mut device) = self.gone.found(now, which) else { return Ok(()) };
            if let Some(kernel) = device.kernel_mut() {
                let count = queues.len();
                close(kernel.set_queues(queues, count));
            }
            self.watch_or_return(port, device).map_err(|(error, mut device)| {
                if let Some(kernel) = device.kernel_mut() {
                    close(kernel.set_queues(Vec::new(), 0));
                }
                self.gone.keep(which, device);
                error
            })
        });
        match found {
            Ok(()) => {
                if let Some((name, running)) = self.guests.of_port(port) {
                    let (_, _, device) = running.at(port);
                    tracing::info!(
                        "the device {} of the instance `{name}` is there again",
                        device.name
                    );
                }
            }
            Err(error) => self.say_failed(now, which, &error),
        }
    }

    fn say_failed(&mut self, now: Instant, which: Which, error: &anyhow::Error) {
        let Some(why) = self.gone.fail(now, which, format!("{error:#}")) else { return };
        let what = match which {
            Which::Edge => String::from(edge::DEVICE),
            Which::Of(port) => match self.guests.of_port(port) {
                Some((name, _)) => format!("a device of the instance `{name}`"),
                None => return,
            },
        };
        tracing::warn!("{what} cannot be made again, which is tried further: {why}");
    }
}

impl Running {
    /// Returns the index of an interface in its instance, whether the instance has several, and the
    /// device.
    fn at(&self, port: PortId) -> (usize, bool, &crate::machine::namespace::Device) {
        let number = self.interfaces.iter().position(|(of, ..)| *of == port).unwrap_or_default();
        (number, self.interfaces.len() > 1, &self.interfaces[number].2)
    }
}

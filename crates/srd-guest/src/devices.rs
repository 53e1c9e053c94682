//! Changes of devices: queues, rings, steering and interrupts of an interface.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use srd_card::vpc::PortId;
use srd_proto::time::Instant;

use crate::adapter::{Facts, queues_max};
use crate::port::Port;
use crate::protocol::{DeviceChange, DeviceReport};
use crate::state::{Running, Service};

impl Service {
    /// Changes the device of an interface, or only says what it is set to. The ring from the
    /// instance is the kernel's: [`crate::place::set_tx_ring`].
    pub(crate) fn set_device(
        &mut self,
        now: Instant,
        instance: &str,
        device: Option<&str>,
        change: &DeviceChange,
    ) -> Result<DeviceReport> {
        let running = self.guests.by_name.get_mut(instance);
        let running =
            running.with_context(|| format!("there is no instance `{instance}` on this host"))?;
        let (eni, port, name) = place_of(running, instance, device)?;
        let others = running.interfaces.iter().map(|(other, ..)| *other).filter(|o| *o != port);
        let others = others.filter_map(|other| self.devices.get(&other)?.kernel());
        let queues_of_others = others.map(|of| u32::from(of.adapter.settings.queues)).sum();
        let kind = running.profile.instance;
        let kernel = match self.devices.get_mut(&port) {
            Some(Port::Tun(kernel)) => kernel,
            Some(Port::Vhost(_)) => bail!(
                "`{instance}` is at a socket of vhost-user: its front end says how many queues \
                 and which rings it has"
            ),
            None => bail!("the device {name} of `{instance}` is gone"),
        };
        if *change != DeviceChange::default() {
            let facts = Facts { kind: &kind, eni, queues_of_others };
            let before = &kernel.adapter.settings;
            let (settings, steering) = before.changed(&running.steering, change, &facts)?;
            let more = settings.queues.saturating_sub(before.queues);
            let opened = match &running.namespace {
                Some(namespace) if more > 0 => namespace.open(&name, more)?,
                _ => Vec::new(),
            };
            let steering = Arc::new(steering);
            let closed = kernel.set_queues(opened, settings.queues.into());
            for (queue, frame) in kernel.adapter.set(now, settings, Arc::clone(&steering))? {
                kernel.give(queue, &frame);
            }
            // The kernel waits for its readers when a queue is closed; packets do not.
            if !closed.is_empty() {
                std::thread::Builder::new().name("srd-card-close".into()).spawn(|| drop(closed))?;
            }
            for (other, ..) in &running.interfaces {
                if let Some(other) = self.devices.get_mut(other).and_then(Port::kernel_mut) {
                    other.adapter.steering = Arc::clone(&steering);
                }
            }
            running.steering = steering;
            if let (Some(tenant), Some(at)) = (self.card.tenant_of(port), self.devices.get(&port)) {
                self.turns.watch(port, tenant, at)?;
            }
        }
        let Some(kernel) = self.devices.get(&port).and_then(Port::kernel) else {
            bail!("the device {name} of `{instance}` is gone")
        };
        Ok(DeviceReport {
            instance: instance.to_owned(),
            instance_type: kind.name.to_owned(),
            namespace: running.namespace.as_ref().map(|of| of.name().to_owned()),
            device: name,
            queues_max: queues_max(&kind),
            settings: kernel.adapter.settings.clone(),
            rules: kernel.adapter.rules(),
            rule_places: running.steering.size(),
        })
    }
}

/// The interface with a device, or the first: its place among those of the instance, its port, and
/// the device's name.
fn place_of(
    running: &Running,
    instance: &str,
    device: Option<&str>,
) -> Result<(u16, PortId, String)> {
    let mut places = (0..).zip(&running.interfaces);
    let place = match device {
        Some(device) => places.find(|(_, (.., of))| of.name == device),
        None => places.next(),
    };
    let Some((eni, (port, _, of))) = place else {
        let all: Vec<&str> = running.interfaces.iter().map(|(.., d)| d.name.as_str()).collect();
        bail!("the instance `{instance}` has no such device: {}", all.join(", "));
    };
    Ok((eni, *port, of.name.clone()))
}

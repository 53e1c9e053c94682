//! Changes of devices: queues, rings, steering and interrupts of an interface.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use srd_card::vpc::PortId;
use srd_net::Tun;
use srd_proto::time::Instant;

use crate::control::protocol::{Answer, DeviceChange, DeviceReport, NamespaceName};
use crate::interfaces::adapter::{DeviceLimits, queues_max};
use crate::interfaces::memory::MemoryGuest;
use crate::interfaces::port::Port;
use crate::machine::maker::{DeviceAsked, More};
use crate::state::{Running, Service};

/// Outcome of [`Service::set_device`].
pub(crate) enum Set {
    /// The change is in force.
    Done(Box<DeviceReport>),
    /// The change needs additional queues. The values are the namespace, the present name of the
    /// device, and the number of queues.
    Needs(NamespaceName, String, u16),
}

impl Service {
    /// Connects the first interface of an instance to a program of this process. The instance must
    /// be one whose interfaces are vhost-user sockets; the socket is closed.
    ///
    /// # Errors
    /// There is no such instance here, or it has a namespace.
    pub(crate) fn set_memory_guest(
        &mut self,
        name: &str,
        guest: Box<dyn MemoryGuest>,
    ) -> Result<()> {
        let running = self.guests.by_name.get(name);
        let running = running.with_context(|| format!("instance `{name}` does not run here"))?;
        let (port, ..) = running.interfaces.first().context("it has no interface")?;
        match self.devices.get_mut(port) {
            Some(device @ (Port::Vhost(_) | Port::Memory(_))) => *device = Port::Memory(guest),
            _ => bail!("instance `{name}` has a namespace: name it among those of vhost-user"),
        }
        Ok(())
    }

    /// Changes the device of an interface, or only reports its settings if the change is empty.
    /// `opened`: additional queues that were opened for the change. The ring for packets from the
    /// instance belongs to the kernel, and is changed by [`crate::place::set_tx_ring`].
    pub(crate) fn set_device(
        &mut self,
        now: Instant,
        instance: &str,
        device: Option<&str>,
        change: &DeviceChange,
        opened: Option<Vec<Tun>>,
    ) -> Result<Set> {
        let running = self.guests.by_name.get_mut(instance);
        let running =
            running.with_context(|| format!("there is no instance `{instance}` on this host"))?;
        let (eni, port, device) = place_of(running, instance, device)?;
        let others = running.interfaces.iter().map(|(other, ..)| *other).filter(|o| *o != port);
        // A deleted device has its number of queues again as soon as it is made again.
        let at = |other| self.devices.get(&other).or_else(|| self.gone.lost(other));
        let others = others.filter_map(|other| at(other)?.kernel());
        let queues_of_others = others.map(|of| u32::from(of.adapter.settings.queues)).sum();
        let kind = running.profile.instance;
        let kernel = match self.devices.get_mut(&port) {
            Some(Port::Tun(kernel)) => kernel,
            Some(Port::Vhost(_)) => bail!(
                "`{instance}` is at a socket of vhost-user: its front end says how many queues \
                 and which rings it has"
            ),
            Some(Port::Memory(_)) => bail!("`{instance}` is in memory: it has no queues"),
            None => {
                bail!("the device {device} of `{instance}` was deleted, and is being made again")
            }
        };
        let gone = || format!("the device {device} of `{instance}` is gone");
        let name = kernel.name().with_context(gone)?;
        if *change != DeviceChange::default() {
            let facts = DeviceLimits { kind: &kind, eni, queues_of_others };
            let before = &kernel.adapter.settings;
            let (settings, steering) = before.changed(&running.steering, change, &facts)?;
            let more = settings.queues.saturating_sub(before.queues);
            let opened = match (&running.namespace, opened) {
                (Some(namespace), None) if more > 0 => {
                    return Ok(Set::Needs(namespace.name().clone(), name, more));
                }
                (_, opened) => opened.unwrap_or_default(),
            };
            if opened.len() != usize::from(more) {
                close(opened);
                bail!("the device {device} of `{instance}` was changed meanwhile: try again");
            }
            // All steps that can fail come before the first change. // D10
            self.turns.watch_more(port, &opened)?;
            let steering = Arc::new(steering);
            let queues = settings.queues.into();
            let held = kernel.adapter.set(now, settings, Arc::clone(&steering))?;
            let closed = kernel.set_queues(opened, queues);
            for (queue, frame) in held {
                kernel.give(queue, frame);
            }
            close(closed);
            for (other, ..) in &running.interfaces {
                if let Some(other) = self.devices.get_mut(other).and_then(Port::kernel_mut) {
                    other.adapter.steering = Arc::clone(&steering);
                }
            }
            running.steering = steering;
        }
        let kernel = self.devices.get(&port).and_then(Port::kernel).with_context(gone)?;
        Ok(Set::Done(Box::new(DeviceReport {
            instance: instance.to_owned(),
            instance_type: kind.name.to_owned(),
            namespace: running.namespace.as_ref().map(|of| of.name().clone()),
            renamed: Some(name).filter(|name| *name != device),
            device,
            queues_max: queues_max(&kind),
            settings: kernel.adapter.settings.clone(),
            rules: kernel.adapter.rules(),
            rule_places: running.steering.size(),
        })))
    }

    /// Applies a request to change a device. `opened`: additional queues that were opened for it.
    /// If the request needs queues that are not open, it is applied when they are open.
    pub(crate) fn change_device(
        &mut self,
        now: Instant,
        asked: DeviceAsked,
        opened: Option<Vec<Tun>>,
    ) {
        let DeviceAsked { instance, device, change, .. } = &asked;
        let said = match self.set_device(now, instance, device.as_deref(), change, opened) {
            Ok(Set::Done(report)) => Ok(Answer::Device(report)),
            Ok(Set::Needs(namespace, name, queues)) => {
                let back = asked.back.clone();
                match self.maker.open_more(More { namespace, name, queues, asked }) {
                    Ok(()) => return,
                    Err(error) => {
                        let _ = back.send(Answer::Failed { what: format!("{error:#}") });
                        return;
                    }
                }
            }
            Err(error) => Err(error),
        };
        let failed = |error| Answer::Failed { what: format!("{error:#}") };
        let _ = asked.back.send(said.unwrap_or_else(failed));
    }
}

/// Closes queues on a separate thread, if one can be started. The kernel lets the closing thread
/// wait for readers of a queue, and packets must not wait for that.
pub(crate) fn close(queues: Vec<Tun>) {
    if queues.is_empty() {
        return;
    }
    let thread = std::thread::Builder::new().name("srd-card-close".into());
    if let Err(error) = thread.spawn(|| drop(queues)) {
        tracing::warn!("queues were closed while packets waited: no thread for it: {error}");
    }
}

/// Returns the interface whose device has this name, or the first interface if no name is given:
/// its index in the instance, its port, and the name of its device.
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

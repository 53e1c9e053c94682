//! The places of instances: namespaces with the devices in them.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Context, Result};
use srd_net::Tun;

use crate::namespace::{Device, Namespace, ip};
use crate::protocol::DeviceReport;
use crate::undo::Undo;

/// The place of an instance, as it is wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) devices: Vec<Device>,
    /// Queue pairs of each device.
    pub(crate) queues: u16,
    /// Packets that a queue to the card holds.
    pub(crate) tx_ring: u32,
    /// Whether an earlier card may have left its namespace with programs that go on.
    pub(crate) may_find: bool,
}

/// The place of an instance: its namespace, and the queues of each of its devices. The devices go
/// before the namespace.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) devices: Vec<Vec<Tun>>,
    pub(crate) namespace: Option<Namespace>,
}

/// Places by the names of their instances.
pub(crate) type Places = BTreeMap<String, Place>;

impl Wanted {
    /// Makes it; `None` if programs that were found in its namespace are in the way. They may be
    /// anybody's, and keep no card from starting.
    pub(crate) fn make(&self, undo: &Undo) -> Result<Option<Place>> {
        let namespace = Namespace::make(&self.name, self.may_find, undo)?;
        match self.furnish(&namespace) {
            Ok(devices) => Ok(Some(Place { devices, namespace: Some(namespace) })),
            Err(error) if namespace.is_found() => {
                let name = namespace.name();
                tracing::error!(
                    "the instance `{}` is left out: {error:#}; end the programs in its namespace \
                     (`ip netns pids {name}` names them), then `srd card apply`",
                    self.name
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the devices.
    fn furnish(&self, namespace: &Namespace) -> Result<Vec<Vec<Tun>>> {
        if namespace.is_found() {
            namespace.clear(&self.devices)?;
        }
        let devices = self.devices.iter().enumerate();
        let several = self.devices.len() > 1;
        let add = |(n, of)| namespace.inside().add((n, several), of, self.queues, self.tx_ring);
        devices.map(add).collect()
    }
}

/// Makes the places of several instances, several at once. What was made goes if one fails; one
/// that is left out is not among them.
pub(crate) fn make_all(wanted: &[Wanted], undo: &Undo) -> Result<Places> {
    /// Threads that make places at once: what takes the time is the kernel's lock of devices.
    const AT_ONCE: usize = 4;
    let part = wanted.len().div_ceil(AT_ONCE).max(1);
    let make = |some: &[Wanted]| -> Result<Places> {
        let place = |of: &Wanted| {
            let place = of.make(undo).with_context(|| format!("instance `{}`", of.name));
            place.map(|place| Some((of.name.clone(), place?))).transpose()
        };
        some.iter().filter_map(place).collect()
    };
    let parts: Vec<Result<Places>> = thread::scope(|scope| {
        let threads: Vec<_> =
            wanted.chunks(part).map(|some| scope.spawn(move || make(some))).collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|made| made.unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    parts.into_iter().try_fold(Places::new(), |mut all, part| {
        all.extend(part?);
        Ok(all)
    })
}

/// Gives the rings of a device in a namespace so many entries. This runs a program, and so not
/// where packets are moved.
pub(crate) fn set_tx_ring(report: &DeviceReport, entries: u32) -> Result<()> {
    let Some(namespace) = &report.namespace else { return Ok(()) };
    let name = report.renamed.as_ref().unwrap_or(&report.device);
    // A name may be a word of `ip`, as "up": the instance chooses it.
    ip(&["-n", namespace.as_str(), "link", "set", "dev", name, "txqueuelen", &entries.to_string()])
}

//! The networks of instances: namespaces with devices in them, or vhost-user sockets.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use srd_net::Tun;

use crate::control::protocol::NamespaceName;
use crate::interfaces::port::Bound;
use crate::machine::namespace::{Device, Namespace, Owned, ip};
use crate::machine::pods::{self, PodInterface};

/// Request for the network of one instance: a namespace and the devices in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkRequest {
    pub(crate) name: String,
    pub(crate) devices: Vec<Device>,
    /// Number of queue pairs of each device.
    pub(crate) queues: u16,
    /// Maximum number of packets that wait in a queue to the card.
    pub(crate) tx_ring: u32,
    /// Address of the resolver of the instance's cloud; `None` if the cloud has no DNS support.
    pub(crate) resolver: Option<Ipv4Addr>,
    /// Whether a card may have left the namespace, with programs that continue.
    pub(crate) may_find: bool,
    /// Name of the pod in whose namespace the devices are; `None`: the instance gets a namespace.
    pub(crate) pod: Option<String>,
}

/// The network of an instance: its namespace, and the queues of each of its devices; or sockets for
/// its interfaces. The devices are dropped before the namespace.
#[derive(Debug, Default)]
pub(crate) struct InstanceNetwork {
    pub(crate) devices: Vec<Vec<Tun>>,
    pub(crate) namespace: Option<Namespace>,
    pub(crate) sockets: Vec<Bound>,
    /// The interface in the pod, if the namespace belongs to a pod.
    pub(crate) pod: Option<PodInterface>,
}

/// Networks of instances, by the names of the instances.
pub(crate) type Places = BTreeMap<String, InstanceNetwork>;

/// An instance's network in the helper process.
#[derive(Debug)]
pub(crate) struct CreatedNetwork {
    pub(crate) namespace: Owned,
    /// The queues of each device.
    pub(crate) devices: Vec<Vec<Tun>>,
    /// The interface in the pod, if the namespace belongs to a pod.
    pub(crate) pod: Option<PodInterface>,
}

impl NetworkRequest {
    /// Creates the network. Returns `None` if an earlier card has left the namespace, and a program
    /// in it prevents the creation of a device. Any program can do this, so it must not keep the
    /// card from starting.
    fn make(&self, locks: &Path) -> Result<Option<CreatedNetwork>> {
        if let Some(pod) = &self.pod {
            return Ok(self.make_in_pod(pod, locks).unwrap_or_else(|error| {
                tracing::error!("the instance `{}` is left out: {error:#}", self.name);
                None
            }));
        }
        let namespace = Owned::make(&self.name, self.may_find, locks)?;
        match self.furnish(&namespace, &self.devices) {
            Ok(devices) => Ok(Some(CreatedNetwork { namespace, devices, pod: None })),
            Err(error) if namespace.is_found() => {
                let name = namespace.name().clone();
                namespace.delete();
                tracing::error!(
                    "the instance `{}` is left out: {error:#}; end the programs in its namespace \
                     (`ip netns pids {name}` names them), then `srd card apply`",
                    self.name
                );
                Ok(None)
            }
            Err(error) => {
                namespace.delete();
                Err(error)
            }
        }
    }

    /// Creates the network in the namespace of a pod. The pod may be gone, or a program in it may
    /// prevent the creation, so an error must not keep the card from starting.
    fn make_in_pod(&self, pod: &str, locks: &Path) -> Result<Option<CreatedNetwork>> {
        let pod = pods::read(&pods::beside(locks), pod)?;
        let mut devices = self.devices.clone();
        if let [first, others @ ..] = &mut devices[..] {
            first.set_pod(pod.interface());
            if others.iter().any(|of| of.name == first.name) {
                bail!("two of its interfaces have the name {}", first.name);
            }
        }
        let namespace = Owned::of_pod(&self.name, pod.open()?, locks)?;
        match self.furnish(&namespace, &devices) {
            Ok(devices) => {
                let pod = Some(pod.interface().clone());
                Ok(Some(CreatedNetwork { namespace, devices, pod }))
            }
            Err(error) => {
                namespace.delete();
                Err(error)
            }
        }
    }

    /// Creates the devices in the namespace, after remains of an earlier card were removed from it.
    fn furnish(&self, namespace: &Owned, devices: &[Device]) -> Result<Vec<Vec<Tun>>> {
        if namespace.is_found() {
            namespace.clear(devices)?;
        }
        let several = devices.len() > 1;
        let devices = devices.iter().enumerate();
        let add = |(n, of)| namespace.inside().add((n, several), of, self.queues, self.tx_ring);
        devices.map(add).collect()
    }
}

/// Creates the networks of several instances in parallel. If one creation fails, the networks
/// created so far are removed. An instance that is left out because of a program in its namespace
/// is missing from the result.
pub(crate) fn make_all(
    wanted: &[NetworkRequest],
    locks: &Path,
) -> Result<BTreeMap<String, CreatedNetwork>> {
    /// Number of threads that create networks. Most of the time they wait for the kernel's lock of
    /// network devices.
    const AT_ONCE: usize = 4;
    let part = wanted.len().div_ceil(AT_ONCE).max(1);
    let make = |some: &[NetworkRequest]| {
        let mut all = BTreeMap::new();
        for of in some {
            match of.make(locks).with_context(|| format!("instance `{}`", of.name)) {
                Ok(made) => all.extend(made.map(|made| (of.name.clone(), made))),
                Err(error) => return (all, Err(error)),
            }
        }
        (all, Ok(()))
    };
    let parts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            wanted.chunks(part).map(|some| scope.spawn(move || make(some))).collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|made| made.unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    let (mut all, mut done) = (BTreeMap::new(), Ok(()));
    for (some, made) in parts {
        all.extend(some);
        done = done.and(made);
    }
    if let Err(error) = done {
        for CreatedNetwork { namespace, devices, .. } in all.into_values() {
            drop(devices);
            namespace.delete();
        }
        return Err(error);
    }
    Ok(all)
}

/// Sets the number of packets that wait in a queue of a device in a namespace (`txqueuelen`).
pub(crate) fn set_tx_ring(namespace: &NamespaceName, device: &str, entries: u32) -> Result<()> {
    let entries = entries.to_string();
    // The instance chooses the name, which may be a keyword of `ip` like "up". So `dev` precedes
    // it.
    ip(&["-n", namespace.as_str(), "link", "set", "dev", device, "txqueuelen", &entries])
}

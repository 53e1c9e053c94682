//! A thread that sends requests to the helper process to create or remove objects. Such a request
//! takes tens of milliseconds; meanwhile the packet thread continues to move packets.
//!
//! Bounds: networks are created for one change of the rules at a time. At most [`DEVICES_AT_ONCE`]
//! deleted devices are created again at the same time. Each vhost-user device has at most one job,
//! which connects it to its front end. At most [`JOBS_MAX`] jobs wait. If the queue is full, the
//! packet thread itself requests the removal of an instance's network, without waiting for it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use srd_card::vpc::PortId;
use srd_net::Tun;

use crate::control::orders::Orders;
use crate::control::protocol::{Answer, DeviceChange, NamespaceName};
use crate::helper::{Helper, Meet};
use crate::interfaces::port::Bound;
use crate::machine::namespace::Device;
use crate::machine::place::{InstanceNetwork, NetworkRequest, Places};
use crate::traffic::turns::INSTANCES_MAX;

/// Maximum number of deleted devices that are created again at the same time.
pub(crate) const DEVICES_AT_ONCE: usize = 16;
/// Maximum number of waiting jobs. It is sufficient if all instances are removed at once while
/// networks and devices are created.
const JOBS_MAX: usize = 2 * INSTANCES_MAX + DEVICES_AT_ONCE;

/// Objects that a change needs before its rules can be in force.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Requests for networks of instances in namespaces.
    pub(crate) wanted: Vec<NetworkRequest>,
    /// Paths of vhost-user sockets, with the name of the instance that they belong to.
    pub(crate) sockets: Vec<(String, Vec<PathBuf>)>,
    /// Public addresses that have to be routed to the internet's side.
    pub(crate) routes: BTreeSet<Ipv4Addr>,
}

/// A deleted device of an instance that has to be created again.
#[derive(Debug)]
pub(crate) struct DeviceRebuild {
    /// The number of the device's loss, as [`crate::gone`] assigns it.
    pub(crate) loss: u64,
    pub(crate) namespace: NamespaceName,
    /// Index of the device in its instance, and whether the instance has several devices.
    pub(crate) place: (usize, bool),
    pub(crate) device: Device,
    pub(crate) queues: u16,
    pub(crate) ring: u32,
}

/// A change of a device that needs more queues.
#[derive(Debug)]
pub(crate) struct More {
    pub(crate) namespace: NamespaceName,
    /// The current name of the device.
    pub(crate) name: String,
    pub(crate) queues: u16,
    pub(crate) asked: DeviceAsked,
}

/// A request to change a device, and the channel for its answer.
#[derive(Debug)]
pub(crate) struct DeviceAsked {
    pub(crate) instance: String,
    pub(crate) device: Option<String>,
    pub(crate) change: DeviceChange,
    pub(crate) back: Sender<Answer>,
}

enum Job {
    Make(Needs),
    Remove(InstanceNetwork),
    Edge(u64, BTreeSet<Ipv4Addr>),
    Route { add: BTreeSet<Ipv4Addr>, remove: BTreeSet<Ipv4Addr> },
    Resolvers(Vec<(NamespaceName, Option<Ipv4Addr>)>),
    Restore(Vec<(NamespaceName, Vec<Device>)>, Sender<Vec<String>>),
    Device(Box<DeviceRebuild>),
    Queues(Box<More>),
    Front(PortId, PathBuf),
}

/// A result of the thread that sends requests to the helper.
pub(crate) enum JobResult {
    /// The networks that were created for the change under way, and the addresses that were routed
    /// for it.
    Places(Result<(Places, BTreeSet<Ipv4Addr>)>),
    /// The device of the internet's side, and its routed addresses. The number identifies the
    /// deletion of the device after which it was created again.
    Edge(u64, Result<(Tun, BTreeSet<Ipv4Addr>)>),
    /// Addresses for which routes were added.
    Routed(BTreeSet<Ipv4Addr>),
    /// The queues of a device of an instance. The number identifies the deletion of the device
    /// after which it was created again.
    Device(u64, Result<Vec<Tun>>),
    /// Additional queues of a device, for a request to change it.
    Queues(DeviceAsked, Result<Vec<Tun>>),
    /// The connection to the front end of an interface; `None` if nothing listens at the socket.
    Front(PortId, Option<UnixStream>),
}

/// The thread that sends requests to the helper, and the channels to it.
#[derive(Debug)]
pub(crate) struct Maker {
    jobs: Option<SyncSender<Job>>,
    /// The channel of results. `drop` closes it (`None`) before it joins the thread; otherwise the
    /// thread could block on a full channel that the loop no longer reads.
    made: Option<Receiver<JobResult>>,
    thread: Option<JoinHandle<()>>,
}

impl Maker {
    /// Starts the thread, which wakes the loop after each result.
    pub(crate) fn start(helper: Helper, orders: Orders) -> Result<Self> {
        Self::with(orders, JOBS_MAX, move |job| work(&helper, job))
    }

    fn with(
        orders: Orders,
        jobs_max: usize,
        mut work: impl FnMut(Job) -> Option<JobResult> + Send + 'static,
    ) -> Result<Self> {
        let (jobs, queue) = sync_channel(jobs_max);
        let (back, made) = sync_channel(jobs_max);
        let run = move || {
            for job in queue {
                if let Some(made) = work(job) {
                    let _ = back.send(made);
                    orders.wake();
                }
            }
        };
        let thread = thread::Builder::new().name("srd-card-make".into()).spawn(run)?;
        Ok(Self { jobs: Some(jobs), made: Some(made), thread: Some(thread) })
    }

    /// Returns the next result, if there is one.
    pub(crate) fn try_next(&self) -> Option<JobResult> {
        self.made.as_ref()?.try_recv().ok()
    }

    /// Begins to create the objects that a change needs. The result is [`JobResult::Places`].
    pub(crate) fn make(&self, needs: Needs) -> Result<()> {
        self.give(Job::Make(needs))
    }

    /// Begins to create the device of the internet's side again.
    pub(crate) fn make_edge(&self, loss: u64, publics: BTreeSet<Ipv4Addr>) -> Result<()> {
        self.give(Job::Edge(loss, publics))
    }

    /// Begins to route addresses to the internet's side, and to remove other routes.
    pub(crate) fn route(&self, add: BTreeSet<Ipv4Addr>, remove: BTreeSet<Ipv4Addr>) -> Result<()> {
        self.give(Job::Route { add, remove })
    }

    /// Begins to set or remove the resolvers of namespaces.
    pub(crate) fn set_resolvers(&self, all: Vec<(NamespaceName, Option<Ipv4Addr>)>) -> Result<()> {
        self.give(Job::Resolvers(all))
    }

    /// Begins to restore namespaces and their devices after changes by other programs. `back`
    /// receives the changes that are left.
    pub(crate) fn restore(
        &self,
        of: Vec<(NamespaceName, Vec<Device>)>,
        back: Sender<Vec<String>>,
    ) -> Result<()> {
        self.give(Job::Restore(of, back))
    }

    /// Begins to create a device of an instance again. The caller limits the number of devices to
    /// [`DEVICES_AT_ONCE`].
    pub(crate) fn make_device(&self, again: DeviceRebuild) -> Result<()> {
        self.give(Job::Device(Box::new(again)))
    }

    /// Begins to open more queues of a device.
    pub(crate) fn open_more(&self, more: More) -> Result<()> {
        self.give(Job::Queues(Box::new(more)))
    }

    /// Begins to connect to the front end of an interface.
    pub(crate) fn join(&self, port: PortId, path: PathBuf) -> Result<()> {
        self.give(Job::Front(port, path))
    }

    /// Begins to remove the network of an instance. If a new network for this name is requested
    /// later, it is created after the removal.
    pub(crate) fn remove(&self, place: InstanceNetwork) {
        // If the queue is full, the network is dropped here, which removes it.
        let _ = self.give(Job::Remove(place));
    }

    fn give(&self, job: Job) -> Result<()> {
        let jobs = self.jobs.as_ref().context("namespaces are not made any more")?;
        jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => anyhow::anyhow!("too much is made and removed: try again"),
            TrySendError::Disconnected(_) => anyhow::anyhow!("the thread has ended"),
        })
    }
}

impl Needs {
    /// Whether no object has to be created.
    pub(crate) fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.sockets.is_empty() && self.routes.is_empty()
    }

    /// Creates all objects, or none. Returns the networks, and the addresses that are routed.
    pub(crate) fn make(self, helper: &Helper) -> Result<(Places, BTreeSet<Ipv4Addr>)> {
        let Self { wanted, sockets, routes } = self;
        if !routes.is_empty() {
            helper.route(&routes, &BTreeSet::new())?;
        }
        match make_places(helper, &wanted, sockets) {
            Ok(places) => Ok((places, routes)),
            Err(error) => {
                if !routes.is_empty()
                    && let Err(further) = helper.route(&BTreeSet::new(), &routes)
                {
                    tracing::warn!("routes of public addresses stay: {further:#}");
                }
                Err(error)
            }
        }
    }
}

fn make_places(
    helper: &Helper,
    wanted: &[NetworkRequest],
    sockets: Vec<(String, Vec<PathBuf>)>,
) -> Result<Places> {
    let mut places = Places::new();
    for (name, paths) in sockets {
        let listen = |path: &PathBuf| Bound::listen(path, Meet::Listens, helper);
        let sockets = paths.iter().map(listen).collect::<Result<_>>();
        let sockets = sockets.with_context(|| format!("instance `{name}`"))?;
        places.insert(name, InstanceNetwork { sockets, ..InstanceNetwork::default() });
    }
    places.extend(helper.make(wanted)?);
    Ok(places)
}

fn work(helper: &Helper, job: Job) -> Option<JobResult> {
    fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
        // After a panic the card still gets an answer, for which it waits.
        let done = catch_unwind(AssertUnwindSafe(work));
        done.unwrap_or_else(|_| Err(anyhow::anyhow!("it could not be made: see the log")))
    }
    match job {
        Job::Make(needs) => Some(JobResult::Places(caught(|| needs.make(helper)))),
        Job::Remove(place) => {
            drop(place);
            None
        }
        Job::Edge(loss, publics) => {
            let made = caught(|| Ok((helper.edge(&publics)?, publics)));
            Some(JobResult::Edge(loss, made))
        }
        Job::Route { add, remove } => match caught(|| helper.route(&add, &remove)) {
            Ok(()) => Some(JobResult::Routed(add)),
            Err(error) => {
                tracing::warn!("routes of public addresses: {error:#}");
                None
            }
        },
        Job::Resolvers(all) => {
            if let Err(error) = caught(|| helper.set_resolvers(&all)) {
                tracing::warn!("resolvers of instances: {error:#}");
            }
            None
        }
        Job::Restore(of, back) => {
            let left = match caught(|| helper.restore(of.clone())) {
                // A helper without time for an answer leaves nothing to report.
                Ok(()) => helper.look(of).map(|found| found.warnings).unwrap_or_default(),
                Err(error) => {
                    let left = format!("what other programs have changed of instances: {error:#}");
                    tracing::warn!("{left}");
                    vec![left]
                }
            };
            // The request that waited for the repair may have ended.
            let _ = back.send(left);
            None
        }
        Job::Device(again) => {
            let DeviceRebuild { loss, namespace, place, device, queues, ring } = *again;
            let made = caught(|| helper.make_device(namespace, place, device, queues, ring));
            Some(JobResult::Device(loss, made))
        }
        Job::Queues(more) => {
            let More { namespace, name, queues, asked } = *more;
            let opened = caught(|| helper.open_more(namespace, name, queues));
            Some(JobResult::Queues(asked, opened))
        }
        Job::Front(port, path) => {
            // If nothing listens, the device tries again later.
            let front = caught(|| helper.vhost(&path, Meet::Joins)).ok();
            Some(JobResult::Front(port, front.map(UnixStream::from)))
        }
    }
}

impl Maker {
    /// Carries out all jobs that wait, and ends the thread. Results are dropped.
    pub(crate) fn end(&mut self) {
        drop(self.jobs.take());
        drop(self.made.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Maker {
    /// Waits until everything is removed.
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_jobs_wait_and_more_are_refused() {
        let (orders, _commands, _wake) = Orders::new().unwrap();
        let (go, gate) = sync_channel::<()>(0);
        let work = move |_| {
            let _ = gate.recv();
            Some(JobResult::Places(Ok((Places::new(), BTreeSet::new()))))
        };
        let maker = Maker::with(orders, 3, work).unwrap();
        // The thread may have taken the first job.
        let taken = (0..9).filter(|_| maker.make(Needs::default()).is_ok()).count();
        assert!((3..=4).contains(&taken), "{taken}");
        let error = maker.make(Needs::default()).unwrap_err().to_string();
        assert!(error.contains("try again"), "{error}");
        for _ in 0..taken {
            go.send(()).unwrap();
        }
        drop(go);
        drop(maker);
    }
}

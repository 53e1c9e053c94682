//! Namespaces are made and removed on a thread of their own: programs run for that, and the kernel
//! waits for its readers, for tens of milliseconds in which the loop moves packets.
//!
//! Bound: one change at a time has namespaces made; removals are no more than instances.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use srd_net::Tun;

use crate::namespace::{Device, Namespace};
use crate::orders::{Command, Orders};
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
    /// Makes it.
    pub(crate) fn make(&self, undo: &Undo) -> Result<Place> {
        let namespace = Namespace::make(&self.name, undo)?;
        let devices = self.devices.iter();
        let devices = devices.map(|of| namespace.add(of, self.queues, self.tx_ring));
        Ok(Place { devices: devices.collect::<Result<_>>()?, namespace: Some(namespace) })
    }
}

/// Makes the places of several instances, several at once. What was made goes if one fails.
pub(crate) fn make_all(wanted: &[Wanted], undo: &Undo) -> Result<Places> {
    /// Threads that make places at once: what takes the time is the kernel's lock of devices.
    const AT_ONCE: usize = 4;
    let part = wanted.len().div_ceil(AT_ONCE).max(1);
    let make = |some: &[Wanted]| -> Result<Places> {
        let place = |of: &Wanted| {
            let place = of.make(undo).with_context(|| format!("instance `{}`", of.name))?;
            Ok((of.name.clone(), place))
        };
        some.iter().map(place).collect()
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

enum Job {
    Make(Vec<Wanted>),
    Remove(Place),
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Maker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Maker {
    /// What is made arrives as a command.
    pub(crate) fn start(undo: Undo, orders: Orders) -> Result<Self> {
        let (jobs, queue) = channel();
        let work = move || {
            for job in queue {
                match job {
                    Job::Make(wanted) => {
                        orders.give(Command::Made(make_all(&wanted, &undo)));
                    }
                    Job::Remove(place) => drop(place),
                }
            }
        };
        let thread = thread::Builder::new().name("srd-card-make".into()).spawn(work)?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Begins to make places; [`Command::Made`] has them.
    pub(crate) fn make(&self, wanted: Vec<Wanted>) -> Result<()> {
        let jobs = self.jobs.as_ref().context("namespaces are not made any more")?;
        jobs.send(Job::Make(wanted)).map_err(|_| anyhow::anyhow!("the thread has ended"))
    }

    /// Removes the place of an instance. A place of the same name that is made later waits for it.
    pub(crate) fn remove(&self, place: Place) {
        // Without the thread it is removed here, when what could not be sent is dropped.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(Job::Remove(place)));
    }
}

impl Drop for Maker {
    /// All is removed when this ends.
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

//! Namespaces and devices are made and removed on a thread of their own: programs run for that, and
//! the kernel waits for its readers, for tens of milliseconds in which the loop moves packets.
//!
//! Bound: one change at a time has namespaces made, and [`DEVICES_AT_ONCE`] devices are made again;
//! [`JOBS_MAX`] jobs wait. What finds no place is removed where packets are moved.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use srd_net::Tun;

use crate::edge::{self, Device as EdgeDevice};
use crate::namespace::{Device, Inside};
use crate::orders::Orders;
use crate::place::{Place, Places, Wanted, make_all};
use crate::turns::INSTANCES_MAX;
use crate::undo::Undo;

/// Devices that are made again at the same time.
pub(crate) const DEVICES_AT_ONCE: usize = 16;
/// Jobs that wait: all instances go at once, and namespaces and devices are made meanwhile.
const JOBS_MAX: usize = INSTANCES_MAX + 1 + DEVICES_AT_ONCE;

/// A device of an instance that is to be made again.
#[derive(Debug)]
pub(crate) struct Again {
    /// The number of its loss.
    pub(crate) loss: u64,
    pub(crate) inside: Inside,
    /// Its place among those of the instance, and whether there are others.
    pub(crate) place: (usize, bool),
    pub(crate) device: Device,
    pub(crate) queues: u16,
    pub(crate) ring: u32,
}

enum Job {
    Make(Vec<Wanted>),
    Remove(Place),
    Edge(u64, BTreeSet<Ipv4Addr>),
    Device(Box<Again>),
}

/// A result of the thread.
pub(crate) enum Made {
    /// The namespaces of the change that is under way.
    Places(Result<Places>),
    /// The device of the internet's side, for the loss with this number.
    Edge(u64, Result<EdgeDevice>),
    /// A device of an instance.
    Device(u64, Result<Vec<Tun>>),
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Maker {
    jobs: Option<SyncSender<Job>>,
    made: Receiver<Made>,
    thread: Option<JoinHandle<()>>,
}

impl Maker {
    /// The loop is woken when something was made.
    pub(crate) fn start(undo: Undo, orders: Orders) -> Result<Self> {
        Self::with(orders, JOBS_MAX, move |job| work(&undo, job))
    }

    fn with(
        orders: Orders,
        jobs_max: usize,
        mut work: impl FnMut(Job) -> Option<Made> + Send + 'static,
    ) -> Result<Self> {
        let (jobs, queue) = sync_channel(jobs_max);
        // Room for all that can be made at the same time: the thread never waits for the loop,
        // which waits for the thread at the end.
        let (back, made) = sync_channel(2 + DEVICES_AT_ONCE);
        let run = move || {
            for job in queue {
                if let Some(made) = work(job) {
                    let _ = back.send(made);
                    orders.wake();
                }
            }
        };
        let thread = thread::Builder::new().name("srd-card-make".into()).spawn(run)?;
        Ok(Self { jobs: Some(jobs), made, thread: Some(thread) })
    }

    /// The next result since the last call, if there is one.
    pub(crate) fn try_next(&self) -> Option<Made> {
        self.made.try_recv().ok()
    }

    /// Begins to make places; [`Made::Places`] has them.
    pub(crate) fn make(&self, wanted: Vec<Wanted>) -> Result<()> {
        self.give(Job::Make(wanted))
    }

    /// Begins to make the device of the internet's side again.
    pub(crate) fn make_edge(&self, loss: u64, publics: BTreeSet<Ipv4Addr>) -> Result<()> {
        self.give(Job::Edge(loss, publics))
    }

    /// Begins to make a device of an instance again; [`DEVICES_AT_ONCE`] at most.
    pub(crate) fn make_device(&self, again: Again) -> Result<()> {
        self.give(Job::Device(Box::new(again)))
    }

    /// Removes the place of an instance. A place of the same name that is made later waits for it.
    pub(crate) fn remove(&self, place: Place) {
        // A place that the full queue refuses is removed here, when it is dropped.
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

fn work(undo: &Undo, job: Job) -> Option<Made> {
    fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
        // The card waits for an answer before it asks for the same again.
        let done = catch_unwind(AssertUnwindSafe(work));
        done.unwrap_or_else(|_| Err(anyhow::anyhow!("it could not be made: see the log")))
    }
    match job {
        Job::Make(wanted) => Some(Made::Places(caught(|| make_all(&wanted, undo)))),
        Job::Remove(place) => {
            drop(place);
            None
        }
        Job::Edge(loss, publics) => Some(Made::Edge(loss, caught(|| edge::make(&publics)))),
        Job::Device(again) => {
            let Again { loss, inside, place, device, queues, ring } = *again;
            let made = caught(|| inside.add(place, &device, queues, ring));
            Some(Made::Device(loss, made))
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_jobs_wait_and_more_are_refused() {
        let (orders, _commands, _wake) = Orders::new().unwrap();
        let (go, gate) = sync_channel::<()>(0);
        let work = move |_| {
            let _ = gate.recv();
            Some(Made::Places(Ok(Places::new())))
        };
        let maker = Maker::with(orders, 3, work).unwrap();
        // The thread may have taken the first one.
        let taken = (0..9).filter(|_| maker.make(Vec::new()).is_ok()).count();
        assert!((3..=4).contains(&taken), "{taken}");
        let error = maker.make(Vec::new()).unwrap_err().to_string();
        assert!(error.contains("try again"), "{error}");
        for _ in 0..taken {
            go.send(()).unwrap();
        }
        drop(go);
        drop(maker);
    }
}

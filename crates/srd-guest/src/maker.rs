//! Namespaces are made and removed on a thread of their own: programs run for that, and the kernel
//! waits for its readers, for tens of milliseconds in which the loop moves packets.
//!
//! Bound: one change at a time has namespaces made; removals are no more than instances.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

use crate::orders::{Command, Orders};
use crate::place::{Place, Wanted, make_all};
use crate::undo::Undo;

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
                        // The card waits for an answer before it takes another change.
                        let make = AssertUnwindSafe(|| make_all(&wanted, &undo));
                        let made = catch_unwind(make).unwrap_or_else(|_| {
                            Err(anyhow::anyhow!("namespaces could not be made: see the log"))
                        });
                        orders.give(Command::Made(made));
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

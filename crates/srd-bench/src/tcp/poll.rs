//! Waiting for many sockets at once.

use anyhow::{Context, Result};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use std::time::Duration;

/// Bytes given to, or taken from, the kernel at a time.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 256;
/// Longest sleep of a worker, so that it notices the end.
const NAP: Duration = Duration::from_millis(20);

/// Sockets by number, edge-triggered: an event per change, so a reader must read to the end.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poll {
    /// Watches sockets; each is identified by its index in the list.
    pub(crate) fn watch<'a>(
        sockets: impl Iterator<Item = &'a OwnedFd>,
        flags: EventFlags,
    ) -> Result<Poll> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).context("epoll")?;
        for (number, socket) in (0u64..).zip(sockets) {
            epoll::add(&epoll, socket, EventData::new_u64(number), flags | EventFlags::ET)
                .context("epoll")?;
        }
        Ok(Poll { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Returns the sockets that have new events; returns none after a short while.
    pub(crate) fn wait(&mut self) -> Result<impl Iterator<Item = usize> + use<'_>> {
        self.wait_at_most(NAP)
    }

    /// Returns the sockets that have new events; returns none after `at_most`.
    pub(crate) fn wait_at_most(
        &mut self,
        at_most: Duration,
    ) -> Result<impl Iterator<Item = usize> + use<'_>> {
        let nap = Timespec::try_from(at_most).context("a short nap")?;
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&nap))
        {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("epoll"),
        }
        Ok(self.events.iter().map(|event| {
            let data = event.data;
            usize::try_from(data.u64()).expect("an index of the sockets")
        }))
    }
}

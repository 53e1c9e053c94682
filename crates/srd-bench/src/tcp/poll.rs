//! Waiting for events of many sockets at the same time, with epoll.

use anyhow::{Context, Result};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use std::time::Duration;

/// Number of bytes in one call that sends or receives.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Largest number of events that one call of epoll returns.
const EVENTS_MAX: usize = 256;
/// Longest time of one wait, so that a worker notices the end of a measurement.
const NAP: Duration = Duration::from_millis(20);

/// A set of watched sockets, which are identified by numbers. It is edge-triggered (one event per
/// change), so a reader must read until no bytes are available.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poll {
    /// Watches the given events of sockets; each socket is identified by its index in the iterator.
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

    /// Waits for events; returns the indices of the sockets that have new events, or none after 20
    /// ms.
    pub(crate) fn wait(&mut self) -> Result<impl Iterator<Item = usize> + use<'_>> {
        self.wait_at_most(NAP)
    }

    /// Waits for events; returns the indices of the sockets that have new events, or none after
    /// `at_most`.
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

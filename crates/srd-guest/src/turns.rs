//! Whose packets are read next: instances share the time of the loop, as `srd_card::tenants` says,
//! and everything that comes from outside of this host is one more tenant. A device is read only
//! when it has frames.
//!
//! Bounds: [`INSTANCES_MAX`] instances; a turn has at most 32 frames, and [`TURNS_TIME`] of turns
//! come before all else that the loop does.

use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, bail};
use rustix::event::{Timespec, epoll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use srd_card::tenants::{self, TENANTS_MAX, TenantId, Tenants, Turn};
use srd_card::vpc::PortId;
use srd_proto::time::{Duration, Instant};

use crate::port::Port;

/// Instances of a card.
const INSTANCES_MAX: usize = TENANTS_MAX - 1;
/// What comes from outside of this host.
pub(crate) const OUTSIDE: TenantId = TenantId(u32::MAX);
/// After so long the loop looks at requests and timers.
pub(crate) const TURNS_TIME: Duration = Duration::from_micros(200);
/// Packets that waited for their instance's share count as over its limit when the loop has had
/// work without a pause for so long: before, they waited for a few others, as in any queue. // N4
const OVERLOADED: Duration = Duration::from_millis(10);
/// Devices that are told at once to have frames.
const EVENTS: usize = 256;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Lets this process have as many descriptors as it may: each queue of each device is one.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The instances that wait for their turn, and their devices.
pub(crate) struct Turns {
    tenants: Tenants,
    epoll: OwnedFd,
    owners: BTreeMap<PortId, TenantId>,
    /// Devices with frames, those of an instance in turns.
    ready: BTreeMap<TenantId, VecDeque<PortId>>,
    /// Since when there was always work.
    busy_since: Option<Instant>,
    instances: usize,
}

impl Turns {
    pub(crate) fn new() -> Result<Self> {
        let mut tenants = Tenants::new(tenants::Settings::default());
        tenants.add(OUTSIDE, 1);
        Ok(Self {
            tenants,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?,
            owners: BTreeMap::new(),
            ready: BTreeMap::new(),
            busy_since: None,
            instances: 0,
        })
    }

    /// Adds an instance with a share. What comes from outside has as much as an instance of each.
    pub(crate) fn add(&mut self, tenant: TenantId, weight: u32) -> Result<()> {
        if self.instances >= INSTANCES_MAX || !self.tenants.add(tenant, weight) {
            bail!("a card has at most {INSTANCES_MAX} instances: start another card for more");
        }
        self.instances += 1;
        self.share_outside();
        Ok(())
    }

    fn share_outside(&mut self) {
        self.tenants.add(OUTSIDE, u32::try_from(self.instances).unwrap_or(u32::MAX));
    }

    pub(crate) fn remove(&mut self, tenant: TenantId) {
        self.tenants.remove(tenant);
        self.ready.remove(&tenant);
        self.owners.retain(|_, owner| *owner != tenant);
        self.instances = self.instances.saturating_sub(1);
        self.share_outside();
    }

    /// Watches the device of an interface; again after it has got more queues. A device that is
    /// closed is not watched any more.
    pub(crate) fn watch(&mut self, port: PortId, tenant: TenantId, device: &Port) -> Result<()> {
        self.owners.insert(port, tenant);
        // The descriptors of a socket come and go: it is asked each time.
        for fd in device.kernel().iter().flat_map(|kernel| kernel.descriptors()) {
            let data = epoll::EventData::new_u64(port.0.into());
            match epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error).context("waiting for a device"),
            }
        }
        Ok(())
    }

    /// To wait on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether no device is known to have frames.
    pub(crate) fn is_idle(&self) -> bool {
        self.tenants.is_idle()
    }

    /// Looks which devices have frames. `sockets`: those that are asked themselves.
    pub(crate) fn look(&mut self, sockets: &[PortId]) {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let waited = epoll::wait(&self.epoll, &mut events[..], Some(&NO_TIME));
        let events = waited.map_or(&[][..], |(events, _)| events);
        let ports = events.iter().map(|event| event.data.u64());
        let ports = ports.filter_map(|port| u32::try_from(port).ok()).map(PortId);
        for port in ports.chain(sockets.iter().copied()) {
            let Some(tenant) = self.owners.get(&port) else { continue };
            let ready = self.ready.entry(*tenant).or_default();
            if !ready.contains(&port) {
                ready.push_back(port);
            }
            self.tenants.wake(*tenant);
        }
    }

    /// Something may have come from outside.
    pub(crate) fn wake_outside(&mut self) {
        self.tenants.wake(OUTSIDE);
    }

    /// The next turn.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Turn> {
        let turn = self.tenants.next();
        if turn.is_some() {
            self.busy_since.get_or_insert(now);
        }
        turn
    }

    /// Before waiting.
    pub(crate) fn rest(&mut self) {
        self.busy_since = None;
    }

    /// Whether frames of a turn count as over the share of their instance.
    pub(crate) fn is_over(&self, now: Instant, turn: &Turn) -> bool {
        turn.waited && self.busy_since.is_some_and(|since| now.since(since) >= OVERLOADED)
    }

    pub(crate) fn end(&mut self, turn: Turn, frames: u32, spent: Duration) {
        self.tenants.end(turn, frames, spent);
    }

    /// A device of an instance with frames.
    pub(crate) fn ready(&self, tenant: TenantId) -> Option<PortId> {
        self.ready.get(&tenant)?.front().copied()
    }

    /// What an instance's first device has had its turn, with frames left or without.
    pub(crate) fn turned(&mut self, tenant: TenantId, has_more: bool) {
        let Some(ready) = self.ready.get_mut(&tenant) else { return };
        if let Some(port) = ready.pop_front().filter(|_| has_more) {
            ready.push_back(port);
        }
    }
}

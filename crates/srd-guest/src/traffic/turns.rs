//! The order in which the loop reads packets. In one turn it reads packets of one tenant, which is
//! an instance or all traffic from outside of this host. Tenants share the time of the loop by the
//! rules of `srd_card::tenants`. A device is read only when it has frames.
//!
//! Bounds: [`INSTANCES_MAX`] instances. A turn of an instance has at most 32 frames; a turn of the
//! traffic from outside may have a portion of [`Received`](crate::traffic::received::Received).
//! Turns take at most [`TURNS_TIME`] before the other work of the loop, unless one turn takes more.

use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, bail};
use rustix::event::{Timespec, epoll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use srd_card::tenants::{self, TENANTS_MAX, TenantId, Tenants, Turn};
use srd_card::vpc::PortId;
use srd_net::Tun;
use srd_proto::time::Duration;

use crate::interfaces::kernel::Kernel;
use crate::interfaces::port::Port;

/// Maximum number of instances of a card.
pub(crate) const INSTANCES_MAX: usize = TENANTS_MAX - 1;
/// The tenant that represents all traffic from outside of this host.
pub(crate) const OUTSIDE: TenantId = TenantId(u32::MAX);
/// Time for which the loop reads packets in successive turns before it handles requests and timers.
pub(crate) const TURNS_TIME: Duration = Duration::from_micros(200);
/// Time for which the loop reads packets without a pause until packets that wait for their
/// instance's share count as over the instance's limit. Before that time they wait for a few other
/// packets, as in any queue. Time in which the loop had no processor does not count, because the
/// packets of that time are soon read. // N4
const OVERLOADED: Duration = Duration::from_millis(10);
/// Longest time that counts for one turn. In a longer turn, another program had the processor.
const TURN_TIME_MAX: Duration = Duration::from_millis(1);
/// Maximum number of devices with frames in one report of the kernel.
const EVENTS: usize = 256;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Raises this process's limit of descriptors to its maximum: each queue of each device needs a
/// descriptor.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The schedule by which the loop reads packets: tenants that wait for their turn, and their
/// devices.
pub(crate) struct Turns {
    tenants: Tenants,
    epoll: OwnedFd,
    owners: BTreeMap<PortId, TenantId>,
    /// Number of TUN devices that were ever watched.
    kernels: u64,
    /// Devices with frames, by tenant. The devices of an instance are read in turn.
    ready: BTreeMap<TenantId, VecDeque<PortId>>,
    /// Time that turns have taken since the loop last paused.
    busy: Duration,
    /// The weights of the instances, which determine their shares of the time.
    weights: BTreeMap<TenantId, u32>,
}

impl Turns {
    pub(crate) fn new() -> Result<Self> {
        let mut tenants = Tenants::new(tenants::Settings::default());
        tenants.add(OUTSIDE, 1);
        Ok(Self {
            tenants,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?,
            owners: BTreeMap::new(),
            kernels: 0,
            ready: BTreeMap::new(),
            busy: Duration::ZERO,
            weights: BTreeMap::new(),
        })
    }

    /// Adds an instance with a weight. Traffic from outside has the weight of all instances
    /// together.
    pub(crate) fn add(&mut self, tenant: TenantId, weight: u32) -> Result<()> {
        if self.weights.len() >= INSTANCES_MAX || !self.tenants.add(tenant, weight) {
            bail!("a card has at most {INSTANCES_MAX} instances: start another card for more");
        }
        self.weights.insert(tenant, weight);
        self.share_outside();
        Ok(())
    }

    fn share_outside(&mut self) {
        let weights = self.weights.values().copied();
        self.tenants.add(OUTSIDE, weights.fold(0, u32::saturating_add));
    }

    pub(crate) fn remove(&mut self, tenant: TenantId) {
        self.tenants.remove(tenant);
        self.ready.remove(&tenant);
        self.owners.retain(|_, owner| *owner != tenant);
        self.weights.remove(&tenant);
        self.share_outside();
    }

    /// Watches the device of an interface for frames. The watch ends when the device is closed.
    pub(crate) fn watch(&mut self, port: PortId, tenant: TenantId, device: &Port) -> Result<()> {
        self.owners.insert(port, tenant);
        self.kernels += u64::from(device.kernel().is_some());
        // The descriptors of a socket change, so the socket is polled each time.
        let mut all = device.kernel().into_iter().flat_map(Kernel::descriptors);
        all.try_for_each(|fd| self.wait_for(port, fd))
    }

    /// Watches more queues of a watched device.
    pub(crate) fn watch_more(&self, port: PortId, queues: &[Tun]) -> Result<()> {
        queues.iter().try_for_each(|queue| self.wait_for(port, queue.fd().as_fd()))
    }

    fn wait_for(&self, port: PortId, fd: BorrowedFd<'_>) -> Result<()> {
        let data = epoll::EventData::new_u64(port.0.into());
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN).context("waiting for a device")
    }

    /// Returns the descriptor that is readable when a watched device has frames.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether no device is known to have frames.
    pub(crate) fn is_idle(&self) -> bool {
        self.tenants.is_idle()
    }

    /// Finds the devices with frames. `sockets`: devices that are polled directly.
    pub(crate) fn look(&mut self, sockets: &[PortId]) {
        self.wake_all(sockets.iter().copied());
        if self.kernels == 0 {
            return;
        }
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let waited = epoll::wait(&self.epoll, &mut events[..], Some(&NO_TIME));
        let events = waited.map_or(&[][..], |(events, _)| events);
        let ports = events.iter().map(|event| event.data.u64());
        let ports = ports.filter_map(|port| u32::try_from(port).ok()).map(PortId);
        self.wake_all(ports);
    }

    fn wake_all(&mut self, ports: impl Iterator<Item = PortId>) {
        for port in ports {
            let Some(tenant) = self.owners.get(&port) else { continue };
            let ready = self.ready.entry(*tenant).or_default();
            if !ready.contains(&port) {
                ready.push_back(port);
            }
            self.tenants.wake(*tenant);
        }
    }

    /// Records that packets from outside of this host may have arrived.
    pub(crate) fn wake_outside(&mut self) {
        self.tenants.wake(OUTSIDE);
    }

    /// Returns the next turn; `None` if no tenant has frames.
    pub(crate) fn next(&mut self) -> Option<Turn> {
        self.tenants.next()
    }

    /// Records a pause of the loop. The loop calls this before it waits.
    pub(crate) fn rest(&mut self) {
        self.busy = Duration::ZERO;
    }

    /// Whether frames of a turn count as over the share of their instance, because they have waited
    /// while the loop was overloaded.
    pub(crate) fn is_over(&self, turn: &Turn) -> bool {
        turn.waited && self.busy >= OVERLOADED
    }

    /// Ends a turn in which `frames` frames were read in the time `spent`. `is_dry`: the tenant has
    /// no more frames.
    pub(crate) fn end(&mut self, turn: Turn, frames: u32, is_dry: bool, spent: Duration) {
        // A tenant with fewer frames than permitted has no more work.
        let turn = Turn { frames: turn.frames.max(frames) + u32::from(is_dry), ..turn };
        let spent = spent.min(TURN_TIME_MAX);
        self.busy = self.busy + spent;
        self.tenants.end(turn, frames, spent);
    }

    /// Returns the next device of an instance that has frames, if there is one.
    pub(crate) fn ready(&self, tenant: TenantId) -> Option<PortId> {
        self.ready.get(&tenant)?.front().copied()
    }

    /// Ends the read of an instance's first device. A device that has more frames is read again
    /// after the instance's other devices.
    pub(crate) fn turned(&mut self, tenant: TenantId, has_more: bool) {
        let Some(ready) = self.ready.get_mut(&tenant) else { return };
        if let Some(port) = ready.pop_front().filter(|_| has_more) {
            ready.push_back(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_of_a_card_are_bounded() {
        let mut turns = Turns::new().unwrap();
        for number in 0..INSTANCES_MAX {
            turns.add(TenantId(u32::try_from(number).unwrap()), 2).unwrap();
        }
        let error = turns.add(TenantId(9999), 2).unwrap_err().to_string();
        assert!(error.contains("at most 4095 instances"), "{error}");
        turns.remove(TenantId(7));
        turns.add(TenantId(9999), 2).unwrap();
    }

    /// Two tenants always have frames, so that the frames of a tenant's second turn have waited for
    /// the other tenant.
    #[test]
    fn packets_count_as_over_a_share_only_while_the_loop_has_had_no_pause_for_long() {
        let mut turns = Turns::new().unwrap();
        for tenant in [1, 2] {
            turns.add(TenantId(tenant), 1).unwrap();
            turns.tenants.wake(TenantId(tenant));
        }
        let mut over = Vec::new();
        for _ in 0..1200 {
            let turn = turns.next().unwrap();
            over.push(turns.is_over(&turn));
            turns.end(turn, turn.frames, false, Duration::from_micros(10));
        }
        assert_eq!(over.iter().position(|is| *is), Some(1000), "after 10 ms");
        assert!(over[1000..].iter().all(|is| *is));
        // After a pause the time starts at zero again.
        turns.rest();
        let turn = turns.next().unwrap();
        assert!(!turns.is_over(&turn));
    }

    /// The loop had no processor for a while, and then reads the packets of two instances that
    /// arrived meanwhile.
    #[test]
    fn regression_time_without_a_processor_is_no_overload() {
        for pause in [5, 20, 50] {
            let mut turns = Turns::new().unwrap();
            for tenant in [1, 2] {
                turns.add(TenantId(tenant), 1).unwrap();
                turns.tenants.wake(TenantId(tenant));
            }
            for number in 0..50 {
                let turn = turns.next().unwrap();
                assert!(!turns.is_over(&turn), "turn {number} after {pause} ms");
                let spent = match number {
                    3 => Duration::from_millis(pause),
                    _ => Duration::from_micros(20),
                };
                turns.end(turn, turn.frames, false, spent);
            }
        }
    }

    /// Traffic from outside has as much time as all instances together.
    #[test]
    fn what_comes_from_outside_has_its_turns() {
        let mut turns = Turns::new().unwrap();
        for tenant in 0..3 {
            turns.add(TenantId(tenant), 1).unwrap();
            turns.tenants.wake(TenantId(tenant));
        }
        turns.wake_outside();
        let mut outside = 0;
        for _ in 0..600 {
            let turn = turns.next().unwrap();
            outside += u32::from(turn.tenant == OUTSIDE);
            turns.end(turn, turn.frames, false, Duration::from_micros(10));
        }
        assert!((290..=310).contains(&outside), "{outside} of 600");
    }
}

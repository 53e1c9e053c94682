//! A thread that carries packets from one TUN device to another, through a [`Wire`].

use super::wire::{Carried, Wire};
use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Largest number of packets that are read before due packets are written. It limits the time that
/// a due packet waits.
const READ_AT_ONCE_MAX: usize = 16;

/// One direction of a running wire. Dropping it stops the wire without a result.
#[derive(Debug)]
pub(super) struct Carrier {
    thread: Option<JoinHandle<Result<Carried>>>,
    /// Descriptor whose closing ends the thread.
    stop: Option<OwnedFd>,
}

impl Carrier {
    /// Starts the thread. `mtu` is the MTU of both devices, and so the largest packet.
    pub(super) fn start(from: OwnedFd, to: OwnedFd, wire: Wire, mtu: u32) -> Result<Carrier> {
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let packet_bytes_max = usize::try_from(mtu)?;
        let carrier = CarrierThread { from, to, stopped, packet_bytes_max };
        let thread = thread::Builder::new()
            .name("wire".into())
            .spawn(move || carrier.carry(wire))
            .context("cannot start a thread")?;
        Ok(Carrier { thread: Some(thread), stop: Some(stop) })
    }

    /// Ends the wire and returns its counters.
    pub(super) fn stop(mut self) -> Result<Carried> {
        self.stop = None;
        let thread = self.thread.take().context("it was stopped")?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the thread that carries packets in one direction.
struct CarrierThread {
    from: OwnedFd,
    to: OwnedFd,
    stopped: OwnedFd,
    packet_bytes_max: usize,
}

impl CarrierThread {
    fn carry(self, mut wire: Wire) -> Result<Carried> {
        // Without this setting the kernel prolongs waits by up to 50 us, which is as long as the
        // delay of the shortest paths.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).context("timer slack")?;
        let epoch = Instant::now();
        let now_ns = || u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        loop {
            let more = self.read(&mut wire, now_ns()).context("read from a TUN device")?;
            while let Some(packet) = wire.take_due(now_ns()) {
                if rustix::io::write(&self.to, &packet).is_err() {
                    wire.refused();
                }
            }
            let wait_ns = match wire.next_due_ns() {
                _ if more => Some(0),
                due => due.map(|due_ns| due_ns.saturating_sub(now_ns())),
            };
            if self.wait(wait_ns)? {
                return Ok(wire.carried());
            }
        }
    }

    /// Reads the packets that have arrived. Returns whether there may be more.
    fn read(&self, wire: &mut Wire, now_ns: u64) -> Result<bool> {
        for _ in 0..READ_AT_ONCE_MAX {
            let mut packet = Vec::with_capacity(self.packet_bytes_max);
            match rustix::io::read(&self.from, spare_capacity(&mut packet)) {
                Ok(_) => wire.accept(now_ns, packet),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Waits for a packet, at most for `ns` nanoseconds; `None` means without limit. Returns
    /// whether the thread has to stop.
    fn wait(&self, ns: Option<u64>) -> Result<bool> {
        let timeout = ns.map(|ns| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
        });
        let mut ready = [
            PollFd::new(&self.from, PollFlags::IN),
            // This descriptor is never readable: the entry only detects that the other end was
            // closed.
            PollFd::new(&self.stopped, PollFlags::empty()),
        ];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) => Ok(!ready[1].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error).context("wait for packets"),
        }
    }
}

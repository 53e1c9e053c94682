//! The device of an interface in a namespace: a TUN device with a queue for each queue pair of its
//! adapter.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use srd_card::join::Joins;
use srd_net::Tun;
use srd_proto::time::Instant;

use crate::interfaces::adapter::{Adapter, Arrived};
use crate::interfaces::processors::{Outlet, Processors};

/// Maximum number of frames that are read from one queue in succession.
const IN_A_ROW: u32 = 16;

/// A TUN device and its adapter.
#[derive(Debug)]
pub(crate) struct Kernel {
    queues: Vec<Tun>,
    fds: Vec<Arc<OwnedFd>>,
    pub(crate) adapter: Adapter,
    /// Packets for the instance that may be joined with the next packets.
    joins: Joins,
    /// Index of the queue that is read, and the number of frames that were read from it in
    /// succession.
    at: (usize, u32),
    /// Packets that the kernel refused, without those of present outlets.
    not_taken: u64,
    processing: Option<Processing>,
}

/// The processors that write to the queues of a device.
#[derive(Debug)]
struct Processing {
    processors: Arc<Processors>,
    /// Number of the device among those of the processors.
    device: u64,
    /// The way to each queue.
    outlets: Vec<Outlet>,
}

impl Kernel {
    pub(crate) fn new(queues: Vec<Tun>, adapter: Adapter) -> Self {
        let fds = queues.iter().map(Tun::fd).collect();
        Self {
            queues,
            fds,
            adapter,
            joins: Joins::default(),
            at: (0, 0),
            not_taken: 0,
            processing: None,
        }
    }

    /// Lets processors write to the queues from now on. A second call has no effect.
    pub(crate) fn deliver_by(&mut self, processors: &Arc<Processors>) {
        if self.processing.is_some() {
            return;
        }
        let (processors, device) = (Arc::clone(processors), processors.number());
        self.processing = Some(Processing { processors, device, outlets: Vec::new() });
        self.set_outlets();
    }

    /// Creates the outlets of all queues. Packets that wait in former outlets are written before.
    fn set_outlets(&mut self) {
        let Some(of) = &mut self.processing else { return };
        of.outlets.iter().for_each(Outlet::settle);
        self.not_taken += of.outlets.iter().map(Outlet::not_taken).sum::<u64>();
        let all = self.queues.iter().enumerate();
        let outlet =
            |(queue, tun): (usize, &Tun)| of.processors.outlet(of.device, queue, tun.writer());
        of.outlets = all.map(outlet).collect();
    }

    pub(crate) fn queues(&self) -> &[Tun] {
        &self.queues
    }

    /// Returns the current name of the device, which the instance may change.
    pub(crate) fn name(&self) -> io::Result<String> {
        self.queues.first().map_or(Err(io::ErrorKind::NotFound.into()), Tun::name)
    }

    pub(crate) fn into_queues(self) -> Vec<Tun> {
        self.queues
    }

    /// Adds queues, and keeps the first `count` queues. Returns the remaining queues, which the
    /// caller closes, because the kernel needs time for that.
    pub(crate) fn set_queues(&mut self, more: Vec<Tun>, count: usize) -> Vec<Tun> {
        self.queues.extend(more);
        let rest = self.queues.split_off(count.min(self.queues.len()));
        self.fds = self.queues.iter().map(Tun::fd).collect();
        self.at = (0, 0);
        self.set_outlets();
        rest
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.fds.iter().map(|fd| fd.as_fd())
    }

    /// Returns the next frame that the instance sends: queues take turns of [`IN_A_ROW`] frames.
    pub(crate) fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        for _ in 0..=self.queues.len() {
            let (queue, frames) = self.at;
            let next = ((queue + 1) % self.queues.len().max(1), 0);
            if frames == IN_A_ROW {
                self.at = next;
                continue;
            }
            let Some(tun) = self.queues.get_mut(queue) else { break };
            if let Some(frame) = tun.read()? {
                self.at = (queue, frames + 1);
                self.adapter.sent(u16::try_from(queue).unwrap_or(u16::MAX), &frame);
                return Ok(Some(frame));
            }
            self.at = next;
        }
        Ok(None)
    }

    /// Whether the instance has sent another frame.
    pub(crate) fn has_frames(&self) -> bool {
        let fds = self.descriptors();
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&none)).is_ok_and(|ready| ready > 0)
    }

    /// Gives a packet to the instance, or keeps it until [`Kernel::finish`] or its interrupt.
    pub(crate) fn write(&mut self, now: Instant, frame: Vec<u8>) {
        // D11: Joined TCP segments
        let mut joins = std::mem::take(&mut self.joins);
        joins.push(frame, |frame| self.arrive(now, frame));
        self.joins = joins;
    }

    /// Whether there are packets that may be joined with the next packets.
    pub(crate) fn is_joining(&self) -> bool {
        !self.joins.is_empty()
    }

    /// Gives the instance all packets that wait to be joined with later packets.
    pub(crate) fn finish(&mut self, now: Instant) {
        let mut joins = std::mem::take(&mut self.joins);
        joins.finish(|frame| self.arrive(now, frame));
        self.joins = joins;
    }

    fn arrive(&mut self, now: Instant, frame: Vec<u8>) {
        if let Arrived::Now(queue, frame) = self.adapter.arrive(now, frame) {
            self.give(queue, frame);
        }
    }

    /// Gives the instance the packets whose interrupt is due.
    pub(crate) fn interrupt(&mut self, now: Instant) {
        for (queue, frame) in self.adapter.due(now) {
            self.give(queue, frame);
        }
    }

    /// Gives the instance all packets that wait for a delayed interrupt or for a processor, and
    /// returns when they are written.
    pub(crate) fn interrupt_all(&mut self) {
        for (queue, frame) in self.adapter.take_all() {
            self.give(queue, frame);
        }
        if let Some(of) = &self.processing {
            of.outlets.iter().for_each(Outlet::settle);
        }
    }

    pub(crate) fn give(&mut self, queue: u16, frame: Vec<u8>) {
        let at = if usize::from(queue) < self.queues.len() { usize::from(queue) } else { 0 };
        if let Some(outlet) = self.processing.as_ref().and_then(|of| of.outlets.get(at)) {
            // D12: Processors
            let places = self.adapter.settings.rx_ring_size().entries() as usize;
            if let Err(frame) = outlet.push(frame, places) {
                self.adapter.overrun(queue, Adapter::size(&frame));
            }
        } else if self.queues.get(at).is_none_or(|tun| tun.write(&frame).is_err()) {
            self.not_taken += 1;
        }
    }

    /// Returns the number of packets that the kernel refused.
    pub(crate) fn not_taken(&self) -> u64 {
        let outlets = self.processing.iter().flat_map(|of| &of.outlets);
        self.not_taken + outlets.map(Outlet::not_taken).sum::<u64>()
    }
}

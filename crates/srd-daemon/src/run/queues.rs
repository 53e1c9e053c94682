//! The queues of the TUN interface that one worker serves.
//!
//! The kernel drops a packet if the queue for it is full. If all flows shared one queue, a program
//! with more processor time than the worker could fill it, and packets of other flows would be
//! dropped. Therefore a worker has several queues and reads one frame from each in turn.
//!
//! The kernel remembers the queue to which packets of a flow were last written, and puts packets of
//! the opposite direction into that queue. If no packet of the flow was written for three seconds,
//! a hash in the kernel selects the queue. Therefore the worker writes all frames of a flow to one
//! queue, which a hash of the flow selects.
//!
//! Bounds: [`QUEUES`] queues, each as long as the interface's `txqueuelen`. When a frame enters an
//! empty queue, the worker reads it after at most [`READS_PER_LOOK`] frames and one more of each
//! other queue.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::packet::Packet;
use srd_net::Tun;

use super::worker::Port;

/// Number of queues of each worker. Two flows share a queue with a probability of 1/`QUEUES`.
pub(super) const QUEUES: u8 = 16;
/// Number of frames that are read between two system calls that look for queues with frames.
const READS_PER_LOOK: u32 = 16;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The queues of one worker.
#[derive(Debug)]
pub(crate) struct Queues {
    queues: Vec<Tun>,
    /// Epoll descriptor that is readable if a queue has frames.
    epoll: Arc<OwnedFd>,
    /// Bit `n` is set if queue `n` may have frames.
    ready: u32,
    /// The number of the queue that is read next.
    turn: u32,
    /// Number of frames that may be read before the next system call that looks for queues with
    /// frames.
    reads_left: u32,
    keys: RandomState,
}

impl Queues {
    /// Combines the queues of one worker: at most [`QUEUES`], and none if there is no interface.
    ///
    /// # Errors
    /// An error of the operating system, for example if there is no free descriptor.
    pub(super) fn new(queues: Vec<Tun>) -> io::Result<Self> {
        assert!(queues.len() <= usize::from(QUEUES), "a worker has {QUEUES} queues");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, queue) in (0..).zip(&queues) {
            let data = epoll::EventData::new_u64(number);
            epoll::add(&epoll, queue.fd(), data, epoll::EventFlags::IN)?;
        }
        let (ready, turn, reads_left) = (0, 0, 0);
        let epoll = Arc::new(epoll);
        Ok(Self { queues, epoll, ready, turn, reads_left, keys: RandomState::new() })
    }

    /// Returns the descriptor that is readable if a queue has frames.
    pub(super) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.epoll)
    }

    /// Requests the numbers of the queues with frames from the kernel.
    fn look(&mut self) -> io::Result<()> {
        // A node with instances only has no interface.
        if self.queues.is_empty() {
            return Ok(());
        }
        let mut events = [const { MaybeUninit::uninit() }; QUEUES as usize];
        match epoll::wait(&self.epoll, &mut events[..], Some(&NO_TIME)) {
            Ok((ready, _)) => ready.iter().for_each(|event| self.ready |= 1 << event.data.u64()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.reads_left = READS_PER_LOOK;
        Ok(())
    }

    /// Returns the number of the next queue with frames: the first queue from `turn` on, or
    /// otherwise the first of all queues.
    fn next(&self) -> u32 {
        let later = self.ready & (u32::MAX << self.turn);
        (if later == 0 { self.ready } else { later }).trailing_zeros()
    }

    /// Returns the index of the queue to which a frame is written. All frames of a flow have the
    /// same queue.
    fn of(&self, frame: &[u8]) -> usize {
        let packet = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
        let flow = packet.map(|p| (p.source, p.destination, p.protocol, p.ports));
        let queues = self.queues.len().max(1) as u64;
        usize::try_from(self.keys.hash_one(flow) % queues).unwrap_or(0)
    }
}

impl Port for Queues {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.reads_left == 0 {
            self.look()?;
        }
        while self.ready != 0 {
            let queue = self.next();
            self.turn = (queue + 1) % u32::from(QUEUES);
            if let Some(frame) = self.queues[queue as usize].read()? {
                self.reads_left -= 1;
                return Ok(Some(frame));
            }
            self.ready &= !(1 << queue);
        }
        // A frame that arrives from now on makes the descriptor readable, which ends the next wait.
        self.reads_left = 0;
        Ok(None)
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        match self.queues.get(self.of(frame)) {
            Some(queue) => queue.write(frame),
            // A node with instances only has no interface.
            None => Err(io::Error::from(Errno::NODEV)),
        }
    }

    fn queues(&self) -> &[Tun] {
        &self.queues
    }
}

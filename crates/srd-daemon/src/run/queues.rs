//! The queues of the interface that one worker serves.
//!
//! The kernel drops a packet if the queue for it is full. If all flows shared one queue, a program
//! that gets more processor time than the worker would fill it, and packets of other flows would be
//! dropped. So a worker has several queues and reads one frame of each in turn.
//!
//! The kernel puts a packet into the queue to which packets of the opposite direction of its flow
//! were last written. If no such packet was written for three seconds, a hash in the kernel selects
//! the queue. So a frame is written to the queue that a hash of its flow selects.
//!
//! Bounds: [`QUEUES`] queues, each as long as the interface's `txqueuelen`. A frame in a queue that
//! was empty is read after at most [`READS_PER_LOOK`] frames and one of each other queue.

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

/// Queues of a worker. Two flows share one with a probability of 1/`QUEUES`.
pub(super) const QUEUES: u8 = 16;
/// Frames read between two calls that return the queues with frames.
const READS_PER_LOOK: u32 = 16;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The queues of one worker.
#[derive(Debug)]
pub(super) struct Queues {
    queues: Vec<Tun>,
    /// Readable if one of the queues is.
    epoll: Arc<OwnedFd>,
    /// One bit for each queue: whether it may have frames.
    ready: u32,
    /// The number of the queue that is read next.
    turn: u32,
    /// Frames that may be read before the next call of the kernel.
    reads_left: u32,
    keys: RandomState,
}

impl Queues {
    /// The queues of one worker, at most [`QUEUES`].
    ///
    /// # Errors
    /// An error of the operating system: there is no descriptor left.
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

    /// Descriptor to wait on.
    pub(super) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.epoll)
    }

    /// Gets the queues with frames from the kernel.
    fn look(&mut self) -> io::Result<()> {
        let mut events = [const { MaybeUninit::uninit() }; QUEUES as usize];
        match epoll::wait(&self.epoll, &mut events[..], Some(&NO_TIME)) {
            Ok((ready, _)) => ready.iter().for_each(|event| self.ready |= 1 << event.data.u64()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.reads_left = READS_PER_LOOK;
        Ok(())
    }

    /// The first queue with frames, starting at `turn`.
    fn next(&self) -> u32 {
        let later = self.ready & (u32::MAX << self.turn);
        (if later == 0 { self.ready } else { later }).trailing_zeros()
    }

    /// Index of the queue that a frame is written to, equal for all frames of a flow.
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
        // A frame that has arrived meanwhile ends the next wait.
        self.reads_left = 0;
        Ok(None)
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.queues[self.of(frame)].write(frame)
    }
}

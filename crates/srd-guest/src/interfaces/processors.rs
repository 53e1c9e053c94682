//! Processors: threads that give packets to instances, beside the thread that moves packets.
//!
//! ```text
//!  packet --> hash of its flow --> queue of the device --> processor of the queue --> instance
//! ```
//!
//! The kernel processes a packet for an instance in the system call that writes it: the packet goes
//! through the instance's whole network stack. These calls take longer than all decisions of the
//! card, and processors make them at the same time. Each queue of a device belongs to one
//! processor, so the packets of a flow stay in order. The queues of a device belong to successive
//! processors, and each device begins with another one.
//!
//! Without processors the thread that moves packets makes these calls itself.
//!
//! Bounds: [`PROCESSORS_MAX`](srd_daemon::config::cloud::PROCESSORS_MAX) processors. As many
//! packets wait for a queue's processor as the receive ring of the device has places; further ones
//! are dropped. A processor writes [`IN_A_ROW`] packets of a queue before those of its other
//! queues.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use srd_net::TunWriter;

/// Largest number of packets of one queue that a processor writes in succession.
const IN_A_ROW: usize = 16;

/// The processors of a card. They end when this is dropped; all [`Outlet`]s are dropped before.
#[derive(Debug)]
pub(crate) struct Processors {
    all: Vec<Arc<Processor>>,
    threads: Vec<JoinHandle<()>>,
    devices: AtomicU64,
}

/// Queues of devices that have packets for a processor.
#[derive(Debug, Default)]
struct Processor {
    work: Mutex<Work>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    ready: VecDeque<Arc<Lane>>,
    is_ending: bool,
}

/// A queue of a device, and the packets that wait for its processor.
#[derive(Debug)]
struct Lane {
    tun: TunWriter,
    processor: Arc<Processor>,
    waiting: Mutex<Backlog>,
    /// Signal that the queue has no packets any more.
    settled: Condvar,
    not_taken: AtomicU64,
}

#[derive(Debug, Default)]
struct Backlog {
    frames: VecDeque<Vec<u8>>,
    /// Whether the queue is in the processor's list `ready`, or the processor is writing packets of
    /// this queue at the moment.
    is_ready: bool,
}

/// The way of packets to one queue of a device. When this is dropped, waiting packets are dropped,
/// and no processor uses the queue any more.
#[derive(Debug)]
pub(crate) struct Outlet(Arc<Lane>);

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Processors {
    /// Starts processors.
    ///
    /// # Errors
    /// An error of the operating system, if a thread cannot be started.
    pub(crate) fn start(count: u8) -> io::Result<Self> {
        let all: Vec<Arc<Processor>> = (0..count).map(|_| Arc::default()).collect();
        let mut started = Self { all, threads: Vec::new(), devices: AtomicU64::new(0) };
        for (number, processor) in started.all.iter().enumerate() {
            let processor = Arc::clone(processor);
            let name = format!("srd-card-{number}");
            let run = move || processor.run();
            started.threads.push(thread::Builder::new().name(name).spawn(run)?);
        }
        Ok(started)
    }

    /// Returns a number for a device, from which the processors of its queues follow.
    pub(crate) fn number(&self) -> u64 {
        self.devices.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the way to a queue of the device with this number.
    pub(crate) fn outlet(&self, device: u64, queue: usize, tun: TunWriter) -> Outlet {
        let place = (device + queue as u64) % self.all.len().max(1) as u64;
        let place = usize::try_from(place).unwrap_or(0);
        Outlet(Arc::new(Lane {
            tun,
            processor: Arc::clone(&self.all[place]),
            waiting: Mutex::default(),
            settled: Condvar::new(),
            not_taken: AtomicU64::new(0),
        }))
    }
}

impl Drop for Processors {
    fn drop(&mut self) {
        for processor in &self.all {
            locked(&processor.work).is_ending = true;
            processor.wake.notify_one();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Processor {
    fn run(&self) {
        while let Some(lane) = self.next() {
            if lane.write_some() {
                locked(&self.work).ready.push_back(lane);
            }
        }
    }

    /// Waits for a queue with packets; `None` at the end.
    fn next(&self) -> Option<Arc<Lane>> {
        let mut work = locked(&self.work);
        loop {
            if let Some(lane) = work.ready.pop_front() {
                return Some(lane);
            }
            if work.is_ending {
                return None;
            }
            work = self.wake.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Lane {
    /// Writes the oldest packets. Returns whether more packets wait.
    fn write_some(&self) -> bool {
        let mut waiting = locked(&self.waiting);
        let count = waiting.frames.len().min(IN_A_ROW);
        let some: Vec<Vec<u8>> = waiting.frames.drain(..count).collect();
        drop(waiting);
        for frame in some {
            if self.tun.write(&frame).is_err() {
                self.not_taken.fetch_add(1, Ordering::Relaxed);
            }
        }
        let mut waiting = locked(&self.waiting);
        waiting.is_ready = !waiting.frames.is_empty();
        if !waiting.is_ready {
            self.settled.notify_all();
        }
        waiting.is_ready
    }
}

impl Outlet {
    /// Gives a packet to the processor of the queue.
    ///
    /// # Errors
    /// Returns the packet if `places` packets wait already.
    pub(crate) fn push(&self, frame: Vec<u8>, places: usize) -> Result<(), Vec<u8>> {
        let Self(lane) = self;
        let mut waiting = locked(&lane.waiting);
        if waiting.frames.len() >= places {
            return Err(frame);
        }
        waiting.frames.push_back(frame);
        if !std::mem::replace(&mut waiting.is_ready, true) {
            drop(waiting);
            locked(&lane.processor.work).ready.push_back(Arc::clone(lane));
            lane.processor.wake.notify_one();
        }
        Ok(())
    }

    /// Waits until all packets are written. The kernel takes or refuses a packet at once, so the
    /// wait is as long as the processor needs for the packets before.
    pub(crate) fn settle(&self) {
        let mut waiting = locked(&self.0.waiting);
        while waiting.is_ready {
            waiting = self.0.settled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the number of packets that the kernel refused.
    pub(crate) fn not_taken(&self) -> u64 {
        self.0.not_taken.load(Ordering::Relaxed)
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        locked(&self.0.waiting).frames.clear();
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Returns a queue whose packets a test reads, and the other end.
    fn queue() -> (TunWriter, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (TunWriter::of(Arc::new(OwnedFd::from(ours))), theirs)
    }

    /// A processor that has no thread, so that packets wait.
    fn stopped() -> Processors {
        Processors { all: vec![Arc::default()], threads: Vec::new(), devices: AtomicU64::new(0) }
    }

    #[test]
    fn packets_of_a_queue_stay_in_order_and_all_queues_are_served() {
        let processors = Processors::start(3).unwrap();
        let device = processors.number();
        let (mut outlets, mut ends) = (Vec::new(), Vec::new());
        for number in 0..5 {
            let (tun, end) = queue();
            outlets.push(processors.outlet(device, number, tun));
            ends.push(end);
        }
        for frame in 0..200_u8 {
            for outlet in &outlets {
                outlet.push(vec![frame], 1000).unwrap();
            }
        }
        outlets.iter().for_each(Outlet::settle);
        for mut end in ends {
            let mut read = [0; 200];
            end.read_exact(&mut read).unwrap();
            assert!(read.iter().copied().eq(0..200), "{read:?}");
        }
        assert!(outlets.iter().all(|outlet| outlet.not_taken() == 0));
    }

    #[test]
    fn queues_belong_to_successive_processors_and_each_device_begins_with_another() {
        let processors = Processors::start(2).unwrap();
        let owner = |device, number| {
            let outlet = processors.outlet(device, number, queue().0);
            processors.all.iter().position(|of| Arc::ptr_eq(of, &outlet.0.processor)).unwrap()
        };
        let (first, second) = (processors.number(), processors.number());
        assert_eq!([0, 1, 2].map(|number| owner(first, number)), [0, 1, 0]);
        assert_eq!([0, 1, 2].map(|number| owner(second, number)), [1, 0, 1]);
    }

    #[test]
    fn as_many_packets_wait_as_the_ring_has_places_and_a_dropped_outlet_writes_none() {
        let processors = stopped();
        let (tun, mut end) = queue();
        let outlet = processors.outlet(0, 0, tun);
        let taken = (0..300).filter(|_| outlet.push(vec![1], 256).is_ok()).count();
        assert_eq!(taken, 256);
        // The processor begins: it drops what waits, because the device is gone.
        let processor = Arc::clone(&processors.all[0]);
        let dropping = thread::spawn(move || drop(outlet));
        while !locked(&processor.work)
            .ready
            .front()
            .is_some_and(|lane| locked(&lane.waiting).frames.is_empty())
        {
            thread::yield_now();
        }
        locked(&processor.work).is_ending = true;
        processor.run();
        dropping.join().unwrap();
        drop(processors);
        let mut rest = Vec::new();
        assert_eq!(end.read_to_end(&mut rest).unwrap(), 0, "the queue is closed");
    }

    #[test]
    fn refused_packets_are_counted() {
        let processors = Processors::start(1).unwrap();
        let (tun, end) = queue();
        drop(end);
        let outlet = processors.outlet(0, 0, tun);
        outlet.push(vec![1], 1).unwrap();
        outlet.settle();
        assert_eq!(outlet.not_taken(), 1);
    }
}

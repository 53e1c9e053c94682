//! Frames between the workers of this host: bounded queues in memory (W4 of `docs/spec/card.md`).
//!
//! ```text
//!   card of worker 0 --to_host--> outgoing --flush--> ring 0 to 1 --take--> card of worker 1
//!   card of worker 1 --to_host--> outgoing --flush--> ring 1 to 0 --take--> card of worker 0
//! ```
//!
//! A worker collects the frames of a turn, and moves them to the ring together. Neither end waits
//! for the other: if the other end uses the ring at the moment, the frames are moved by the next
//! call. A worker that sleeps is woken.
//!
//! Short frames are copied into one piece of memory, and the receiver copies them out again. So a
//! worker frees only memory that it has allocated itself, successive frames arrive at the other
//! processor in successive cache lines, and the workers do not write different frames of one line.
//!
//! Bounds: in a ring wait at most [`FRAMES_MAX`] frames of together [`BYTES_MAX`] bytes, of which
//! each interface holds a share ([`shares`]). As many wait at each end, of which the sender has not
//! moved them, or the receiver has taken them already. Further frames are dropped, and counted by
//! the sender.
//!
//! [`shares`]: crate::traffic::shares
//! [`FRAMES_MAX`]: crate::traffic::shares::FRAMES_MAX
//! [`BYTES_MAX`]: crate::traffic::shares::BYTES_MAX

use std::borrow::Cow;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use srd_card::vpc::Envelope;
use srd_card::vpc::workers::Redirect;
use srd_proto::time::Instant;
use srd_vpc::id::EniId;

use crate::traffic::received::{Received, count_frame};
use crate::traffic::shares::{Owner, Shares};

/// Largest frame that is copied. Together with the number of frames in a ring it bounds the memory
/// for copies, which a ring keeps, to 1 MiB.
const COPIED_BYTES_MAX: usize = 256;

/// Frames that were taken from a ring.
#[derive(Debug, Default)]
pub struct Crossing {
    /// Frames for the card, with the hosts or workers that have sent them.
    pub received: Received,
    /// TCP resets for interfaces, from a NAT gateway that has no state of their connections.
    pub resets: Vec<(EniId, Vec<u8>)>,
}

impl Crossing {
    fn is_empty(&self) -> bool {
        self.received.frames.is_empty() && self.resets.is_empty()
    }
}

/// A frame in a [`Batch`].
#[derive(Debug)]
enum Carried {
    /// The next bytes of [`Batch::copies`]: their number.
    Copied(usize),
    Whole(Vec<u8>),
}

/// Frames on their way from one worker to another.
#[derive(Debug, Default)]
struct Batch {
    /// Frames for the card, with the objects to whose shares they count.
    frames: Vec<(Owner, Envelope, Carried)>,
    /// The hosts or workers that have sent the frames, as in [`Received::hosts`].
    hosts: Vec<(Arc<str>, usize, bool)>,
    resets: Vec<(EniId, Vec<u8>)>,
    /// The bytes of all short frames, in order.
    copies: Vec<u8>,
    /// The shares of the owners of all frames and resets.
    shares: Shares,
}

impl Batch {
    fn len(&self) -> usize {
        self.frames.len() + self.resets.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the frames of `other`, in their order, as far as their owners have space. Returns the
    /// number of frames that were dropped.
    fn take_from(&mut self, other: &mut Self) -> u64 {
        if self.is_empty() {
            std::mem::swap(self, other);
            return 0;
        }
        let mut dropped = 0;
        let Self { frames, hosts, resets, copies, shares } = other;
        let mut frames = frames.drain(..);
        let mut copied = &copies[..];
        for (host, count, by_srd) in hosts.drain(..) {
            for (owner, envelope, carried) in frames.by_ref().take(count) {
                let frame = match carried {
                    Carried::Copied(length) => Cow::Borrowed(next(&mut copied, length)),
                    Carried::Whole(frame) => Cow::Owned(frame),
                };
                dropped += u64::from(!self.push((&host, by_srd), owner, (envelope, frame)));
            }
        }
        drop(frames);
        for (eni, frame) in resets.drain(..) {
            dropped += u64::from(!self.push_reset(eni, frame));
        }
        copies.clear();
        shares.clear();
        dropped
    }

    /// Moves all frames to `to`, behind the frames there, and keeps the memory.
    fn unload(&mut self, to: &mut Crossing) {
        let Self { frames, hosts, resets, copies, shares } = self;
        let mut copied = &copies[..];
        to.received.frames.extend(frames.drain(..).map(|(_, envelope, carried)| {
            let frame = match carried {
                Carried::Copied(length) => next(&mut copied, length).to_vec(),
                Carried::Whole(frame) => frame,
            };
            (envelope, frame)
        }));
        to.received.hosts.append(hosts);
        to.resets.append(resets);
        copies.clear();
        shares.clear();
    }

    /// Adds a frame. Returns false if its owner has no space.
    fn push(
        &mut self,
        (host, by_srd): (&Arc<str>, bool),
        owner: Owner,
        (envelope, frame): (Envelope, Cow<'_, [u8]>),
    ) -> bool {
        if !self.shares.take(owner, frame.len()) {
            return false;
        }
        let carried = if frame.len() <= COPIED_BYTES_MAX {
            self.copies.extend_from_slice(&frame);
            Carried::Copied(frame.len())
        } else {
            Carried::Whole(frame.into_owned())
        };
        self.frames.push((owner, envelope, carried));
        count_frame(&mut self.hosts, host, by_srd);
        true
    }

    fn push_reset(&mut self, eni: EniId, frame: Vec<u8>) -> bool {
        let has_room = self.shares.take(Owner::Interface(eni), frame.len());
        if has_room {
            self.resets.push((eni, frame));
        }
        has_room
    }
}

/// Removes the first `length` bytes of `copied`, and returns them.
fn next<'a>(copied: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (first, rest) = copied.split_at(length);
    *copied = rest;
    first
}

/// The receiving end of a worker: whether it sleeps, and the descriptor that wakes it. It shares no
/// cache line with memory that other workers write, and neither does a [`Ring`].
#[derive(Debug)]
#[repr(align(128))]
struct Sleeper {
    sleeps: AtomicBool,
    wake: Arc<OwnedFd>,
}

/// The queue from one worker to another.
#[derive(Debug)]
#[repr(align(128))]
struct Ring {
    waiting: Mutex<Batch>,
    /// Whether frames wait. The receiver uses the lock only if this is true.
    has_frames: AtomicBool,
    receiver: Arc<Sleeper>,
}

impl Ring {
    /// Moves frames into the ring, as far as there is space. Returns the number of dropped frames;
    /// `None` if the receiver uses the ring at the moment, and nothing was moved.
    fn put(&self, frames: &mut Batch) -> Option<u64> {
        let mut waiting = match self.waiting.try_lock() {
            Ok(waiting) => waiting,
            Err(TryLockError::Poisoned(waiting)) => waiting.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let dropped = waiting.take_from(frames);
        drop(waiting);
        // Either the receiver sees this before it sleeps, or it sleeps already and is woken.
        self.has_frames.store(true, Ordering::SeqCst);
        let sleeps = &self.receiver.sleeps;
        // A worker that is awake is only read, so that its cache line stays where it is.
        if sleeps.load(Ordering::SeqCst) && sleeps.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.receiver.wake, &1_u64.to_ne_bytes());
        }
        Some(dropped)
    }

    /// Exchanges the frames of the ring for `empty`. Returns false if the ring is empty, or the
    /// sender uses it at the moment.
    fn take(&self, empty: &mut Batch) -> bool {
        if !self.has_frames.load(Ordering::SeqCst) {
            return false;
        }
        let mut waiting = match self.waiting.try_lock() {
            Ok(waiting) => waiting,
            Err(TryLockError::Poisoned(waiting)) => waiting.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        std::mem::swap(&mut *waiting, empty);
        self.has_frames.store(false, Ordering::SeqCst);
        !empty.is_empty()
    }
}

/// A ring to another worker, and the frames that were not moved into it yet.
#[derive(Debug)]
struct Outgoing {
    ring: Arc<Ring>,
    frames: Batch,
}

/// The ends of a worker's rings to and from all other workers.
#[derive(Debug)]
pub struct Exchange {
    own: Arc<Sleeper>,
    /// Rings to the workers, by their numbers; `None` for this worker.
    outgoing: Vec<Option<Outgoing>>,
    incoming: Vec<Arc<Ring>>,
    /// Index of the ring that is taken next.
    next: usize,
    /// Frames that were taken from a ring, and not given to the card yet.
    taken: Crossing,
    /// Memory that is exchanged for the frames of a ring; without frames.
    unloaded: Batch,
    /// Memory for the frames of other hosts that stay at this worker ([`Neighbours::redirect`]);
    /// without frames.
    staying: Received,
    /// Number of frames that were dropped because there was no space, since the last call of
    /// [`Exchange::take_dropped`].
    dropped: u64,
}

impl Exchange {
    /// Creates the rings among workers. `wakes`: for each worker, the event descriptor that wakes
    /// it.
    pub fn among(wakes: &[Arc<OwnedFd>]) -> Vec<Self> {
        let sleeper = |wake: &Arc<OwnedFd>| {
            Arc::new(Sleeper { sleeps: AtomicBool::new(false), wake: Arc::clone(wake) })
        };
        let sleepers: Vec<Arc<Sleeper>> = wakes.iter().map(sleeper).collect();
        let mut all: Vec<Self> = sleepers
            .iter()
            .map(|own| Self {
                own: Arc::clone(own),
                outgoing: Vec::new(),
                incoming: Vec::new(),
                next: 0,
                taken: Crossing::default(),
                unloaded: Batch::default(),
                staying: Received::default(),
                dropped: 0,
            })
            .collect();
        for from in 0..all.len() {
            for (to, receiver) in sleepers.iter().enumerate() {
                if from == to {
                    all[from].outgoing.push(None);
                    continue;
                }
                let ring = Arc::new(Ring {
                    waiting: Mutex::default(),
                    has_frames: AtomicBool::new(false),
                    receiver: Arc::clone(receiver),
                });
                all[to].incoming.push(Arc::clone(&ring));
                all[from].outgoing.push(Some(Outgoing { ring, frames: Batch::default() }));
            }
        }
        all
    }

    fn to(&mut self, worker: u8) -> Option<&mut Batch> {
        let outgoing = self.outgoing.get_mut(usize::from(worker))?.as_mut()?;
        Some(&mut outgoing.frames)
    }

    /// Sends a frame to another worker with the next [`Exchange::flush`]. `host`: the worker or the
    /// host that has sent it; `by_srd`: whether it was received over SRD; `owner`: the object to
    /// whose share of the ring it counts.
    pub(crate) fn send(
        &mut self,
        worker: u8,
        (host, by_srd): (&Arc<str>, bool),
        owner: Owner,
        (envelope, frame): (Envelope, Vec<u8>),
    ) {
        let frame = (envelope, Cow::Owned(frame));
        let sent = self.to(worker).is_some_and(|to| to.push((host, by_srd), owner, frame));
        self.dropped += u64::from(!sent);
    }

    /// Sends a TCP reset to the worker of an interface with the next [`Exchange::flush`].
    pub(crate) fn send_reset(&mut self, worker: u8, eni: EniId, frame: Vec<u8>) {
        let sent = self.to(worker).is_some_and(|to| to.push_reset(eni, frame));
        self.dropped += u64::from(!sent);
    }

    /// Moves all frames into the rings.
    pub fn flush(&mut self) {
        for Outgoing { ring, frames } in self.outgoing.iter_mut().flatten() {
            if !frames.is_empty() {
                self.dropped += ring.put(frames).unwrap_or(0);
            }
        }
    }

    /// Returns frames of other workers; `None` if no frame waits. The caller removes the frames
    /// that it uses, and returns the rest ([`Exchange::give_back`]).
    pub fn take(&mut self) -> Option<Crossing> {
        let mut taken = std::mem::take(&mut self.taken);
        if taken.is_empty() {
            let count = self.incoming.len();
            let mut order = (0..count).map(|at| (self.next + at) % count);
            let found = order.find(|at| self.incoming[*at].take(&mut self.unloaded));
            let Some(found) = found else {
                self.taken = taken;
                return None;
            };
            self.unloaded.unload(&mut taken);
            // Each of the other workers has its turn.
            self.next = found + 1;
        }
        Some(taken)
    }

    /// Takes back the memory of [`Exchange::take`], with the frames that are left in it.
    pub fn give_back(&mut self, taken: Crossing) {
        self.taken = taken;
    }

    /// Prepares a sleep: from now on, a frame for this worker wakes it. Returns whether it must not
    /// sleep, because frames wait for it or from it.
    pub(crate) fn rest(&mut self) -> bool {
        self.flush();
        self.own.sleeps.store(true, Ordering::SeqCst);
        let is_left = !self.taken.is_empty()
            || self.outgoing.iter().flatten().any(|to| !to.frames.is_empty());
        let ready = is_left || self.incoming.iter().any(|of| of.has_frames.load(Ordering::SeqCst));
        if ready {
            self.own.sleeps.store(false, Ordering::SeqCst);
        }
        ready
    }

    /// Ends a sleep.
    pub(crate) fn woken(&mut self) {
        self.own.sleeps.store(false, Ordering::SeqCst);
    }

    /// Returns the number of frames that were dropped since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

/// The other workers of this host, as one worker sees them.
#[derive(Debug)]
pub struct Neighbours {
    /// Finds the workers for frames from other hosts.
    pub redirect: Redirect,
    /// The rings to and from the other workers.
    pub exchange: Exchange,
}

impl Neighbours {
    /// Sends a frame to the other worker of this name.
    ///
    /// # Errors
    /// The frame, if no other worker has this name.
    pub fn send(&mut self, name: &str, envelope: Envelope, frame: Vec<u8>) -> Result<(), Vec<u8>> {
        let beside = &self.redirect.beside;
        let Some(worker) = beside.other_named(name) else { return Err(frame) };
        let owner = Owner::that_sends(&envelope);
        self.exchange.send(worker, (beside.name(), false), owner, (envelope, frame));
        Ok(())
    }

    /// Returns the other worker for which a frame from the internet is, and the interface; `None`
    /// if it is for this worker. `to`: the destination of the packet before a NAT gateway has
    /// translated it.
    pub(crate) fn other_for_arriving(
        &self,
        envelope: &Envelope,
        to: Option<IpAddr>,
    ) -> Option<(u8, EniId)> {
        let beside = &self.redirect.beside;
        let eni = match (envelope, to) {
            (Envelope::FromNat { to, .. }, _) => *to,
            (_, Some(IpAddr::V4(public))) => beside.interface_at(public)?,
            _ => return None,
        };
        Some((beside.other_with(eni)?, eni))
    }

    /// Sends a frame from the internet to another worker, for one of its interfaces.
    pub(crate) fn send_arriving(
        &mut self,
        (worker, eni): (u8, EniId),
        envelope: Envelope,
        frame: Vec<u8>,
    ) {
        let (own, owner) = (self.redirect.beside.name(), Owner::Interface(eni));
        self.exchange.send(worker, (own, false), owner, (envelope, frame));
    }

    /// Moves frames that other hosts have sent to the workers of their interfaces. The frames for
    /// this worker stay.
    pub fn redirect(&mut self, now: Instant, received: &mut Received) {
        let Self { redirect, exchange } = self;
        let is_own = |(envelope, _): &(Envelope, Vec<u8>)| match envelope {
            Envelope::Between { to, .. } => redirect.beside.other_with(*to).is_none(),
            _ => false,
        };
        if received.frames.iter().all(is_own) {
            return;
        }
        let mut own = std::mem::take(&mut exchange.staying);
        own.unknown = std::mem::take(&mut received.unknown);
        let Received { frames, hosts, .. } = received;
        let mut frames = frames.drain(..);
        for (host, count, by_srd) in hosts.drain(..) {
            for (envelope, frame) in frames.by_ref().take(count) {
                match redirect.other_for(now, &host, &envelope, &frame) {
                    Some(worker) => {
                        let owner = Owner::that_receives(&envelope);
                        exchange.send(worker, (&host, by_srd), owner, (envelope, frame));
                    }
                    None => own.push(&host, by_srd, (envelope, frame)),
                }
            }
        }
        drop(frames);
        exchange.staying = std::mem::replace(received, own);
    }
}

#[cfg(test)]
mod tests;

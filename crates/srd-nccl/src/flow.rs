//! Requests of one end of a connection. NCCL's threads and the endpoint's sink use a flow. Neither
//! calls the other while it holds the flow's lock.
//!
//! Bound: the number of requests with which the flow was created, each with at most [`PARTS_MAX`]
//! parts.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use srd_efa::layer::Peer;

use crate::abi::NCCL_NET_MAX_REQUESTS;
use crate::{Fault, Outcome};

/// Largest number of receives in a group: `maxRecvs`.
pub const PARTS_MAX: usize = 8;
/// Time without a message after which a peer is probed.
pub const SILENCE: Duration = Duration::from_secs(2);

/// Purpose of an operation of the endpoint. It is encoded in the operation's context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Control messages whose completion is ignored, and receives for control messages.
    Port,
    /// Searches for messages to be discarded.
    Discard,
    /// The message that requests a connection, of the flow with this number.
    Opening(u32),
    /// A probe, which tests whether the other end of the flow with this number is alive.
    Probe(u32),
    /// A copied message, whose request has already ended, of the flow with this number.
    Copied(u32),
    /// A part of a request.
    Part {
        /// Number of the flow.
        flow: u32,
        /// Slot of the request in the flow.
        slot: u16,
        /// Index of the part in the request.
        part: u16,
    },
}

const OPENING: u16 = u16::MAX;
const PROBE: u16 = u16::MAX - 1;
const COPIED: u16 = u16::MAX - 2;

impl Purpose {
    /// Returns the context of an operation. Flow numbers are above zero.
    #[must_use]
    pub fn context(self) -> u64 {
        let of = |flow: u32, slot: u16, part: u16| {
            u64::from(flow) << 32 | u64::from(slot) << 16 | u64::from(part)
        };
        match self {
            Self::Port => 0,
            Self::Discard => 1,
            Self::Opening(flow) => of(flow, OPENING, 0),
            Self::Probe(flow) => of(flow, PROBE, 0),
            Self::Copied(flow) => of(flow, COPIED, 0),
            Self::Part { flow, slot, part } => of(flow, slot, part),
        }
    }

    /// Returns the purpose that a context encodes.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // truncation selects the parts
    pub fn of(context: u64) -> Self {
        let (flow, slot, part) = ((context >> 32) as u32, (context >> 16) as u16, context as u16);
        match (flow, slot) {
            (0, _) if part == 0 => Self::Port,
            (0, _) => Self::Discard,
            (_, OPENING) => Self::Opening(flow),
            (_, PROBE) => Self::Probe(flow),
            (_, COPIED) => Self::Copied(flow),
            _ => Self::Part { flow, slot, part },
        }
    }
}

/// End of a connection: sender or receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The end that sends.
    Sender,
    /// The end that receives.
    Receiver,
}

impl End {
    /// Returns the largest number of requests of this end. A group of receives is one request,
    /// which matches up to [`PARTS_MAX`] requests of the sender.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // eight
    pub const fn requests_max(self) -> u16 {
        match self {
            Self::Sender => NCCL_NET_MAX_REQUESTS * PARTS_MAX as u16,
            Self::Receiver => NCCL_NET_MAX_REQUESTS,
        }
    }
}

/// State of the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Link {
    /// The listener has not answered yet.
    Opening,
    /// The connection is open, with this number of the other end.
    Open(u32),
    /// The other end is closed; messages that arrived before may still be received.
    Closed,
    /// The connection has failed.
    Failed(Fault),
}

/// A request that NCCL holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Slot of the request in its flow.
    pub slot: u16,
    /// Number of times that the slot was used before.
    pub generation: u16,
}

/// Length of each part of a request that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    bytes: [u64; PARTS_MAX],
    count: usize,
}

impl Sizes {
    /// Returns the length of each part in bytes.
    #[must_use]
    pub fn parts(&self) -> &[u64] {
        &self.bytes[..self.count]
    }
}

#[derive(Clone, Debug, Default)]
struct Slot {
    generation: u16,
    busy: bool,
    count: usize,
    /// One bit for each part that has not ended.
    left: u8,
    bytes: [u64; PARTS_MAX],
    failure: Option<Fault>,
}

#[derive(Debug)]
struct State {
    /// Slots of requests. Their number is the largest number of requests that have been open at the
    /// same time so far.
    slots: Vec<Slot>,
    free: Vec<u16>,
    requests_max: u16,
    /// Number of requests with parts that have not ended.
    unfinished: usize,
    link: Link,
    last_activity: Instant,
    probing: bool,
}

/// One end of a connection, with its requests.
#[derive(Debug)]
pub struct Flow {
    id: u32,
    end: End,
    /// The Messaging Layer's number of the endpoint at the other end.
    remote: Peer,
    /// Address of the endpoint at the other end.
    peer: SocketAddr,
    state: Mutex<State>,
}

impl Flow {
    /// Returns a flow to the endpoint `with`, with slots for the number of requests that this kind
    /// of end needs.
    #[must_use]
    pub fn new(id: u32, end: End, link: Link, with: (Peer, SocketAddr)) -> Self {
        Self::with_room(id, (end, end.requests_max()), link, with)
    }

    fn with_room(
        id: u32,
        (end, requests_max): (End, u16),
        link: Link,
        (remote, peer): (Peer, SocketAddr),
    ) -> Self {
        let state = State {
            slots: Vec::new(),
            free: Vec::new(),
            requests_max,
            unfinished: 0,
            link,
            last_activity: Instant::now(),
            probing: false,
        };
        Self { id, end, remote, peer, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the flow.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns which end of the connection the flow is.
    #[must_use]
    pub fn end(&self) -> End {
        self.end
    }

    /// Returns the Messaging Layer's number of the endpoint at the other end.
    #[must_use]
    pub fn remote(&self) -> Peer {
        self.remote
    }

    /// Returns the address of the endpoint at the other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn link(&self) -> Link {
        self.lock().link.clone()
    }

    /// Changes the state of the connection, unless the connection has failed.
    pub fn set_link(&self, link: Link) {
        let mut state = self.lock();
        if !matches!(state.link, Link::Failed(_)) {
            state.link = link;
        }
    }

    /// Begins a request of `parts` parts; `None` if the flow has reached its number of requests.
    pub fn begin(&self, parts: usize) -> Option<Request> {
        let mut state = self.lock();
        let at = state.vacant()?;
        state.unfinished += 1;
        let slot = &mut state.slots[usize::from(at)];
        let generation = slot.generation;
        let left = u8::MAX >> (PARTS_MAX - parts);
        *slot = Slot { generation, busy: true, count: parts, left, ..Slot::default() };
        Some(Request { slot: at, generation })
    }

    /// Removes a request for which no operation was submitted.
    pub fn take_back(&self, request: Request) {
        let mut state = self.lock();
        state.unfinished -= 1;
        state.release(request.slot);
    }

    /// Returns the purpose of the operation for a part.
    #[must_use]
    pub fn part(&self, request: Request, part: usize) -> Purpose {
        let part = u16::try_from(part).unwrap_or(u16::MAX);
        Purpose::Part { flow: self.id, slot: request.slot, part }
    }

    /// Records that a part of a request has ended, with its length in bytes or with the fault.
    pub fn ended(&self, slot: u16, part: u16, outcome: Outcome<u64>) {
        let mut state = self.lock();
        state.last_activity = Instant::now();
        let Some(slot) = state.slots.get_mut(usize::from(slot)) else { return };
        let bit = 1_u8.checked_shl(part.into()).unwrap_or(0);
        if !slot.busy || slot.left & bit == 0 {
            return;
        }
        slot.left &= !bit;
        match outcome {
            Ok(bytes) => slot.bytes[usize::from(part)] = bytes,
            Err(fault) => slot.failure = slot.failure.take().or(Some(fault)),
        }
        if slot.left == 0 {
            state.unfinished -= 1;
        }
    }

    /// Takes the result of a request; `None` if the request is not complete. The slot of a complete
    /// request becomes free.
    ///
    /// # Errors
    /// A [`Fault`], if the request has failed, the connection has failed, or there is no such
    /// request.
    pub fn take(&self, request: Request) -> Outcome<Option<Sizes>> {
        let mut state = self.lock();
        let of = state.slots.get_mut(usize::from(request.slot));
        let Some(slot) = of.filter(|s| s.busy && s.generation == request.generation) else {
            return Err(Fault::argument("there is no such request: it has ended, or never began"));
        };
        if slot.left != 0 {
            return match &state.link {
                Link::Failed(fault) => Err(fault.clone()),
                _ => Ok(None),
            };
        }
        let ended = match slot.failure.take() {
            Some(fault) => Err(fault),
            None => Ok(Some(Sizes { bytes: slot.bytes, count: slot.count })),
        };
        state.release(request.slot);
        ended
    }

    /// Returns the number of requests with parts that have not ended.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.lock().unfinished
    }

    /// Returns the contexts of parts that have not ended.
    #[must_use]
    pub fn unfinished_parts(&self) -> Vec<u64> {
        let state = self.lock();
        let mut contexts = Vec::new();
        for (slot, at) in state.slots.iter().zip(0_u16..) {
            let parts = (0_u16..).take(slot.count);
            let left = parts.filter(|part| slot.left >> part & 1 == 1);
            contexts.extend(left.map(|part| Purpose::Part { flow: self.id, slot: at, part }));
        }
        contexts.into_iter().map(Purpose::context).collect()
    }

    /// Whether the peer should be probed now. If so, a probe is recorded as in progress.
    pub fn should_probe(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let silent =
            !state.probing && now.saturating_duration_since(state.last_activity) >= SILENCE;
        state.probing |= silent;
        silent
    }

    /// Records that the peer has answered a probe.
    pub fn on_probe_acked(&self) {
        let mut state = self.lock();
        (state.probing, state.last_activity) = (false, Instant::now());
    }
}

impl State {
    /// Returns a free slot for a request.
    fn vacant(&mut self) -> Option<u16> {
        if let Some(at) = self.free.pop() {
            return Some(at);
        }
        let at = u16::try_from(self.slots.len()).ok().filter(|at| *at < self.requests_max)?;
        self.slots.push(Slot::default());
        Some(at)
    }

    fn release(&mut self, at: u16) {
        let slot = &mut self.slots[usize::from(at)];
        slot.busy = false;
        slot.left = 0;
        slot.generation = slot.generation.wrapping_add(1) & Request::GENERATION_MASK;
        self.free.push(at);
    }
}

impl Request {
    /// Bits of a request's number: slot and generation.
    pub const BITS: u32 = 24;
    const SLOT_BITS: u32 = 9;
    const GENERATION_MASK: u16 = (1 << (Self::BITS - Self::SLOT_BITS)) - 1;

    /// Returns the number of the request.
    #[must_use]
    pub fn number(self) -> u64 {
        u64::from(self.generation) << Self::SLOT_BITS | u64::from(self.slot)
    }

    /// Returns the request with this number.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // masked
    pub fn of(number: u64) -> Self {
        let slot = (number & ((1 << Self::SLOT_BITS) - 1)) as u16;
        let generation = (number >> Self::SLOT_BITS) as u16 & Self::GENERATION_MASK;
        Self { slot, generation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(requests_max: u16) -> Flow {
        let peer = "127.0.0.1:9".parse().unwrap();
        Flow::with_room(7, (End::Sender, requests_max), Link::Open(8), (Peer(3), peer))
    }

    #[test]
    fn a_request_ends_with_its_last_part_and_has_the_bytes_of_each() {
        let flow = flow(4);
        let request = flow.begin(3).unwrap();
        for (part, bytes) in [(2, 30), (0, 10)] {
            flow.ended(request.slot, part, Ok(bytes));
            assert_eq!(flow.take(request), Ok(None));
        }
        assert_eq!(flow.unfinished_parts(), [flow.part(request, 1).context()]);
        flow.ended(request.slot, 1, Ok(20));
        assert_eq!(flow.unfinished(), 0);
        assert_eq!(flow.take(request).unwrap().unwrap().parts(), [10, 20, 30]);
        assert!(flow.take(request).is_err(), "it ends once");
    }

    #[test]
    fn a_flow_holds_so_many_requests_and_places_are_used_again() {
        let flow = flow(2);
        let (one, two) = (flow.begin(1).unwrap(), flow.begin(8).unwrap());
        assert_eq!(flow.begin(1), None);
        flow.ended(one.slot, 0, Ok(1));
        assert_eq!(flow.begin(1), None, "its end was not taken");
        flow.take(one).unwrap().unwrap();
        let three = flow.begin(1).unwrap();
        assert_ne!(one, three);
        assert!(flow.take(one).is_err());
        flow.take_back(three);
        assert_eq!((flow.unfinished(), flow.unfinished_parts().len()), (1, 8));
        assert_eq!(flow.take(two), Ok(None));
    }

    #[test]
    fn one_failed_part_fails_the_request_after_the_others_have_ended() {
        let flow = flow(1);
        let request = flow.begin(2).unwrap();
        flow.ended(request.slot, 0, Err(Fault::remote("gone")));
        assert_eq!(flow.take(request), Ok(None), "its other buffer is in use");
        flow.ended(request.slot, 1, Ok(5));
        assert_eq!(flow.take(request), Err(Fault::remote("gone")));
        assert!(flow.begin(1).is_some());
    }

    #[test]
    fn a_connection_that_failed_stays_so_and_fails_what_is_under_way() {
        let flow = flow(1);
        let request = flow.begin(1).unwrap();
        flow.set_link(Link::Failed(Fault::remote("gone")));
        flow.set_link(Link::Open(3));
        assert_eq!(flow.take(request), Err(Fault::remote("gone")));
        assert_eq!(flow.unfinished(), 1, "its buffer is still in use");
    }

    #[test]
    fn what_ends_twice_or_never_began_changes_nothing() {
        let flow = flow(1);
        let request = flow.begin(1).unwrap();
        flow.ended(9, 0, Ok(1));
        flow.ended(request.slot, 12, Ok(1));
        flow.ended(request.slot, 3, Ok(1));
        assert_eq!(flow.take(request), Ok(None));
        flow.ended(request.slot, 0, Ok(1));
        flow.ended(request.slot, 0, Err(Fault::remote("late")));
        assert_eq!(flow.take(request).unwrap().unwrap().parts(), [1]);
    }

    #[test]
    fn a_silent_peer_is_probed_once_at_a_time() {
        let flow = flow(1);
        let begin = Instant::now();
        assert!(!flow.should_probe(begin));
        let later = begin + SILENCE * 2;
        assert!(flow.should_probe(later));
        assert!(!flow.should_probe(later + SILENCE));
        flow.on_probe_acked();
        assert!(!flow.should_probe(begin));
        assert!(flow.should_probe(later));
    }

    #[test]
    fn contexts_and_numbers_come_back_as_they_were() {
        for purpose in [
            Purpose::Port,
            Purpose::Discard,
            Purpose::Opening(1),
            Purpose::Probe(u32::MAX),
            Purpose::Copied(5),
            Purpose::Part { flow: 3, slot: 255, part: 7 },
        ] {
            assert_eq!(Purpose::of(purpose.context()), purpose);
        }
        for (slot, generation) in [(0, 0), (255, 1), (511, 0x7fff)] {
            let request = Request { slot, generation };
            assert!(request.number() < 1 << Request::BITS);
            assert_eq!(Request::of(request.number()), request);
        }
    }
}

//! Traces of packets: the places where the card records the events of a packet. Without a trace, a
//! packet costs one check of an empty list.

use srd_proto::time::Instant;

use crate::meta::key::Direction;
use crate::track::Key;
use crate::vpc::card::Card;
use crate::vpc::drops::Cause;
use crate::vpc::frames::read::{Read, bytes_of};
use crate::vpc::port::PortId;
use crate::vpc::records::trace::{
    Arrived, Event, Filter, FlowSeen, Followed, Next, Taken, TooManyTraces, TraceId,
};

impl Card {
    /// Begins a trace, which follows the next `packets` packets that the filter accepts, and keeps
    /// the first `head_bytes` bytes of each.
    ///
    /// # Errors
    /// [`TooManyTraces`] if the card has [`TRACES_MAX`](super::trace::TRACES_MAX) traces already.
    pub fn begin_trace(
        &mut self,
        filter: Filter,
        packets: u32,
        head_bytes: usize,
    ) -> Result<TraceId, TooManyTraces> {
        self.traces.begin(filter, packets, head_bytes)
    }

    /// Returns at most `most` records of a trace, with at most `bytes` bytes of packets, but at
    /// least one record; `None` if there is no such trace.
    pub fn take_trace(&mut self, id: TraceId, most: usize, bytes: usize) -> Option<Taken> {
        self.traces.take(id, most, bytes)
    }

    /// Ends a trace, and discards its records.
    pub fn end_trace(&mut self, id: TraceId) {
        self.traces.end(id);
    }

    /// Begins to follow a packet if a trace accepts it. Returns the packet's number for later
    /// events.
    #[inline]
    pub(in crate::vpc) fn follow(
        &mut self,
        now: Instant,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        direction: Direction,
        key: &Key,
    ) -> Followed {
        if self.traces.is_empty() {
            return Followed::NO;
        }
        self.follow_wanted(now, port, read, bytes, direction, key)
    }

    #[cold]
    #[inline(never)]
    fn follow_wanted(
        &mut self,
        now: Instant,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        direction: Direction,
        key: &Key,
    ) -> Followed {
        if let Some(held) = self.traces.take_resumed() {
            return held;
        }
        let packet = read.for_rules(bytes);
        let Some(head_bytes) = self.traces.wanted_bytes(port, &packet) else {
            return Followed::NO;
        };
        let arrived = Arrived {
            interface: port,
            direction,
            packet,
            is_fragment: read.packet.fragment,
            bytes: bytes_of(&read.layout),
            packets: u32::try_from(read.layout.packets()).unwrap_or(u32::MAX),
            flow: self.flow_seen(now, port, key),
            head: bytes[..head_bytes.min(read.layout.packet_bytes()).min(bytes.len())].to_vec(),
        };
        self.traces.follow(now, &arrived)
    }

    /// Drops a packet for an interface before the interface's own rules evaluate it.
    #[cold]
    pub(in crate::vpc) fn drop_before(
        &mut self,
        now: Instant,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        cause: Cause,
    ) {
        let key = read.key(bytes, Direction::Ingress, self.ports[port.0 as usize].index);
        let followed = self.follow(now, port, read, bytes, Direction::Ingress, &key);
        self.note(now, followed, || Event::Dropped(cause));
        self.drop_of(Some(port), cause, read.layout.packets());
    }

    fn flow_seen(&mut self, now: Instant, port: PortId, key: &Key) -> Option<FlowSeen> {
        let number = self.ports[port.0 as usize].instance as usize;
        let flows = &mut self.instances[number].flows;
        let id = flows.related(now, key)?;
        let state = flows.get(id)?.1;
        let (_, tracked, local_first) = flows.value(id)?;
        Some(FlowSeen { state, tracked, local_first })
    }

    /// Records an event of a packet, if the packet is followed.
    #[inline]
    pub(in crate::vpc) fn note(
        &mut self,
        now: Instant,
        packet: Followed,
        event: impl FnOnce() -> Event,
    ) {
        if packet.is_some() {
            self.traces.note(now, packet, &event());
        }
    }

    /// Records the verdict of security groups, network ACLs and routes about a packet. `judged` is
    /// the interface's counter of evaluated packets before this packet.
    #[inline]
    pub(in crate::vpc) fn note_judged(
        &mut self,
        now: Instant,
        packet: Followed,
        port: PortId,
        key: &Key,
        judged: u64,
        verdict: Result<Option<u32>, Cause>,
    ) {
        if !packet.is_some() {
            return;
        }
        let by_rules = self.ports[port.0 as usize].counts.judged != judged;
        let to = |slot: u32| self.ends.targets.get(slot).map_or(Next::Guest, |t| Next::of(&t.to));
        let verdict = verdict.map(|slot| slot.map_or(Next::Guest, to));
        let flow = self.flow_seen(now, port, key);
        self.traces.note(now, packet, &Event::Judged { by_rules, verdict, flow });
    }
}

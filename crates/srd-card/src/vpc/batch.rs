//! Several frames of a guest at once. A flow's memory is rarely in the cache, and a packet looks
//! into that of two ends: looks of several packets before the first is judged wait for memory
//! together.

use alloc::vec::Vec;

use srd_proto::time::Instant;

use super::card::Card;
use super::drops::Cause;
use super::flow::{To, Verdict};
use super::port::{Around, PortId};
use super::read::Read;
use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::track::{Key, TrackId};

/// Frames that are looked at together: as many as a core waits for at a time.
const TOGETHER: usize = 16;

/// A frame, and where its flow is.
struct Look {
    read: Read,
    key: Key,
    here: Option<TrackId>,
    there: Option<There>,
}

/// The flow at the instance of this host that the frame is for.
struct There {
    instance: u32,
    key: Key,
    id: Option<TrackId>,
}

impl Card {
    /// Takes frames that a guest sends, in their order, as [`Card::from_guest`] takes each.
    pub fn from_guest_all(
        &mut self,
        now: Instant,
        port: PortId,
        frames: &mut Vec<Vec<u8>>,
        around: &mut impl Around,
    ) {
        let Some(instance) = self.port(port).map(|port| port.instance) else {
            let frames = frames.drain(..).count();
            return self.drop_of(None, Cause::NotHere, frames as u64);
        };
        let mut frames = frames.drain(..);
        let mut looks: [Option<Look>; TOGETHER] = [const { None }; TOGETHER];
        while frames.len() > 0 {
            let together = &frames.as_slice()[..frames.len().min(TOGETHER)];
            self.look(port, together, &mut looks);
            for look in &mut looks[..together.len()] {
                let Some(frame) = frames.next() else { break };
                let Some(Look { read, key, here, there }) = look.take() else {
                    self.drop_of(Some(port), Cause::Malformed, 1);
                    continue;
                };
                let there = there.and_then(|there| Some((there.instance, there.id?)));
                for (instance, id) in here.map(|id| (instance, id)).into_iter().chain(there) {
                    self.instances[instance as usize].flows.expect(id);
                }
                self.send(now, port, frame, &read, &key, around);
            }
            self.run(now, around);
        }
    }

    /// Reads frames, and looks for the flow of each where it is sent and where it arrives. Changes
    /// nothing.
    fn look(&self, port: PortId, frames: &[Vec<u8>], looks: &mut [Option<Look>]) {
        let port = &self.ports[port.0 as usize];
        let (instance, index) = (&self.instances[port.instance as usize], port.index);
        for (look, frame) in looks.iter_mut().zip(frames) {
            *look = Read::frame(frame).map(|read| {
                let bytes = &frame[OFFLOAD_BYTES..];
                let key = Key::of(&read.packet, bytes, Direction::Egress, index);
                Look { read, key, here: None, there: None }
            });
        }
        for look in looks.iter_mut().flatten() {
            look.here = instance.flows.look(&look.key);
        }
        for (look, frame) in looks.iter_mut().zip(frames) {
            let Some(look) = look else { continue };
            let flow = look.here.and_then(|id| instance.flows.peek(id, &look.key));
            let since = self.since(port, &look.key);
            if let Some((flow, tracked)) = flow
                && let Verdict::Go(slot) = flow.out.verdict
                && since.holds(flow.out.epoch, tracked)
                && let Some(&To::Port(port)) = self.ends.targets.get(slot).map(|target| &target.to)
                && let Some(port) = self.port(port)
            {
                let bytes = &frame[OFFLOAD_BYTES..];
                let key = Key::of(&look.read.packet, bytes, Direction::Ingress, port.index);
                look.there = Some(There { instance: port.instance, key, id: None });
            }
        }
        for there in looks.iter_mut().flatten().filter_map(|look| look.there.as_mut()) {
            there.id = self.instances[there.instance as usize].flows.look(&there.key);
        }
        for there in looks.iter_mut().flatten().filter_map(|look| look.there.as_mut()) {
            let flows = &self.instances[there.instance as usize].flows;
            there.id = there.id.filter(|id| flows.peek(*id, &there.key).is_some());
        }
    }
}

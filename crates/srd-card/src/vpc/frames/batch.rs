//! Batches of frames of a guest, or of another host. The entry of a flow is rarely in the
//! processor's cache, and each packet needs the entries of both ends. So the card looks up the
//! flows of several packets before it handles the first packet: their cache misses overlap.

use alloc::sync::Arc;
use alloc::vec::{Drain, Vec};
use core::hint::black_box;

use srd_proto::time::Instant;
use srd_vpc::id::EniId;

use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::track::{Key, Table, TrackId};
use crate::vpc::card::Card;
use crate::vpc::drops::Cause;
use crate::vpc::envelope::Envelope;
use crate::vpc::frames::read::Read;
use crate::vpc::port::{Environment, PortId};
use crate::vpc::tables::flow::{Flow, Sender, Side, To, Verdict};

/// Number of frames whose flows are looked up together: as many cache misses as a core can have at
/// a time.
const TOGETHER: usize = 16;

/// The flow of a frame that a guest sends: its entries at the sender and at a receiver on this
/// host.
struct Look {
    key: Key,
    hash: u32,
    here: Option<TrackId>,
    there: Option<ReceiverFlow>,
}

impl Look {
    const NONE: Self = Self { key: Key::FIRST, hash: 0, here: None, there: None };
}

/// Flow of a frame at the instance of this host that receives the frame.
struct ReceiverFlow {
    port: PortId,
    instance: u32,
    key: Key,
    id: Option<TrackId>,
    /// Whether `id` was found by a search. If so, the sender's entry has to store it as a hint.
    is_new: bool,
}

/// A frame that another host has sent to an interface of this host.
struct Arriving {
    from: EniId,
    port: PortId,
    read: Read,
    key: Key,
    hash: u32,
    id: Option<TrackId>,
}

impl Card {
    /// Takes frames that another host has sent, in order, each as [`Card::from_host`] does.
    pub fn from_host_all(
        &mut self,
        now: Instant,
        host: &Arc<str>,
        mut frames: Drain<'_, (Envelope, Vec<u8>)>,
        around: &mut impl Environment,
    ) {
        let mut looks: [Option<Arriving>; TOGETHER] = [const { None }; TOGETHER];
        // Most frames come from the same interface.
        let mut last: Option<(EniId, Sender)> = None;
        while frames.len() > 0 {
            let together = &frames.as_slice()[..frames.len().min(TOGETHER)];
            let looks = &mut looks[..together.len()];
            self.look_at_arriving(together, looks);
            for look in looks {
                let Some((envelope, frame)) = frames.next() else { break };
                let Some(Arriving { from, port, read, key, hash, id }) = look else {
                    self.from_host(now, host, envelope, frame, around);
                    continue;
                };
                let of_last = last.take().filter(|(eni, _)| eni == from);
                let (_, sender) =
                    last.insert(of_last.unwrap_or_else(|| (*from, self.sender(host, Some(*from)))));
                let instance = self.ports[port.0 as usize].instance;
                let flows = &mut self.instances[instance as usize].flows;
                flows.expect_hash(key, *hash);
                if let Some(id) = *id {
                    flows.expect(id);
                }
                self.arrive_read(now, sender, *port, frame, (read, key), around);
            }
            self.run(now, around);
        }
    }

    /// Reads frames of another host, and looks up the flow of each. No state changes. The result is
    /// `None` for a malformed frame, for a frame to an unknown interface, and for a frame that is
    /// not from interface to interface.
    fn look_at_arriving(&self, frames: &[(Envelope, Vec<u8>)], looks: &mut [Option<Arriving>]) {
        let mut last = None;
        for (look, (envelope, frame)) in looks.iter_mut().zip(frames) {
            *look = None;
            let Envelope::Between { from, to } = *envelope else { continue };
            let of_last = last.filter(|(eni, _)| *eni == to);
            let Some(port) = of_last.map(|(_, port)| port).or_else(|| self.port_of(to)) else {
                continue;
            };
            last = Some((to, port));
            *look = Read::frame(frame).map(|read| {
                let key = self.key_at(port, &read, frame);
                let hash = self.flows_at(port).hash(&key);
                Arriving { from, port, read, key, hash, id: None }
            });
        }
        let all = looks.iter().flatten();
        early(all.map(|look| self.flows_at(look.port).touch(look.hash)));
        early(looks.iter_mut().flatten().map(|look| {
            let flows = self.flows_at(look.port);
            look.id = flows.look(look.hash);
            look.id.map_or(0, |id| flows.touch_entry(id))
        }));
        for look in looks.iter_mut().flatten() {
            let flows = self.flows_at(look.port);
            look.id = look.id.filter(|id| flows.peek(*id, &look.key).is_some());
        }
    }

    /// Flows of the instance of an interface.
    fn flows_at(&self, port: PortId) -> &Table<Flow> {
        &self.instances[self.ports[port.0 as usize].instance as usize].flows
    }

    /// Takes frames that a guest sends, in order, each as [`Card::from_guest`] does.
    pub fn from_guest_all(
        &mut self,
        now: Instant,
        port: PortId,
        frames: &mut Vec<Vec<u8>>,
        around: &mut impl Environment,
    ) {
        let Some(instance) = self.port(port).map(|port| port.instance) else {
            let frames = frames.drain(..).count();
            return self.drop_of(None, Cause::NotHere, frames as u64);
        };
        let mut frames = frames.drain(..);
        let mut reads: [Option<Read>; TOGETHER] = [const { None }; TOGETHER];
        let mut looks: [Look; TOGETHER] = [const { Look::NONE }; TOGETHER];
        while frames.len() > 0 {
            let together = &frames.as_slice()[..frames.len().min(TOGETHER)];
            let (reads, looks) = (&mut reads[..together.len()], &mut looks[..together.len()]);
            self.look(port, together, reads, looks);
            for (read, look) in reads.iter().zip(looks) {
                let Some(frame) = frames.next() else { break };
                let Some(read) = read else {
                    // Malformed, or a super-packet that has to be divided. // G5 of express.md
                    self.from_guest(now, port, frame, around);
                    continue;
                };
                let Look { key, hash, here, there } = look;
                let flows = &mut self.instances[instance as usize].flows;
                flows.expect_hash(key, *hash);
                if let Some(here) = *here {
                    flows.expect(here);
                    if let Some(ReceiverFlow { id: Some(id), is_new: true, .. }) = *there
                        && let Some((flow, ..)) = flows.value(here)
                    {
                        flow.beside = id;
                    }
                }
                if let Some(ReceiverFlow { instance, id: Some(id), .. }) = *there {
                    self.instances[instance as usize].flows.expect(id);
                }
                let there = there.as_ref().map(|there| (there.port, &there.key));
                self.send(now, port, frame, (read, key, there), around);
            }
            self.run(now, around);
        }
    }

    /// Reads frames of a guest, and looks up the flow of each at the sender, and at a receiver on
    /// this host. No state changes. The result is `None` for a frame that is malformed or too long,
    /// which has no flow.
    fn look(
        &self,
        port: PortId,
        frames: &[Vec<u8>],
        reads: &mut [Option<Read>],
        looks: &mut [Look],
    ) {
        let port = &self.ports[port.0 as usize];
        let (flows, index) = (&self.instances[port.instance as usize].flows, port.index);
        for ((read, look), frame) in reads.iter_mut().zip(&mut *looks).zip(frames) {
            *read = Read::in_place(frame);
            let key = |read: &Read| read.key(&frame[OFFLOAD_BYTES..], Direction::Egress, index);
            look.key = read.as_ref().map_or(Key::FIRST, key);
            look.hash = flows.hash(&look.key);
            look.there = None;
        }
        early(looks.iter().map(|look| flows.touch(look.hash)));
        early(looks.iter_mut().map(|look| {
            look.here = flows.look(look.hash);
            look.here.map_or(0, |id| flows.touch_entry(id))
        }));
        for ((read, look), frame) in reads.iter().zip(&mut *looks).zip(frames) {
            let Some(read) = read else { continue };
            let flow = look.here.and_then(|id| flows.peek(id, &look.key));
            let since = self.since(port, &look.key);
            if let Some((flow, tracked)) = flow
                && let Side { epoch, verdict: Verdict::Go(slot) } = flow.sent()
                && since.holds(epoch, tracked)
                && let Some(&To::Port(id)) = self.ends.targets.get(slot).map(|target| &target.to)
                && let Some(port) = self.port(id)
            {
                let key = self.key_at(id, read, frame);
                let (instance, beside) = (port.instance, Some(flow.beside));
                look.there =
                    Some(ReceiverFlow { port: id, instance, key, id: beside, is_new: false });
            }
        }
        for there in looks.iter_mut().filter_map(|look| look.there.as_mut()) {
            let flows = &self.instances[there.instance as usize].flows;
            there.id = there.id.filter(|id| flows.peek(*id, &there.key).is_some());
        }
        // Without a valid hint in the sender's entry, the index is searched.
        let all = looks.iter_mut().filter_map(|look| look.there.as_mut());
        for there in all.filter(|there| there.id.is_none()) {
            let flows = &self.instances[there.instance as usize].flows;
            let found = flows.look(flows.hash(&there.key));
            there.id = found.filter(|id| flows.peek(*id, &there.key).is_some());
            there.is_new = there.id.is_some();
        }
    }
}

/// Reads memory that is needed later. No instruction depends on what was read, so the processor
/// waits for all of this memory at once. Each item is a part of the memory.
#[inline]
fn early(parts: impl Iterator<Item = u32>) {
    black_box(parts.fold(0, |all, part| all ^ part));
}

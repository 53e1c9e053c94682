//! The adapter of an instance's interface: it selects the queue of a packet, holds the packet until
//! its interrupt, and counts packets and bytes of each queue. It performs no I/O.
//!
//! Bound: each queue has one ring to the instance. A packet that finds its ring full is dropped and
//! counted (D4).

use std::sync::Arc;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use srd_card::FlowKey;
use srd_card::device::moderation::Moderation;
use srd_card::device::ring::Ring;
use srd_card::device::rss::Rss;
use srd_card::device::steering::Steering;
use srd_card::offload::{Header, OFFLOAD_BYTES};
use srd_card::packet::Packet;
use srd_proto::time::Instant;

use crate::control::protocol::{DeviceRule, DeviceSettings};

mod settings;

pub(crate) use settings::{DeviceLimits, queues_max, steering_of};

/// Counters of a queue. Each packet of a super-packet counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueCounts {
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    /// Packets to the instance that were dropped because the ring was full.
    pub(crate) rx_overruns: u64,
}

/// A queue pair.
#[derive(Debug)]
struct Queue {
    counts: QueueCounts,
    /// Packets to the instance whose interrupt is delayed.
    ring: Ring<Vec<u8>>,
    /// The delay of interrupts; `None` if interrupts are not delayed.
    moderation: Option<Moderation>,
}

/// The adapter of an interface.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) settings: DeviceSettings,
    rss: Rss,
    /// The n-tuple rules of the instance, for all of its interfaces.
    pub(crate) steering: Arc<Steering>,
    /// Index of the interface among the interfaces of its instance.
    eni: u16,
    queues: Vec<Queue>,
}

/// Numbers of packets and bytes that a frame represents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    packets: u64,
    bytes: u64,
}

/// Result for a packet that arrives for the instance.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Arrived {
    /// The packet has to be written to this queue now.
    Now(u16, Vec<u8>),
    /// The packet waits in the ring of its queue for an interrupt.
    Held,
    /// The ring is full; the packet is counted as an overrun.
    Dropped,
}

impl Adapter {
    pub(crate) fn new(
        now: Instant,
        settings: DeviceSettings,
        steering: Arc<Steering>,
        eni: u16,
    ) -> Result<Self> {
        let rss = settings.rss()?;
        let mut adapter = Self { settings, rss, steering, eni, queues: Vec::new() };
        adapter.resize(now);
        Ok(adapter)
    }

    /// Replaces the settings and the n-tuple rules. Returns all packets that waited for an
    /// interrupt, each with its queue. The caller writes them to the instance.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        settings: DeviceSettings,
        steering: Arc<Steering>,
    ) -> Result<Vec<(u16, Vec<u8>)>> {
        self.rss = settings.rss()?;
        self.settings = settings;
        self.steering = steering;
        let all = self.take_all();
        self.resize(now);
        let last = self.settings.queues.saturating_sub(1);
        Ok(all.into_iter().map(|(queue, frame)| (queue.min(last), frame)).collect())
    }

    /// Creates the queues that the settings require, with empty rings. A queue that stays keeps its
    /// counters.
    fn resize(&mut self, now: Instant) {
        let (size, held) = (self.settings.rx_ring_size(), self.settings.moderation());
        let before: Vec<QueueCounts> = self.counts().collect();
        let queue = |number: usize| Queue {
            counts: before.get(number).copied().unwrap_or_default(),
            ring: Ring::new(size),
            moderation: held.as_ref().map(|held| Moderation::rx(held, now)),
        };
        self.queues = (0..self.settings.queues.into()).map(queue).collect();
    }

    /// Returns the queue of a packet to the instance: the queue of the first n-tuple rule that
    /// matches, otherwise the queue of its hash (D3).
    fn queue_of(&self, packet: Option<Packet>) -> u16 {
        let Some(packet) = packet.filter(|_| self.queues.len() > 1) else { return 0 };
        let flow = FlowKey::of(&packet);
        self.steering.queue(self.eni, &flow).unwrap_or_else(|| self.rss.queue(&flow))
    }

    /// Takes a packet to the instance: selects its queue, counts it, and delays it if interrupts
    /// are delayed.
    pub(crate) fn arrive(&mut self, now: Instant, frame: Vec<u8>) -> Arrived {
        let packet = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
        let packets = packets_of(&frame, packet.as_ref());
        let number = self.queue_of(packet);
        let Some(queue) = self.queues.get_mut(usize::from(number)) else { return Arrived::Dropped };
        let bytes = (frame.len() - OFFLOAD_BYTES.min(frame.len())) as u64;
        let frame = match &mut queue.moderation {
            None => Some(frame),
            Some(moderation) => {
                if queue.ring.push(frame).is_err() {
                    queue.counts.rx_overruns += packets;
                    return Arrived::Dropped;
                }
                moderation.packet(now, u32::try_from(bytes).unwrap_or(u32::MAX));
                None
            }
        };
        queue.counts.rx_packets += packets;
        queue.counts.rx_bytes += bytes;
        frame.map_or(Arrived::Held, |frame| Arrived::Now(number, frame))
    }

    /// Returns the numbers of packets and bytes that a frame represents.
    pub(crate) fn size(frame: &[u8]) -> Size {
        let packet = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
        let bytes = frame.len().saturating_sub(OFFLOAD_BYTES) as u64;
        Size { packets: packets_of(frame, packet.as_ref()), bytes }
    }

    /// Counts a packet that was dropped after it had been counted as received, because too many
    /// packets waited for the queue's processor.
    pub(crate) fn overrun(&mut self, queue: u16, size: Size) {
        let Some(queue) = self.queues.get_mut(usize::from(queue)) else { return };
        let counts = &mut queue.counts;
        counts.rx_overruns += size.packets;
        counts.rx_packets = counts.rx_packets.saturating_sub(size.packets);
        counts.rx_bytes = counts.rx_bytes.saturating_sub(size.bytes);
    }

    /// Counts a packet that the instance has sent by a queue.
    pub(crate) fn sent(&mut self, queue: u16, frame: &[u8]) {
        let Some(queue) = self.queues.get_mut(usize::from(queue)) else { return };
        let packet = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
        queue.counts.tx_packets += packets_of(frame, packet.as_ref());
        queue.counts.tx_bytes += frame.len().saturating_sub(OFFLOAD_BYTES) as u64;
    }

    /// Returns the time of the next delayed interrupt; `None` if no packet waits.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = |queue: &Queue| queue.moderation.as_ref().and_then(Moderation::poll_timeout);
        self.queues.iter().filter_map(due).min()
    }

    /// Returns the packets whose interrupt is due, with their queues.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<(u16, Vec<u8>)> {
        let mut due = Vec::new();
        for (number, queue) in (0..).zip(&mut self.queues) {
            if queue.moderation.as_mut().is_some_and(|moderation| moderation.raise(now)) {
                due.extend(std::iter::from_fn(|| queue.ring.pop()).map(|frame| (number, frame)));
            }
        }
        due
    }

    /// Removes and returns all packets that wait for an interrupt, with their queues.
    pub(crate) fn take_all(&mut self) -> Vec<(u16, Vec<u8>)> {
        let mut all = Vec::new();
        for (number, queue) in (0..).zip(&mut self.queues) {
            all.extend(std::iter::from_fn(|| queue.ring.pop()).map(|frame| (number, frame)));
        }
        all
    }

    /// Returns the n-tuple rules of this interface.
    pub(crate) fn rules(&self) -> Vec<DeviceRule> {
        let rules = self.steering.rules(self.eni);
        rules.map(|(location, rule)| DeviceRule::of(location, rule)).collect()
    }

    /// Returns the counters of each queue.
    pub(crate) fn counts(&self) -> impl Iterator<Item = QueueCounts> + '_ {
        self.queues.iter().map(|queue| queue.counts)
    }

    /// Sets the counters of the queues, after a take-over. Counting continues from these values.
    pub(crate) fn set_counts(&mut self, counts: &[QueueCounts]) {
        for (queue, counts) in self.queues.iter_mut().zip(counts) {
            queue.counts = *counts;
        }
    }
}

/// Returns the number of packets that a frame represents.
fn packets_of(frame: &[u8], packet: Option<&Packet>) -> u64 {
    let header = frame.split_first_chunk::<OFFLOAD_BYTES>();
    let Some((segment, (packet, bytes))) = header
        .and_then(|(header, bytes)| Some((Header::decode(header).segment()?, (packet?, bytes))))
    else {
        return 1;
    };
    const UDP_BYTES: usize = 8;
    let transport = packet.tcp_header_bytes(bytes).unwrap_or(UDP_BYTES);
    let payload = bytes.len().saturating_sub(packet.transport_at + transport);
    (payload as u64).div_ceil(segment.into()).max(1)
}

#[cfg(test)]
mod tests;

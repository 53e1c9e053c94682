//! Receiving: one socket for each local address, asked in turns.

use std::io;

use srd_proto::time::Instant;
use srd_proto::transmit::PacketMeta;

use super::{UdpIo, is_later};
use crate::sys::errno;
use crate::sys::recv::Receiver;
use crate::sys::refused;

/// What receives at one local address.
#[derive(Debug)]
pub(super) struct Ear {
    pub(super) receiver: Receiver,
    /// Whether the kernel was asked to coalesce what arrives. That is worth it for streams
    /// and costs 0.15 us per packet for those that come alone, so it waits for a stream.
    coalescing: bool,
}

impl Ear {
    pub(super) fn new() -> Self {
        Self { receiver: Receiver::new(), coalescing: false }
    }
}

impl UdpIo {
    /// One call to the kernel for each local address until one has something; `None`: none has.
    pub(super) fn receive_now(
        &mut self,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<Option<usize>> {
        for _ in 0..self.ears.len() {
            let ear = self.ear;
            self.ear = (ear + 1) % self.ears.len();
            if let Some(packets) = self.receive_at(ear, each)? {
                return Ok(Some(packets));
            }
        }
        Ok(None)
    }

    /// One call to the kernel; `None`: nothing there.
    fn receive_at(
        &mut self,
        local: usize,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<Option<usize>> {
        let socket = self.receivers[local];
        self.stats.receive_calls += 1;
        let mut received = self.ears[local].receiver.receive(&self.sockets[socket]);
        let of_earlier = |e: &io::Error| refused::may_be_of_an_earlier_packet(errno(e));
        if received.as_ref().is_err_and(of_earlier) {
            self.drain_errors(socket);
            received = self.ears[local].receiver.receive(&self.sockets[socket]);
        }
        let ear = &mut self.ears[local];
        let messages = match received {
            Ok(0) => return Ok(None),
            Ok(n) => n,
            // Another error of an earlier packet waits for the next call.
            Err(e) if is_later(&e) || of_earlier(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        self.stats.received_messages += messages as u64;
        if messages > 1 && !ear.coalescing {
            // Nice to have: absent before Linux 5.0.
            let _ = self.sockets[socket].receive_coalesced();
            ear.coalescing = true;
        }
        let now = self.clock.now();
        let place = u8::try_from(local).unwrap_or(0);
        let mut packets = 0;
        for i in 0..messages {
            let arrival = ear.receiver.arrival(i);
            let Some(source) = arrival.source else { continue };
            if arrival.bytes.is_empty() {
                continue;
            }
            let received_at = self.clock.arrival(arrival.beside.stamp_ns, now);
            let meta = PacketMeta { source, local: place, ecn: arrival.beside.ecn, received_at };
            self.stats.received_bytes += arrival.bytes.len() as u64;
            let segment = match arrival.beside.segment_bytes {
                0 => arrival.bytes.len(),
                n => n,
            };
            for packet in arrival.bytes.chunks_mut(segment) {
                packets += 1;
                each(now, meta, packet);
            }
        }
        self.stats.received_packets += packets as u64;
        Ok(Some(packets))
    }
}

//! Sending: headers and payload are written into frames, frames go into the ring, and one
//! notification covers all of them.

use std::io;
use std::net::SocketAddr;

use srd_proto::time::Instant;
use srd_proto::transmit::Transmit;

use super::headers::{ETHERNET_BYTES, HEADERS_BYTES_MAX, Headers, Sum, ip_headers_bytes};
use super::next_hops::Hop;
use super::{Blocked, FRAME_BYTES, Kernel, XdpIo};
use crate::back_ends::io::{PacketIo as _, Segments, SendOutcome};
use crate::sys::shared::xdp::Doorbell;

impl XdpIo {
    pub(super) fn send_batches<S: Segments>(
        &mut self,
        batches: &[(Transmit, S)],
    ) -> io::Result<SendOutcome> {
        let now = self.clock.now();
        self.blocked = None;
        self.reclaim();
        let mut done = 0;
        for batch in batches {
            self.blocked = self.submit(batch, now)?;
            if self.blocked.is_some() {
                break;
            }
            done += 1;
        }
        self.flush();
        if self.blocked.is_none() {
            return Ok(SendOutcome::All);
        }
        if self.waits_for_frames() {
            self.stats.send_blocked += 1; // the UDP sockets have separate counters
        }
        Ok(SendOutcome::Blocked { batches: done })
    }

    /// Queues a batch for the AF_XDP socket, or sends it by the UDP socket. Returns the condition
    /// that the batch has to wait for; `None` if it was accepted, or dropped and counted.
    fn submit<S: Segments>(
        &mut self,
        batch: &(Transmit, S),
        now: Instant,
    ) -> io::Result<Option<Blocked>> {
        let transmit = &batch.0;
        let to = transmit.destination;
        if !self.fits(transmit) || to.is_ipv4() != self.sources[0].is_ipv4() {
            return self.leave_to_kernel(batch);
        }
        match self.next_hops.towards(to, now) {
            (Some(hop), false) => Ok(self.queue_batch(batch, hop)),
            (Some(hop), true) if !self.has_sockets() => {
                self.poke(to);
                Ok(self.queue_batch(batch, hop))
            }
            _ => self.leave_to_kernel(batch),
        }
    }

    /// Returns the number of frames that a batch takes.
    fn frames_of(transmit: &Transmit) -> usize {
        (HEADERS_BYTES_MAX + transmit.segment_bytes).div_ceil(FRAME_BYTES) * transmit.segments
    }

    /// Whether the packets of a batch fit into the MTU of the interface and into the frames.
    fn fits(&self, transmit: &Transmit) -> bool {
        if Self::frames_of(transmit) > self.send_frames {
            return false;
        }
        let ip_bytes = ip_headers_bytes(&transmit.destination.ip()) + transmit.segment_bytes;
        let one_frame = ip_bytes + ETHERNET_BYTES <= FRAME_BYTES;
        ip_bytes <= self.next_hops.mtu() && (one_frame || self.socket.takes_several_frames())
    }

    fn has_sockets(&self) -> bool {
        self.udp().is_some()
    }

    /// Makes the kernel resolve the hardware address of a destination, by sending an empty
    /// datagram.
    fn poke(&mut self, to: SocketAddr) {
        if let Kernel::Elsewhere(socket) = &self.kernel {
            // A peer ignores an empty datagram. If the datagram cannot be sent, another follows.
            let _ = socket.send_to(&[], to);
        }
    }

    fn leave_to_kernel<S: Segments>(
        &mut self,
        batch: &(Transmit, S),
    ) -> io::Result<Option<Blocked>> {
        self.counted.batches_to_kernel += 1;
        let Some(udp) = self.udp_mut() else {
            self.counted.lost_no_way += 1;
            self.stats.send_failed += 1;
            self.poke(batch.0.destination);
            return Ok(None);
        };
        let sent = udp.send(std::slice::from_ref(batch))?;
        Ok((sent != SendOutcome::All).then_some(Blocked::Kernel))
    }

    fn queue_batch<S: Segments>(&mut self, batch: &(Transmit, S), hop: Hop) -> Option<Blocked> {
        let (transmit, segments) = batch;
        if !self.has_free(Self::frames_of(transmit)) {
            return self.no_frames();
        }
        let headers = Headers {
            to_mac: hop.to,
            from_mac: hop.from,
            from: self.source(transmit.entropy, transmit.destination),
            to: transmit.destination,
            dscp: self.dscp,
            ecn: transmit.ecn,
        };
        for (head, payload) in segments.parts() {
            self.queue_packet(&headers, head, payload);
        }
        self.waiting = true;
        self.stats.sent_batches += 1;
        self.stats.sent_packets += transmit.segments as u64;
        self.stats.sent_bytes += transmit.total_bytes as u64;
        self.counted.sent_packets += transmit.segments as u64;
        // Packets bypass the UDP socket, but ICMP errors about them arrive at it.
        let path = usize::from(transmit.entropy.0) % self.sources.len();
        if let Some(udp) = self.udp_mut() {
            udp.expect_errors(path);
        }
        None
    }

    /// Whether this many frames are free. If not, notifies the kernel of the frames in the ring and
    /// checks again.
    fn has_free(&mut self, frames: usize) -> bool {
        if self.free.len() < frames {
            self.flush();
            self.reclaim();
        }
        self.free.len() >= frames
    }

    #[cold]
    fn no_frames(&mut self) -> Option<Blocked> {
        self.counted.send_no_frame += 1;
        if self.next_hops.mtu() > 0 {
            return Some(Blocked::Frames);
        }
        // An interface that is down sends nothing: the packets are lost, as in a full queue.
        self.counted.lost_interface_down += 1;
        self.stats.send_failed += 1;
        None
    }

    /// Writes one packet into free frames, as many as the packet takes.
    fn queue_packet(&mut self, headers: &Headers, head: &[u8], payload: &[u8]) {
        let mut sum = Sum::default();
        sum.add(head);
        sum.add_behind(head.len(), payload);
        let mut rest = [head, payload];
        let mut frame = self.free.pop().expect("as many frames are free as were counted");
        let first = self.socket.bytes(&frame);
        let mut end = headers.write(first, head.len() + payload.len(), sum);
        loop {
            end += move_bytes(&mut rest, &mut self.socket.bytes(&frame)[end..]);
            let more = rest.iter().any(|part| !part.is_empty());
            self.socket.queue(frame, end, more);
            if !more {
                return;
            }
            frame = self.free.pop().expect("as many frames are free as were counted");
            end = 0;
        }
    }

    /// Notifies the kernel of the frames in the send ring.
    pub(super) fn flush(&mut self) {
        if !self.waiting {
            return;
        }
        let answer = self.socket.doorbell(&mut self.stats.send_calls);
        self.refused = matches!(answer, Doorbell::Down(_));
        match answer {
            Doorbell::Taken => self.waiting = false,
            Doorbell::Waiting => self.counted.doorbells_waiting += 1,
            Doorbell::Down(errno) => {
                self.counted.doorbells_refused += 1;
                tracing::debug!("AF_XDP: {}", io::Error::from_raw_os_error(errno));
            }
        }
    }

    /// Takes back the frames whose packets were sent.
    fn reclaim(&mut self) {
        while let Some(frame) = self.socket.completed() {
            self.free.push(frame);
        }
    }
}

/// Moves bytes from the front of `from` to the front of `to`, as many as fit. Returns the number of
/// moved bytes.
fn move_bytes(from: &mut [&[u8]; 2], to: &mut [u8]) -> usize {
    let mut end = 0;
    for part in from {
        let (now, later) = part.split_at(part.len().min(to.len() - end));
        to[end..end + now.len()].copy_from_slice(now);
        end += now.len();
        *part = later;
    }
    end
}

//! A packet back end that copies outer packets to the running captures.
//!
//! Without a capture, the cost is one check of an empty list for each batch.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use srd_net::{
    Clock, IoStats, IoWaker, Notice, PacketIo, Segments, SendOutcome, Undelivered, Wait,
};
use srd_proto::{ADDRESSES_MAX, Entropy, Instant, PacketMeta, Transmit};

use crate::capture::{Direction, Outer, Taps};

/// A back end, such as UDP sockets, whose packets can be captured.
#[derive(Debug)]
pub(crate) struct Tapped<I> {
    io: I,
    taps: Taps,
    buffer: Vec<u8>,
}

impl<I: PacketIo> Tapped<I> {
    pub(crate) fn new(io: I) -> Self {
        Self { io, taps: Taps::default(), buffer: Vec::new() }
    }

    /// Returns the wrapped back end.
    pub(super) fn inner(&mut self) -> &mut I {
        &mut self.io
    }

    /// Returns the running captures.
    pub(super) fn taps(&mut self) -> &mut Taps {
        &mut self.taps
    }

    fn show_sent<S: Segments>(&mut self, batches: &[(Transmit, S)]) {
        let now = self.io.clock().now();
        for (transmit, segments) in batches {
            let source = self.io.source(transmit.entropy, transmit.destination);
            let outer = Outer { source, destination: transmit.destination, ecn: transmit.ecn };
            for (head, payload) in segments.parts() {
                self.buffer.clear();
                self.buffer.extend_from_slice(head);
                self.buffer.extend_from_slice(payload);
                self.taps.outer(now, Direction::Out, &outer, &self.buffer);
            }
        }
    }
}

impl<I: PacketIo> PacketIo for Tapped<I> {
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome> {
        let sent = self.io.send(batches)?;
        if !self.taps.is_empty() {
            let went = match sent {
                SendOutcome::All => batches.len(),
                SendOutcome::Blocked { batches } => batches,
            };
            self.show_sent(&batches[..went]);
        }
        Ok(sent)
    }

    fn receive(
        &mut self,
        wait: Wait,
        mut each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        let taps = &mut self.taps;
        let locals: [_; ADDRESSES_MAX] =
            std::array::from_fn(|at| self.io.local_address_at(u8::try_from(at).unwrap_or(0)));
        self.io.receive(wait, |now, meta, bytes| {
            if !taps.is_empty() {
                let destination = locals[usize::from(meta.local) % ADDRESSES_MAX];
                let outer = Outer { source: meta.source, destination, ecn: meta.ecn };
                taps.outer(now, Direction::In, &outer, bytes);
            }
            each(now, meta, bytes);
        })
    }

    fn clock(&self) -> &Clock {
        self.io.clock()
    }

    fn local_address(&self) -> SocketAddr {
        self.io.local_address()
    }

    fn local_addresses(&self) -> u8 {
        self.io.local_addresses()
    }

    fn local_address_at(&self, place: u8) -> SocketAddr {
        self.io.local_address_at(place)
    }

    fn source(&self, entropy: Entropy, destination: SocketAddr) -> SocketAddr {
        self.io.source(entropy, destination)
    }

    fn paths(&self) -> u16 {
        self.io.paths()
    }

    fn batch_segments_max(&self) -> usize {
        self.io.batch_segments_max()
    }

    fn check_destination(&mut self, destination: SocketAddr, packet_bytes_max: u16) {
        self.io.check_destination(destination, packet_bytes_max);
    }

    fn take_undelivered(&mut self, now: Instant) -> Option<(SocketAddr, Undelivered)> {
        self.io.take_undelivered(now)
    }

    fn refusal(&self, destination: SocketAddr) -> Option<i32> {
        self.io.refusal(destination)
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.io.take_notice()
    }

    fn stats(&self) -> IoStats {
        self.io.stats()
    }

    fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        self.io.sockets()
    }

    fn waker(&mut self) -> io::Result<Arc<IoWaker>> {
        self.io.waker()
    }
}

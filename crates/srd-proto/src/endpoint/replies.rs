//! Answers to strangers: resets and cookies. No state is kept for whom they go to, and only so
//! many wait or leave in a millisecond.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::ids::Entropy;
use crate::peer::bare_header;
use crate::stats::Stats;
use crate::time::{Duration, Instant};
use crate::transmit::{Ecn, Transmit, TransmitBuf};
use crate::wire::Kind;
use crate::wire::handshake::Reset;

/// Answers that may wait to be sent, and that may be sent per millisecond.
const REPLIES_MAX: usize = 16;

/// Answers on their way.
#[derive(Debug)]
pub(super) struct Replies {
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    left: usize,
    refill_at: Instant,
}

impl Replies {
    pub(super) fn new(now: Instant) -> Self {
        Self { waiting: VecDeque::new(), left: REPLIES_MAX, refill_at: now }
    }

    /// Queues an answer, within the limits.
    pub(super) fn push(&mut self, now: Instant, to: SocketAddr, bytes: Vec<u8>) {
        if now >= self.refill_at {
            self.refill_at = now + Duration::from_millis(1);
            self.left = REPLIES_MAX;
        }
        if self.left > 0 && self.waiting.len() < REPLIES_MAX {
            self.left -= 1;
            self.waiting.push_back((to, bytes));
        }
    }

    /// Queues word that we have no such context.
    pub(super) fn push_reset(&mut self, now: Instant, to: SocketAddr, reset: &Reset) {
        let mut bytes = Vec::new();
        bare_header(Kind::Reset, 0).encode(&mut bytes);
        reset.encode(&mut bytes);
        self.push(now, to, bytes);
    }

    /// Writes the next answer.
    pub(super) fn poll_transmit(
        &mut self,
        stats: &mut Stats,
        buf: &mut TransmitBuf,
    ) -> Option<Transmit> {
        let (destination, bytes) = self.waiting.pop_front()?;
        buf.bytes.extend_from_slice(&bytes);
        buf.finish_segment(bytes::Bytes::new());
        stats.tx_pkts += 1;
        stats.tx_bytes += buf.total_bytes() as u64;
        Some(Transmit {
            destination,
            entropy: Entropy(0),
            ecn: Ecn::NotEct,
            segment_bytes: buf.first_segment_bytes(),
            segments: 1,
            total_bytes: buf.total_bytes(),
            control: true,
        })
    }
}

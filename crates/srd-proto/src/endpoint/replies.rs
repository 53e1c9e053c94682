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
use crate::wire::handshake::{COOKIE_BYTES, Reset};

/// Answers that may wait to be sent, and that may be sent per millisecond.
const REPLIES_MAX: usize = 16;
/// How many of them may be demands for a cookie. Each costs a system call on its own, for no two go
/// to the same place, and most go to addresses that never wrote; more handshakes than about as
/// many would not be answered anyway.
const RETRIES_MAX: usize = 2;

/// Answers on their way.
#[derive(Debug)]
pub(super) struct Replies {
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    left: usize,
    retries_left: usize,
    refill_at: Instant,
}

impl Replies {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            waiting: VecDeque::new(),
            left: REPLIES_MAX,
            retries_left: RETRIES_MAX,
            refill_at: now,
        }
    }

    /// Queues word that we have no such context.
    pub(super) fn push_reset(&mut self, now: Instant, to: SocketAddr, reset: &Reset) {
        if self.has_room(now) {
            let mut bytes = Vec::new();
            bare_header(Kind::Reset, 0).encode(&mut bytes);
            reset.encode(&mut bytes);
            self.push(to, bytes);
        }
    }

    /// Queues a demand for a cookie. `cookie` is asked for only if there is room.
    pub(super) fn push_retry(
        &mut self,
        now: Instant,
        to: SocketAddr,
        context: u32,
        cookie: impl FnOnce() -> [u8; COOKIE_BYTES],
    ) {
        if self.has_room(now) && self.retries_left > 0 {
            self.retries_left -= 1;
            let mut bytes = Vec::new();
            bare_header(Kind::Retry, context).encode(&mut bytes);
            bytes.extend_from_slice(&cookie());
            self.push(to, bytes);
        }
    }

    fn has_room(&mut self, now: Instant) -> bool {
        if now >= self.refill_at {
            self.refill_at = now + Duration::from_millis(1);
            self.left = REPLIES_MAX;
            self.retries_left = RETRIES_MAX;
        }
        self.left > 0 && self.waiting.len() < REPLIES_MAX
    }

    fn push(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        self.left -= 1;
        self.waiting.push_back((to, bytes));
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    fn sent(replies: &mut Replies) -> usize {
        let (mut stats, mut buf) = (Stats::default(), TransmitBuf::new(1, 1500));
        core::iter::from_fn(|| {
            buf.clear();
            replies.poll_transmit(&mut stats, &mut buf)
        })
        .count()
    }

    #[test]
    fn a_flood_gets_two_retries_a_millisecond_and_leaves_room_for_resets() {
        let mut replies = Replies::new(Instant::ZERO);
        let to = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7471);
        let reset = Reset { context: 5, number: 6 };
        for ms in 1..=3 {
            let mut cookies = 0;
            for n in 0..50 {
                replies.push_retry(at(1000 * ms + n), to, 1, || {
                    cookies += 1;
                    [7; COOKIE_BYTES]
                });
            }
            assert_eq!(cookies, RETRIES_MAX, "no cookie is made that is not sent");
            for n in 50..100 {
                replies.push_reset(at(1000 * ms + n), to, &reset);
            }
            assert_eq!(sent(&mut replies), REPLIES_MAX);
        }
    }
}

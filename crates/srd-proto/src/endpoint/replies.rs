//! Answers to strangers: Resets and Retries. No state is kept for a stranger. The number of answers
//! that wait, and of those that leave in a millisecond, is bounded.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::ids::Entropy;
use crate::node::shard_of_context;
use crate::peer::{ReplyRoute, bare_header};
use crate::rng::Rng;
use crate::stats::Stats;
use crate::time::{Duration, Instant};
use crate::transmit::{Ecn, Transmit, TransmitBuf};
use crate::wire::Kind;
use crate::wire::handshake::{COOKIE_BYTES, Hello, RETRIED_MAX, Reset, encode_retried, token_of};

/// Maximum number of Resets per millisecond.
const RESETS_MAX: usize = 6;
/// Maximum number of Retries to strangers per millisecond. Each costs a separate system call,
/// because no two have the same destination, and most go to forged addresses. More Retries would be
/// useless, because the rate of handshakes is limited as well.
const RETRIES_MAX: usize = 2;
/// Maximum number of Retries per millisecond to addresses of peers that the application has named.
/// This allowance is separate, so that packets of strangers from other addresses do not reduce it.
const RETRIES_KNOWN_MAX: usize = 8;
/// Maximum number of Retries per millisecond to members of our job. Hosts that are not members
/// cannot cause these Retries.
const RETRIES_JOB_MAX: usize = 64;
/// Number of parts into which a keyed hash of prefixes divides the address space. A stranger with
/// many addresses of one prefix gets only a part of the Retries.
const PARTS: u32 = 64;
/// Minimum time between two Retries to strangers in one part of the address space.
const PART_PAUSE: Duration = Duration::from_millis(1);

/// Kind of recipient of a Retry. Each kind has a separate allowance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recipient {
    /// A host at an address that belongs to no peer that the application has named.
    Stranger,
    /// The address of a peer that the application has named.
    Known,
    /// A member of our job.
    Member,
}

/// An answer that waits to be sent to a stranger.
#[derive(Debug)]
struct Reply {
    route: ReplyRoute,
    /// Number of openings that a Retry answers; zero if the answer is a Reset.
    retried: usize,
    /// Shard that sent the openings which a Retry answers.
    shard: u8,
    bytes: Vec<u8>,
}

/// Answers that wait to be sent, and the number of further answers that may be queued now.
#[derive(Debug)]
pub(super) struct Replies {
    waiting: VecDeque<Reply>,
    resets_left: usize,
    /// Retries that are left in this millisecond, for each [`Recipient`].
    retries_left: [usize; 3],
    refill_at: Instant,
    parts_at: [Instant; PARTS as usize],
    /// The key of the hash that assigns prefixes to parts.
    key: u64,
}

/// Maximum number of Retries per millisecond, for each [`Recipient`].
const RETRIES: [usize; 3] = [RETRIES_MAX, RETRIES_KNOWN_MAX, RETRIES_JOB_MAX];
/// Maximum number of waiting answers.
const REPLIES_MAX: usize = RESETS_MAX + RETRIES_MAX + RETRIES_KNOWN_MAX + RETRIES_JOB_MAX;

impl Replies {
    pub(super) fn new(now: Instant, key: u64) -> Self {
        Self {
            waiting: VecDeque::new(),
            resets_left: RESETS_MAX,
            retries_left: RETRIES,
            refill_at: now,
            parts_at: [now; PARTS as usize],
            key,
        }
    }

    /// Queues a Reset, because the context that a packet names does not exist here.
    pub(super) fn push_reset(&mut self, now: Instant, route: ReplyRoute, reset: &Reset) {
        // E5: Limits of answers to strangers
        if self.has_room(now) && self.resets_left > 0 {
            self.resets_left -= 1;
            let mut bytes = Vec::new();
            bare_header(Kind::Reset, 0).encode(&mut bytes);
            reset.encode(&mut bytes);
            self.waiting.push_back(Reply { route, retried: 0, shard: 0, bytes });
        }
    }

    /// Queues a Retry in answer to an opening, or adds the opening to a waiting Retry. `cookie` is
    /// called only if a new Retry is queued.
    pub(super) fn push_retry(
        &mut self,
        now: Instant,
        (route, recipient): (ReplyRoute, Recipient),
        hello: &Hello<'_>,
        cookie: impl FnOnce() -> [u8; COOKIE_BYTES],
    ) {
        let retried = (hello.context, token_of(hello.noise));
        let mut waiting = self.waiting.iter_mut();
        let shard = shard_of_context(hello.context);
        let joins = |r: &&mut Reply| {
            (1..RETRIED_MAX).contains(&r.retried) && (r.route.to, r.shard) == (route.to, shard)
        };
        if let Some(reply) = waiting.find(joins) {
            reply.retried += 1;
            encode_retried(&mut reply.bytes, retried);
            return;
        }
        let part = self.part_of(route.to.ip());
        // E5: Limits of answers to strangers
        let part_free = recipient != Recipient::Stranger || now >= self.parts_at[part];
        if part_free && self.has_room(now) && self.retries_left[recipient as usize] > 0 {
            self.retries_left[recipient as usize] -= 1;
            self.parts_at[part] = now + PART_PAUSE;
            let mut bytes = Vec::new();
            bare_header(Kind::Retry, 0).encode(&mut bytes);
            bytes.extend_from_slice(&cookie());
            encode_retried(&mut bytes, retried);
            self.waiting.push_back(Reply { route, retried: 1, shard, bytes });
        }
    }

    /// Part of the address space to which a prefix (24 bits of IPv4, 48 of IPv6) belongs.
    fn part_of(&self, ip: IpAddr) -> usize {
        let prefix = match ip.to_canonical() {
            IpAddr::V4(ip) => u64::from(ip.to_bits() >> 8),
            IpAddr::V6(ip) => (ip.to_bits() >> 80) as u64 | 1 << 63,
        };
        Rng::new(prefix ^ self.key).below(PARTS) as usize
    }

    fn has_room(&mut self, now: Instant) -> bool {
        if now >= self.refill_at {
            self.refill_at = now + Duration::from_millis(1);
            self.resets_left = RESETS_MAX;
            self.retries_left = RETRIES;
        }
        self.waiting.len() < REPLIES_MAX
    }

    /// Whether no answer waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes the next waiting answer, if any.
    pub(super) fn poll_transmit(
        &mut self,
        stats: &mut Stats,
        buf: &mut TransmitBuf,
    ) -> Option<Transmit> {
        let Reply { route, bytes, .. } = self.waiting.pop_front()?;
        Some(write_alone(route.to, route.entropy(), &bytes, stats, buf))
    }
}

/// Writes a batch of one packet that does not depend on the state of a peer.
pub(super) fn write_alone(
    destination: SocketAddr,
    entropy: Entropy,
    bytes: &[u8],
    stats: &mut Stats,
    buf: &mut TransmitBuf,
) -> Transmit {
    buf.bytes.extend_from_slice(bytes);
    buf.finish_segment(bytes::Bytes::new());
    stats.tx_pkts += 1;
    stats.tx_bytes += buf.total_bytes() as u64;
    Transmit {
        destination,
        entropy,
        ecn: Ecn::NotEct,
        segment_bytes: buf.first_segment_bytes(),
        segments: 1,
        total_bytes: buf.total_bytes(),
        control: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

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

    const HELLO: Hello<'_> = Hello { mac: [0; 16], context: 1, cookie: [0; 16], noise: &[3; 40] };

    fn route(n: u64) -> ReplyRoute {
        let ip = Ipv4Addr::from_bits(0x0a00_0000 + (u32::try_from(n).unwrap() << 8));
        ReplyRoute { to: SocketAddr::new(IpAddr::V4(ip), 7471), local: 0 }
    }

    /// Number of Retries at a moment, for 500 openings from ports of many prefixes, or of one
    /// prefix.
    fn retries(replies: &mut Replies, now: Instant, recipient: Recipient, prefixes: u64) -> usize {
        let mut cookies = 0;
        for n in 0..500 {
            let mut route = route(n % prefixes);
            route.to.set_port(u16::try_from(n).unwrap());
            replies.push_retry(now, (route, recipient), &HELLO, || {
                cookies += 1;
                [7; COOKIE_BYTES]
            });
        }
        cookies
    }

    #[test]
    fn a_flood_gets_two_retries_a_millisecond_and_leaves_room_for_all_else() {
        let mut replies = Replies::new(Instant::ZERO, 5);
        let reset = Reset { context: 5, number: 6 };
        for ms in 1..=3 {
            let now = at(1000 * ms);
            assert_eq!(retries(&mut replies, now, Recipient::Stranger, 500), RETRIES_MAX);
            for _ in 0..50 {
                replies.push_reset(now, route(0), &reset);
            }
            assert_eq!(retries(&mut replies, now, Recipient::Known, 1), RETRIES_KNOWN_MAX);
            assert_eq!(retries(&mut replies, now, Recipient::Member, 1), RETRIES_JOB_MAX);
            assert_eq!(sent(&mut replies), REPLIES_MAX);
        }
    }

    #[test]
    fn openings_from_one_address_share_a_demand() {
        let mut replies = Replies::new(Instant::ZERO, 5);
        for n in 0..1000 {
            let hello = Hello { context: n + 1, ..HELLO };
            replies.push_retry(at(0), (route(1), Recipient::Known), &hello, || [7; COOKIE_BYTES]);
        }
        let answered: Vec<_> = replies.waiting.iter().map(|reply| reply.retried).collect();
        assert_eq!(answered, [RETRIED_MAX; RETRIES_KNOWN_MAX]);
        let (stats, buf) = (&mut Stats::default(), &mut TransmitBuf::new(1, 1500));
        let first = replies.poll_transmit(stats, buf).unwrap();
        assert!(first.total_bytes < 1000, "shorter than the openings together");
        let body = &buf.bytes[crate::wire::HEADER_BYTES..];
        let (cookie, retried) = crate::wire::handshake::decode_retry(body).unwrap();
        assert_eq!((cookie, retried.count()), ([7; COOKIE_BYTES], RETRIED_MAX));
    }

    #[test]
    fn one_prefix_gets_one_retry_a_millisecond() {
        let mut replies = Replies::new(Instant::ZERO, 5);
        for ms in 1..=3 {
            assert_eq!(retries(&mut replies, at(1000 * ms), Recipient::Stranger, 1), 1);
            sent(&mut replies);
        }
    }
}

//! Moderation of the worker's wake-ups, like the interrupt moderation of network cards.
//!
//! On a link of 1 Gb/s a packet of 9 KB arrives every 72 us, and waking a sleeping thread for each
//! packet costs more than processing it. If a stream wakes a thread too often, the thread naps for
//! a fixed time before it waits, so that several packets arrive together. Interactive traffic moves
//! few bytes between two sleeps, and is never delayed.

use srd_net::{LocalEndpoint, PacketIo};
use srd_proto::{Duration, Instant};

/// Length of a nap: a sleep that an arriving packet does not end.
const NAP: std::time::Duration = std::time::Duration::from_micros(100);
/// If the last sleep ended less than this time ago, the thread is woken too often.
const BUSY: Duration = Duration::from_micros(400);
/// Range of bytes moved between two sleeps for which the thread naps, if the sleeps are less than
/// [`BUSY`] apart. Fewer bytes are interactive traffic. With more bytes the wake-up was worth its
/// cost, and a nap would only delay the stream.
const STREAM_BYTES: std::ops::Range<u64> = 4096..24_576;

/// Time and byte count at the last sleep.
#[derive(Debug)]
pub(super) struct Moderation {
    slept_at: Instant,
    moved_bytes: u64,
}

impl Moderation {
    pub(super) fn new(now: Instant) -> Self {
        Self { slept_at: now, moved_bytes: 0 }
    }

    /// Naps if the next wait would probably be ended at once. Call this before the thread waits for
    /// packets.
    pub(super) fn before_sleep<I: PacketIo>(&mut self, endpoint: &LocalEndpoint<I>) {
        let stats = endpoint.core().stats();
        let moved_bytes = stats.tx_bytes + stats.rx_bytes;
        if self.is_stream(endpoint.now(), moved_bytes) {
            std::thread::sleep(NAP);
        }
        self.slept_at = endpoint.now();
        self.moved_bytes = moved_bytes;
    }

    fn is_stream(&self, now: Instant, moved_bytes: u64) -> bool {
        now.since(self.slept_at) < BUSY && STREAM_BYTES.contains(&(moved_bytes - self.moved_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_few_packets_at_a_time_is_moderated() {
        let at = |us| Instant::ZERO + Duration::from_micros(us);
        let last = Moderation { slept_at: at(1000), moved_bytes: 10_000 };
        assert!(last.is_stream(at(1100), 19_000));
        assert!(!last.is_stream(at(1100), 10_300), "a word of a conversation");
        assert!(!last.is_stream(at(2000), 19_000), "it has slept for long");
        assert!(!last.is_stream(at(1100), 90_000), "much came at a time already");
    }
}

//! Amount of data that arrived at the server, and the time in which it arrived.

use std::time::Instant;

/// Number of bytes that arrived, with the times of the first byte and of the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    bytes: u64,
    span: Option<(Instant, Instant)>,
}

impl Received {
    /// Counts bytes that have just arrived.
    pub(super) fn add(&mut self, bytes: u64) {
        let now = Instant::now();
        let first = self.span.map_or(now, |(first, _)| first);
        self.bytes += bytes;
        self.span = Some((first, now));
    }

    /// Adds the bytes that another thread counted.
    pub(super) fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    /// Returns the number of bytes that arrived.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the time from the first byte to the last, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.span.map_or(0.0, |(first, last)| (last - first).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn the_span_of_several_threads_is_from_the_first_byte_to_the_last() {
        let mut a = Received::default();
        a.add(1);
        thread::sleep(Duration::from_millis(2));
        let mut b = Received::default();
        b.add(2);
        let mut all = Received::default();
        all.merge(b);
        all.merge(a);
        assert_eq!(all.bytes, 3);
        assert!(all.seconds() >= 0.002);
        all.merge(Received::default());
        assert_eq!(all.bytes, 3);
    }
}

//! Writes of an application to a flow: all bytes at once, or pieces of equal size at equal
//! distances in time.

use srd_proto::time::{Duration, Instant};

use super::config::TcpConfig;

/// Writes of an application to one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writes {
    total: u64,
    piece: u64,
    gap: Duration,
    /// Number of bytes that have been written so far.
    written: u64,
    /// Time of the next write; `None` once all bytes are written.
    next_at: Option<Instant>,
}

impl Writes {
    /// Creates the writes of a flow of `total` bytes. The first piece is written at `now`.
    pub(super) fn new(config: &TcpConfig, total: u64, now: Instant) -> Self {
        let piece = if config.write_bytes == 0 { total } else { config.write_bytes };
        let mut writes =
            Self { total, piece, gap: config.write_gap, written: 0, next_at: Some(now) };
        writes.advance(now);
        writes
    }

    /// Writes the pieces that are due by now.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some(at) = self.next_at.filter(|at| *at <= now) {
            self.written = self.written.saturating_add(self.piece).min(self.total);
            self.next_at = (self.written < self.total).then(|| at + self.gap);
        }
    }

    /// Returns the number of bytes that have been written so far.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Returns the time of the next write; `None` once all bytes are written.
    pub(super) const fn next_at(&self) -> Option<Instant> {
        self.next_at
    }
}

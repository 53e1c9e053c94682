//! Writes of an application to a flow: all at once, or pieces of one size at equal distances.

use srd_proto::time::{Duration, Instant};

use super::config::TcpConfig;

/// The writes of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writes {
    total: u64,
    piece: u64,
    gap: Duration,
    /// Bytes that have been written.
    written: u64,
    /// Time of the next piece; `None` once everything is written.
    next_at: Option<Instant>,
}

impl Writes {
    /// A flow of `total` bytes whose first piece is written now.
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

    /// Bytes that have been written.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Time of the next piece.
    pub(super) const fn next_at(&self) -> Option<Instant> {
        self.next_at
    }
}

//! Long messages: their receiver reads them.

use super::Rdm;
use super::deliver::Landing;
use super::pieces::PIECES_MAX;
use super::wire::LongPiece;

/// Where a long message lies at its sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongIn {
    /// The sender's run.
    pub run: u64,
    pub pieces: [LongPiece; PIECES_MAX],
}

impl LongIn {
    pub(super) fn of(run: u64, from: &[LongPiece]) -> Self {
        let mut pieces = [LongPiece::default(); PIECES_MAX];
        for (to, from) in pieces.iter_mut().zip(from) {
            *to = *from;
        }
        Self { run, pieces }
    }
}

impl Rdm {
    /// Begins to read a message into its receive.
    pub(super) fn begin_read(&mut self, landing: Landing, from: &LongIn) {
        let _ = from;
        self.landed(&landing, Some(super::Outcome::Protocol));
    }
}

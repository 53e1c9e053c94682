//! Log lines about connections of unknown clients, limited in number.
//!
//! Bound: [`LINES_MAX`] lines within [`WINDOW`]. The first line after that contains the number of
//! lines that were left out.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Largest number of lines in one window.
const LINES_MAX: u32 = 20;
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(10);

/// Counts the lines of the current window.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Start of the current window; `None` before the first line.
    since: Option<Instant>,
    said: u32,
    left_out: u64,
}

/// Number of lines that were left out before this line, as text.
pub(crate) struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} lines before this one were left out)"),
        }
    }
}

impl Lines {
    /// Logs a line, unless the window already has too many lines.
    pub(crate) fn say(&self, line: impl FnOnce(LeftOut)) {
        if let Some(left_out) = self.next(Instant::now()) {
            line(LeftOut(left_out));
        }
    }

    /// Returns the number of lines that were left out, if a line may be logged now; otherwise
    /// `None`.
    fn next(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (state.since, state.said) = (Some(now), 0);
        }
        if state.said >= LINES_MAX {
            state.left_out += 1;
            return None;
        }
        state.said += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lines_are_said_and_the_others_counted() {
        let (lines, start) = (Lines::default(), Instant::now());
        let said = (0..1000).filter(|_| lines.next(start).is_some()).count();
        assert_eq!(said, 20);
        assert_eq!(lines.next(start + WINDOW), Some(980));
        assert_eq!(lines.next(start + WINDOW), Some(0));
        assert_eq!(LeftOut(0).to_string(), "");
        assert!(LeftOut(980).to_string().contains("980 lines"));
    }
}

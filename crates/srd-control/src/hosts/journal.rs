//! Lines for the log about hosts: enrolments, connections, ends of sessions, and refusals. They
//! contain no token, no key, and no text of a host that was not admitted.
//!
//! Strangers can cause refusals without an end. So the number of lines in a minute is limited, and
//! the next line has the number of those that were left out.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use srd_enrol::RefusalKind;

/// Time in which a number of lines is permitted.
const PERIOD: Duration = Duration::from_secs(60);
/// Largest number of lines about refusals in a period.
const REFUSALS_MAX: u32 = 20;
/// Largest number of lines about sessions in a period.
const SESSIONS_MAX: u32 = 600;

/// Function that writes a line to the log. It does not wait.
pub(super) type Write = Box<dyn Fn(&str) + Send + Sync>;

/// The lines about hosts.
pub(super) struct Journal {
    write: Write,
    refusals: Mutex<Limit>,
    sessions: Mutex<Limit>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

impl Default for Journal {
    /// Discards all lines.
    fn default() -> Self {
        Self::new(Box::new(|_: &str| {}))
    }
}

impl Journal {
    pub(super) fn new(write: Write) -> Self {
        let limit = |lines_max| Mutex::new(Limit::new(lines_max));
        Self { write, refusals: limit(REFUSALS_MAX), sessions: limit(SESSIONS_MAX) }
    }

    /// Logs a line about a host that is admitted.
    pub(super) fn session(&self, now: Instant, line: &str) {
        self.say(&self.sessions, now, line);
    }

    /// Logs a refusal.
    pub(super) fn refusal(&self, now: Instant, from: SocketAddr, kind: RefusalKind) {
        self.say(&self.refusals, now, &format!("refused {from}: {}", in_words(kind)));
    }

    fn say(&self, limit: &Mutex<Limit>, now: Instant, line: &str) {
        let admitted = limit.lock().unwrap_or_else(PoisonError::into_inner).admit(now);
        match admitted {
            None => {}
            Some(0) => (self.write)(line),
            Some(count) => {
                (self.write)(&format!("{line}; {count} lines of this kind were left out before"));
            }
        }
    }
}

/// Limit of the lines of a kind.
#[derive(Debug)]
struct Limit {
    lines_max: u32,
    /// Begin of the period; `None`: no line yet.
    begun: Option<Instant>,
    /// Number of lines in the period.
    lines: u32,
    /// Number of lines that were left out since the last line.
    left_out: u64,
}

impl Limit {
    fn new(lines_max: u32) -> Self {
        Self { lines_max, begun: None, lines: 0, left_out: 0 }
    }

    /// Counts a line. Returns the number of lines that were left out before it; `None`: it is left
    /// out as well.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_over = |begun: Instant| now.saturating_duration_since(begun) >= PERIOD;
        if self.begun.is_none_or(is_over) {
            (self.begun, self.lines) = (Some(now), 0);
        }
        if self.lines >= self.lines_max {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Returns the words for a kind of refusals.
pub(super) fn in_words(kind: RefusalKind) -> &'static str {
    match kind {
        RefusalKind::Version => "another version of the protocol",
        RefusalKind::TokenUnknown => "no such enrolment token",
        RefusalKind::TokenExpired => "the enrolment token has expired",
        RefusalKind::TokenUsed => "the enrolment token has no use left",
        RefusalKind::NameTaken => "another host has the name, or this host has another one",
        RefusalKind::KeyTaken => "another host has the public key",
        RefusalKind::EndpointTaken => "another host has the endpoint",
        RefusalKind::HostUnknown => "the host has not enrolled, or was removed",
        RefusalKind::OtherKey => "the host has enrolled with another public key",
        RefusalKind::Invalid => "a message is not valid",
        RefusalKind::Full => "there are no more addresses or hosts",
        RefusalKind::Superseded => "the host has connected again from elsewhere",
        RefusalKind::Unavailable => "too many requests of the host, or the store does not answer",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn strangers_cause_a_limited_number_of_lines_and_the_others_are_counted() {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&lines);
        let keep = move |line: &str| kept.lock().unwrap().push(line.to_owned());
        let journal = Journal::new(Box::new(keep));
        let from: SocketAddr = "192.0.2.1:5".parse().unwrap();
        let refuse = |now| journal.refusal(now, from, RefusalKind::TokenUnknown);
        let begin = Instant::now();
        (0..REFUSALS_MAX + 7).for_each(|_| refuse(begin));
        let one = "refused 192.0.2.1:5: no such enrolment token";
        assert_eq!(*lines.lock().unwrap(), [one; REFUSALS_MAX as usize]);
        // Lines about sessions are counted separately.
        (0..=SESSIONS_MAX).for_each(|_| journal.session(begin, "a"));
        let all = (REFUSALS_MAX + SESSIONS_MAX) as usize;
        assert_eq!(lines.lock().unwrap().len(), all);
        refuse(begin + PERIOD);
        refuse(begin + PERIOD);
        let lines = lines.lock().unwrap();
        assert_eq!(lines[all], format!("{one}; 7 lines of this kind were left out before"));
        assert_eq!(lines[all + 1], one);
    }
}

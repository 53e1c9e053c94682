//! Decides which lines the log contains about peers that come up and go down.
//!
//! ```text
//!   state      down  up   down up                 down                      up
//!   ------------|----|-----|---|-------------------|---------|---------------|----->
//!   log            "answers"                          "does not answer"   "answers, after 35 s"
//!                                                     held back for HOLD
//! ```
//!
//! If a peer starts at about the same time, handshakes often begin before it listens, and two
//! starting peers may restart each other's session. Therefore a line reports that a peer does not
//! answer only after `HOLD`. If a peer had been up for `SETTLED`, a shorter interruption is
//! reported when it is over. If many peers change at once, for example when a switch fails, one
//! line reports all of them.
//!
//! Bounds: one entry for each peer, and at most `LINES_MAX` lines of a kind at a time.

use std::collections::BTreeMap;

use srd_proto::{Duration, Instant};

use super::evidence::Problem;
use crate::snapshot::PeerState;

/// Time for which a peer must be down before a line reports it.
const HOLD: Duration = Duration::from_secs(2);
/// Time for which a peer must have been up, so that a short interruption is reported.
const SETTLED: Duration = Duration::from_secs(10);
/// Shortest interruption whose length a line contains.
const BLIP_MIN: Duration = Duration::from_millis(100);
/// Largest number of peers at a time that have a line each; more peers share one line.
const LINES_MAX: usize = 4;

/// One line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LogLine {
    /// Whether the line is a warning.
    pub(super) is_warning: bool,
    pub(super) text: String,
}

/// Name of a peer, and the reason why it does not answer, if known.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) name: String,
    pub(super) problem: Option<Problem>,
}

/// The last reported state of each peer. Entries belong to names, which stay the same when a peer's
/// context is created again.
#[derive(Debug, Default)]
pub(super) struct PeerLog {
    peers: BTreeMap<String, Entry>,
    /// Whether a line may have to be logged.
    is_stirred: bool,
}

#[derive(Debug)]
struct Entry {
    state: PeerState,
    since: Instant,
    /// The state in the last line about the peer, and the time when that state began.
    said: Option<(PeerState, Instant)>,
    /// The reason in the last line about the peer; empty if the line contained no reason.
    said_problem: &'static str,
    /// Length of a short interruption that is still to be reported.
    blip: Option<Duration>,
}

/// The parts of a line about one peer: its name, and the text after the verb.
type Say = (String, String);

impl PeerLog {
    /// Records a new state of a peer.
    pub(super) fn changed(&mut self, now: Instant, peer: &str, state: PeerState) {
        self.is_stirred = true;
        let fresh = Entry {
            state: PeerState::Connecting,
            since: now,
            said: None,
            said_problem: "",
            blip: None,
        };
        let entry = self.peers.entry(peer.to_owned()).or_insert(fresh);
        // A peer whose context is created again may be up twice in a row.
        if let (PeerState::Down, PeerState::Up) = (entry.state, state)
            && let Some((PeerState::Up, said_at)) = entry.said
            && entry.since.since(said_at) >= SETTLED
        {
            entry.blip = Some(now.since(entry.since));
        }
        (entry.state, entry.since) = (state, now);
    }

    /// Records that the reason why some peer does not answer may have changed.
    pub(super) fn stir(&mut self) {
        self.is_stirred = true;
    }

    /// Removes a peer, because it no longer exists under this name.
    pub(super) fn forget(&mut self, peer: &str) {
        self.peers.remove(peer);
    }

    /// Returns the lines to log at this time.
    pub(super) fn lines(&mut self, now: Instant, show: impl Fn(&str) -> Shown) -> Vec<LogLine> {
        if !std::mem::take(&mut self.is_stirred) {
            return Vec::new();
        }
        let (mut up, mut down, mut again) = (Vec::new(), Vec::new(), Vec::new());
        let mut reasons = Vec::new();
        let after = |gap: Option<Duration>| {
            gap.map_or_else(String::new, |gap| format!(", after {}", span(gap)))
        };
        for (name, entry) in &mut self.peers {
            let said = entry.said.map(|(state, _)| state);
            match entry.state {
                PeerState::Up if said != Some(PeerState::Up) => {
                    let gap = entry.said.map(|(_, at)| entry.since.since(at));
                    entry.said = Some((PeerState::Up, entry.since));
                    (entry.blip, entry.said_problem) = (None, "");
                    up.push((show(name).name, after(gap)));
                }
                PeerState::Up => {
                    let blip = entry.blip.take();
                    // If the peer went down and up within one check, for example after a pause of
                    // this daemon, the length of the interruption is not known. If it is very
                    // short, it does not matter. In these cases the line does not contain the
                    // length.
                    let known = |gap| Some(gap).filter(|gap| *gap >= BLIP_MIN);
                    again.extend(blip.map(|gap| (show(name).name, after(known(gap)))));
                }
                PeerState::Down if said != Some(PeerState::Down) => {
                    if now.since(entry.since) < HOLD {
                        self.is_stirred = true;
                        continue;
                    }
                    entry.said = Some((PeerState::Down, entry.since));
                    let Shown { name, problem } = show(name);
                    entry.said_problem = problem.as_ref().map_or("", |problem| problem.kind);
                    let why = problem.map_or_else(String::new, |p| format!(": {}", p.text));
                    down.push((name, why));
                }
                PeerState::Down => {
                    let Shown { name, problem } = show(name);
                    let Some(problem) = problem else { continue };
                    if problem.kind != entry.said_problem {
                        entry.said_problem = problem.kind;
                        reasons.push((name, format!(": {}", problem.text)));
                    }
                }
                PeerState::Connecting => {}
            }
        }
        let mut lines = say(false, &up, ["answers", "answer"]);
        lines.extend(say(true, &down, ["does not answer", "do not answer"]));
        let words = ["still does not answer", "still do not answer, for reasons known now"];
        lines.extend(say(true, &reasons, words));
        lines.extend(say(false, &again, ["answers again", "answer again"]));
        lines
    }
}

/// Returns one line for each peer, or one line for all if there are more than `LINES_MAX`.
fn say(is_warning: bool, about: &[Say], [one, many]: [&str; 2]) -> Vec<LogLine> {
    let line = |text| LogLine { is_warning, text };
    if about.len() <= LINES_MAX {
        let each = |(name, rest): &Say| line(format!("{name} {one}{rest}"));
        return about.iter().map(each).collect();
    }
    let named: Vec<&str> = about.iter().take(LINES_MAX).map(|(name, _)| name.as_str()).collect();
    let text = format!(
        "{} peers {many}: {} and {} more; `srd status` lists them",
        about.len(),
        named.join(", "),
        about.len() - LINES_MAX
    );
    vec![line(text)]
}

/// Formats a time as `0.8 s`, `35 s`, `12 min`.
fn span(time: Duration) -> String {
    let ms = time.as_nanos() / 1_000_000;
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..120_000 => format!("{} s", ms / 1000),
        _ => format!("{} min", ms / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn texts(log: &mut PeerLog, ms: u64) -> Vec<String> {
        let name = |name: &str| Shown { name: name.to_owned(), problem: None };
        let mark =
            |line: LogLine| format!("{}{}", if line.is_warning { "! " } else { "" }, line.text);
        log.lines(at(ms), name).into_iter().map(mark).collect()
    }

    #[test]
    fn regression_a_peer_that_is_up_twice_in_a_row_was_not_interrupted_in_between() {
        let (mut log, p) = (PeerLog::default(), "p1");
        log.changed(at(0), p, PeerState::Up);
        assert_eq!(texts(&mut log, 100), ["p1 answers"]);
        log.changed(at(20_000), p, PeerState::Down);
        log.changed(at(20_500), p, PeerState::Up);
        assert_eq!(texts(&mut log, 20_600), ["p1 answers again, after 0.5 s"]);
        // The context is created again, for example with another endpoint.
        log.changed(at(200_000), p, PeerState::Up);
        assert!(texts(&mut log, 200_100).is_empty());
    }

    #[test]
    fn regression_a_peer_that_flaps_while_it_starts_is_said_once_and_without_a_warning() {
        let (mut log, p) = (PeerLog::default(), "p1");
        log.changed(at(100), p, PeerState::Up);
        assert_eq!(texts(&mut log, 1000), ["p1 answers"]);
        log.changed(at(1200), p, PeerState::Down);
        assert!(texts(&mut log, 2000).is_empty());
        log.changed(at(2100), p, PeerState::Up);
        assert!(texts(&mut log, 3000).is_empty());
        assert!(texts(&mut log, 60_000).is_empty());
    }

    #[test]
    fn silence_that_lasts_is_a_warning_and_its_end_says_how_long() {
        let (mut log, p) = (PeerLog::default(), "p1");
        log.changed(at(0), p, PeerState::Down);
        assert!(texts(&mut log, 1000).is_empty());
        assert_eq!(texts(&mut log, 2000), ["! p1 does not answer"]);
        assert!(texts(&mut log, 3000).is_empty());
        log.changed(at(35_000), p, PeerState::Up);
        assert_eq!(texts(&mut log, 35_100), ["p1 answers, after 35 s"]);
        // A short interruption is reported when it is over, because the peer had been up for long.
        log.changed(at(50_000), p, PeerState::Down);
        assert!(texts(&mut log, 50_900).is_empty());
        log.changed(at(50_800), p, PeerState::Up);
        assert_eq!(texts(&mut log, 51_000), ["p1 answers again, after 0.8 s"]);
        // The peer went down and up at one check, as after a pause of this daemon: the length is
        // not known.
        log.changed(at(65_000), p, PeerState::Down);
        log.changed(at(65_000), p, PeerState::Up);
        assert_eq!(texts(&mut log, 65_000), ["p1 answers again"]);
        // An interruption that is too short is reported without its length.
        log.changed(at(80_000), p, PeerState::Down);
        log.changed(at(80_030), p, PeerState::Up);
        assert_eq!(texts(&mut log, 80_100), ["p1 answers again"]);
        log.changed(at(90_000), p, PeerState::Down);
        log.forget(p);
        assert!(texts(&mut log, 99_000).is_empty());
    }

    #[test]
    fn regression_two_hundred_dead_peers_are_one_line() {
        let mut log = PeerLog::default();
        for n in 0..200 {
            log.changed(at(n), &format!("p{n}"), PeerState::Down);
        }
        let lines = texts(&mut log, 3000);
        let [line] = lines.as_slice() else { panic!("{} lines", lines.len()) };
        let wanted =
            "! 200 peers do not answer: p0, p1, p10, p100 and 196 more; `srd status` lists them";
        assert_eq!(line, wanted);
        for n in 0..4 {
            log.changed(at(4000), &format!("p{n}"), PeerState::Up);
        }
        assert_eq!(texts(&mut log, 4000).len(), LINES_MAX);
    }

    #[test]
    fn a_reason_is_said_with_the_warning_and_another_one_when_it_is_known() {
        let mut log = PeerLog::default();
        let with = |kind: &'static str| {
            move |name: &str| Shown {
                name: name.to_owned(),
                problem: Some(Problem { kind, text: format!("because {kind}") }),
            }
        };
        let texts = |lines: Vec<LogLine>| lines.into_iter().map(|l| l.text).collect::<Vec<_>>();
        log.changed(at(0), "p1", PeerState::Down);
        assert_eq!(texts(log.lines(at(3000), with("a"))), ["p1 does not answer: because a"]);
        log.stir();
        assert!(log.lines(at(4000), with("a")).is_empty(), "it was said");
        log.stir();
        assert_eq!(texts(log.lines(at(5000), with("b"))), ["p1 still does not answer: because b"]);
        assert!(log.lines(at(6000), with("c")).is_empty(), "nothing stirs");
    }
}

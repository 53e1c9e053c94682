//! Probes of paths. They show whether a bad path works again. After a timer has found a loss, they
//! show which of all paths work.

use super::{DEAD_AFTER, PENALTY_MAX, PathId, PathSet, PathState, Slot};
use crate::config::Spray;
use crate::time::{Duration, Instant};

/// Number of answers in a row that restore a path.
const ANSWERS_NEEDED: u8 = 2;
/// Maximum pause between two probes of a bad path.
const PROBE_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Maximum pause between two probes of a path that never passed a packet: a firewall may block it.
const PROBE_INTERVAL_NEVER_PASSED: Duration = Duration::from_secs(16);
/// Number of paths that one sender probes in each base round trip after a timer found a loss.
const ASKED_AT_ONCE: u64 = 16;
/// Number of times that all unconfirmed paths are probed after pauses of equal length. If a reason
/// to probe them comes soon after each pause, later pauses double.
const ASKS_ALIKE: u8 = 3;
/// Maximum pause before all unconfirmed paths may be probed again.
const ASK_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Number of pauses that must pass without a reason to probe all unconfirmed paths. After that the
/// pauses are short again.
const ASK_PAUSES_QUIET: u64 = 4;
/// Time without a confirmation after which a path that carries unreliable packets is probed.
const WATCH_EVERY: Duration = Duration::from_millis(20);
/// Minimum time between two probes of paths that carry unreliable packets.
const WATCH_PAUSE: Duration = Duration::from_millis(2);
/// Minimum time that a probe of a path with unreliable packets waits for its answer.
const WATCH_ANSWER_MIN: Duration = Duration::from_millis(10);

/// A probe of a path that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathProbe {
    pub path: PathId,
}

impl PathSet {
    /// Probes all paths that have not been confirmed since `sent_at`, the time at which a packet
    /// was sent whose loss a timer found. Other paths have probably failed as well, and each would
    /// cost another lost packet and another timeout. Several paths are probed in each `rtt_base`,
    /// and are skipped until they answer. A path that does not answer within `pause` is assumed
    /// bad. If many senders share the receiver, their number is a more likely cause of the loss
    /// than a path; therefore all of them together probe as often as one sender alone.
    pub(crate) fn ask_all(
        &mut self,
        now: Instant,
        sent_at: Instant,
        rtt_base: Duration,
        pause: Duration,
    ) {
        if self.policy != Spray::Adaptive || now < self.asked_until {
            return;
        }
        let mut at = now;
        // P15: Probes of all unconfirmed paths
        let senders = u64::from(self.senders.max(self.own_senders).max(1));
        let group = (ASKED_AT_ONCE / senders).max(1);
        let round = rtt_base.times(group * senders).over(ASKED_AT_ONCE);
        let unheard = |s: &&mut Slot| s.state == PathState::Good && s.confirmed_at <= sent_at;
        for (asked, slot) in self.slots.iter_mut().filter(unheard).enumerate() {
            at = now + round.times(asked as u64 / group);
            slot.penalise(now, PENALTY_MAX);
            (slot.awaiting, slot.watched) = (false, false);
            slot.probe_interval = pause;
            slot.probe_at = at;
            self.probe_due = now;
        }
        // If all paths have to be probed again soon, more probes do not help: for example, a host
        // that is busy with probes answers them late.
        let quiet = now > self.asked_until + self.ask_pause.times(ASK_PAUSES_QUIET);
        self.asks_alike = if quiet { 0 } else { self.asks_alike.saturating_add(1) };
        let double = self.asks_alike >= ASKS_ALIKE;
        let longer = if double { self.ask_pause.times(2) } else { Duration::ZERO };
        self.ask_pause = pause.times(2).max(longer.min(ASK_PAUSE_MAX));
        self.asked_until = at + self.ask_pause;
    }

    /// Sets the number of senders that share the peer as their receiver.
    pub(crate) fn set_senders(&mut self, senders: u16) {
        self.senders = senders;
    }

    /// Sets the number of senders that share this endpoint as their receiver.
    pub(crate) fn set_own_senders(&mut self, senders: u16) {
        self.own_senders = senders;
    }

    /// Checks whether a path on which an unreliable packet left still passes packets: unreliable
    /// packets are never acknowledged. `pause` is the time that an answer may take.
    pub(crate) fn watch(&mut self, now: Instant, path: PathId, pause: Duration) {
        let slot = &mut self.slots[path.0 as usize];
        // P16: Probes beside unreliable datagrams
        let idle = slot.state == PathState::Good && slot.probe_at == Instant::FAR_FUTURE;
        let unheard = now.since(slot.confirmed_at) >= WATCH_EVERY;
        if self.policy == Spray::Adaptive && idle && unheard && now >= self.watch_at {
            let pause = pause.max(WATCH_ANSWER_MIN);
            (slot.awaiting, slot.watched) = (false, true);
            slot.probe_interval = pause;
            slot.probe_at = now;
            self.probe_due = now;
            self.watch_at = now + WATCH_PAUSE;
            if self.most_are_bad() {
                self.ask_witness(now, path.0, pause);
            }
        }
    }

    /// Whether half of the paths or more are bad. Silence alone then condemns no further path.
    fn most_are_bad(&self) -> bool {
        usize::from(self.bad) * 2 >= self.slots.len()
    }

    /// Probes the path that was confirmed last, along with the path `beside`. Half of all paths are
    /// bad, so silence alone does not condemn `beside`; an answer on the other path shows that the
    /// peer answers.
    fn ask_witness(&mut self, now: Instant, beside: u8, pause: Duration) {
        let may_tell = |i: u8, s: &Slot| i != beside && s.state == PathState::Good && s.passed;
        let witness = (0u8..=u8::MAX)
            .zip(&mut self.slots)
            .filter(|(i, s)| may_tell(*i, s))
            .max_by_key(|(_, s)| s.confirmed_at);
        let idle = witness.filter(|(_, s)| s.probe_at == Instant::FAR_FUTURE);
        if let Some((_, slot)) = idle {
            slot.awaiting = false;
            slot.probe_interval = pause;
            slot.probe_at = now;
            self.probe_due = now;
        }
    }

    /// Records a tail probe or an MTU probe that left on a path. If it is not answered, the next
    /// such probe uses another path.
    pub(crate) fn on_probe_sent(&mut self, path: PathId) {
        self.slots[path.0 as usize].unproven = true;
    }

    /// Time at which the next probe of a path is due.
    pub(crate) fn probe_due(&self) -> Instant {
        self.probe_due
    }

    /// Returns the path that is due for a probe now: a bad path, a path that [`PathSet::ask_all`]
    /// selected, or a path with unreliable packets.
    pub(crate) fn next_probe(&mut self, now: Instant) -> Option<PathProbe> {
        if now < self.probe_due {
            return None;
        }
        let due = (0u8..=u8::MAX).find(|&i| self.is_due(i, now));
        if let Some(i) = due {
            let slot = &mut self.slots[i as usize];
            slot.awaiting = true;
            slot.probe_at = now + slot.probe_interval;
        }
        self.probe_due = self.slots.iter().map(|s| s.probe_at).min().unwrap_or(Instant::FAR_FUTURE);
        due.map(|i| PathProbe { path: PathId(i) })
    }

    /// Whether a path is due for a probe now. If its previous probe was not answered, the path is
    /// assumed bad first.
    fn is_due(&mut self, path: u8, now: Instant) -> bool {
        let most = self.most_are_bad();
        let passed_at = self.confirmed_at;
        let Some(slot) = self.slots.get_mut(path as usize).filter(|s| s.probe_at <= now) else {
            return false;
        };
        let asked_at = slot.probe_at - slot.probe_interval;
        let pause = slot.probe_interval;
        let mut condemned = false;
        if slot.awaiting {
            slot.fail(now, asked_at);
        }
        if slot.state == PathState::Good && slot.awaiting {
            let others_pass = passed_at > asked_at;
            if most && !others_pass {
                // As far as is known, the cause is not the path: it keeps its penalty.
                slot.awaiting = false;
                slot.probe_at = Instant::FAR_FUTURE;
                return false;
            }
            if most && slot.fails < DEAD_AFTER {
                self.ask_witness(now, path, pause);
                return true;
            }
            slot.state = PathState::AssumedBad;
            self.bad += 1;
            condemned = slot.watched;
        }
        if slot.state == PathState::AssumedBad {
            slot.answers = if slot.awaiting { 0 } else { slot.answers };
            // P9: Probes of condemned paths
            let longest =
                if slot.passed { PROBE_INTERVAL_MAX } else { PROBE_INTERVAL_NEVER_PASSED };
            slot.probe_interval = slot.probe_interval.times(2).min(longest);
        }
        if condemned {
            // Other paths have probably failed as well.
            self.ask_all(now, asked_at, pause.over(ASKED_AT_ONCE), pause);
        }
        true
    }

    /// Processes the answer to a probe on a path. For a bad path, the first answer causes another
    /// probe at once, and the second in a row restores it.
    pub(crate) fn on_probe_answer(&mut self, now: Instant, path: PathId) {
        self.confirmed_at = now;
        let slot = &mut self.slots[path.0 as usize];
        if slot.state != PathState::AssumedBad {
            if slot.awaiting {
                slot.penalty = 0;
            }
            slot.prove(now);
            return;
        }
        slot.answers += 1;
        slot.awaiting = false;
        slot.passed = true;
        // P9: Probes of condemned paths
        if slot.answers >= ANSWERS_NEEDED {
            slot.state = PathState::Good;
            slot.prove(now);
            self.bad -= 1;
        } else {
            slot.probe_at = now;
            self.probe_due = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const PATHS: u16 = 64;
    const RTT: Duration = Duration::from_micros(10);
    const PAUSE: Duration = Duration::from_micros(100);
    const START: Instant = Instant::from_nanos(1_000_000);

    fn paths() -> PathSet {
        PathSet::new(&Config { paths: PATHS, ..Config::default() }, 1)
    }

    fn dead(path: PathId) -> bool {
        path.0 % 4 == 1
    }

    /// Simulates a time span in steps of one round trip: sends the probes that are due in each; all
    /// paths except the dead paths answer in the next step. Returns the number of probes.
    fn probe(paths: &mut PathSet, span: Duration, dead: impl Fn(PathId) -> bool) -> usize {
        let (mut now, mut sent) = (START, 0);
        while now < START + span {
            let mut answers = alloc::vec::Vec::new();
            while let Some(PathProbe { path }) = paths.next_probe(now) {
                sent += 1;
                answers.extend((!dead(path)).then_some(path));
            }
            now += RTT;
            for path in answers {
                paths.on_probe_answer(now, path);
            }
        }
        sent
    }

    #[test]
    fn one_pause_after_a_timer_found_a_loss_all_dead_paths_are_known() {
        let mut paths = paths();
        paths.ask_all(START, START, RTT, PAUSE);
        let sent = probe(&mut paths, PAUSE.times(2), dead);
        assert_eq!(paths.counts(START), [48, 0, 16, 0]);
        assert_eq!(sent, 64 + 16, "each once, and the dead once more");
        for _ in 0..1000 {
            assert!(!dead(paths.pick(START + PAUSE.times(2), RTT)));
        }
    }

    #[test]
    fn endpoints_that_receive_from_a_crowd_probe_as_often_as_one_sender() {
        let mut paths = paths();
        paths.set_own_senders(48);
        paths.ask_all(START, START, RTT, PAUSE);
        // A path in three round trips: 48 contexts together probe sixteen paths in each.
        assert_eq!(probe(&mut paths, RTT.times(30), |_| false), 10);
    }

    #[test]
    fn data_takes_paths_that_answered_while_others_have_not() {
        let mut paths = paths();
        paths.ask_all(START, START, RTT, PAUSE);
        probe(&mut paths, RTT.times(5), dead);
        assert_eq!(paths.counts(START), [48, 16, 0, 0], "nothing is held to be bad yet");
        for _ in 0..100 {
            assert!(!dead(paths.pick(START + RTT.times(5), RTT)));
        }
    }

    #[test]
    fn paths_that_were_heard_of_since_are_not_asked() {
        let mut paths = paths();
        for path in 0..40 {
            paths.on_acked(START + RTT, PathId(path), 0, path.into());
        }
        paths.ask_all(START + RTT, START, RTT, PAUSE);
        assert_eq!(probe(&mut paths, PAUSE, |_| false), 24);
        // All paths may have answered late, so no path is probed again at once.
        paths.ask_all(START + PAUSE, START + PAUSE, RTT, PAUSE);
        assert_eq!(probe(&mut paths, PAUSE, |_| false), 0);
        paths.ask_all(START + PAUSE.times(3), START + PAUSE, RTT, PAUSE);
        assert_eq!(probe(&mut paths, PAUSE.times(5), |_| false), 64);
    }

    #[test]
    fn where_most_are_silent_half_stay_in_use_and_are_left_alone() {
        let mut paths = paths();
        paths.ask_all(START, START, RTT, PAUSE);
        probe(&mut paths, PAUSE.times(100), |_| true);
        assert_eq!(paths.counts(START), [0, 32, 32, 0]);
        let more = probe(&mut paths, PROBE_INTERVAL_MAX, |_| true);
        assert!(more <= 32 * 8, "{more} more probes, at doubling pauses");
    }

    #[test]
    fn paths_that_are_silent_while_others_answer_are_dead_however_many() {
        let mut paths = paths();
        paths.ask_all(START, START, RTT, PAUSE);
        let mut now = START;
        // One path answers, and carries data that is acknowledged.
        let mut go_on = |paths: &mut PathSet, steps: u64, step: Duration| {
            let mut asked = 0;
            for _ in 0..steps {
                while let Some(PathProbe { path }) = paths.next_probe(now) {
                    asked += 1;
                    if path == PathId(9) {
                        paths.on_probe_answer(now, path);
                    }
                }
                now += step;
                paths.on_acked(now, PathId(9), 0, 1);
            }
            (asked, now)
        };
        let (_, then) = go_on(&mut paths, 400, RTT);
        assert_eq!(paths.counts(START), [1, 0, 63, 0]);
        assert_eq!(paths.pick(then, RTT), PathId(9));
        for wanted in 0..64 {
            assert_eq!(paths.pick_near(crate::ids::Entropy(wanted)), PathId(9));
        }
        go_on(&mut paths, 40_000, Duration::from_millis(1));
        let (asked, _) = go_on(&mut paths, 32_000, Duration::from_millis(1));
        assert!((63..=63 * 3).contains(&asked), "{asked} in 32 s: what never passed, seldom");
    }

    /// Number of probes in a second, if each is answered after the time `late`. `again`: in each
    /// millisecond a loss causes a probe of all unconfirmed paths.
    fn asked_in_a_second(late: Duration, again: bool) -> usize {
        let mut paths = paths();
        paths.ask_all(START, START, RTT, PAUSE);
        let mut out = alloc::collections::VecDeque::new();
        let mut asked = 0;
        for step in 0..100_000 {
            let now = START + Duration::from_micros(10 * step);
            while let Some(PathProbe { path }) = paths.next_probe(now) {
                out.push_back((now + late, path));
                asked += 1;
            }
            while let Some((_, path)) = out.front().copied().filter(|(at, _)| *at <= now) {
                out.pop_front();
                paths.on_probe_answer(now, path);
            }
            paths.on_acked(now, PathId(9), 0, step);
            if again && step % 100 == 0 {
                paths.ask_all(now, now, RTT, PAUSE);
            }
        }
        asked
    }

    #[test]
    fn regression_a_host_that_answers_late_is_not_asked_ever_more() {
        // In this case both hosts were busy with 80,000 probes a second, and therefore answered
        // late.
        let once = asked_in_a_second(PAUSE.times(3), false);
        assert!(once <= 64 * 12, "{once}");
        let often = asked_in_a_second(PAUSE.times(3), true);
        assert!(often <= 64 * 160, "{often}");
        let in_time = asked_in_a_second(RTT, true);
        assert!(in_time <= 64 * 30, "{in_time}");
    }

    #[test]
    fn a_mass_failure_brings_back_all_but_the_dead() {
        let mut paths = paths();
        paths.ask_all(START, START, RTT, PAUSE);
        probe(&mut paths, PAUSE.times(20), |path| path.0 % 2 == 1);
        let now = START + PAUSE.times(20);
        for path in (0..64).step_by(2) {
            paths.on_loss(now, PathId(path), 0, now, RTT);
        }
        let [good, skip, bad, _] = paths.counts(now);
        assert_eq!((good + skip, bad), (32, 32));
    }

    #[test]
    fn an_old_penalty_counts_for_nothing() {
        let mut paths = paths();
        paths.on_delay(START, PathId(3), 0, 1000, super::super::PathLatency::Late(9));
        assert_eq!(paths.counts(START), [63, 1, 0, 0]);
        assert_eq!(paths.counts(START + Duration::from_secs(1)), [64, 0, 0, 0]);
    }

    #[test]
    fn two_answers_in_a_row_bring_a_path_back() {
        let mut paths = paths();
        paths.on_loss(START, PathId(1), 0, START, RTT);
        assert_eq!(paths.counts(START), [63, 0, 1, 0]);
        let at = START + RTT;
        assert_eq!(paths.next_probe(at), Some(PathProbe { path: PathId(1) }));
        paths.on_probe_answer(at, PathId(1));
        assert_eq!(paths.counts(START), [63, 0, 1, 0]);
        assert_eq!(paths.next_probe(at), Some(PathProbe { path: PathId(1) }));
        paths.on_probe_answer(at, PathId(1));
        assert_eq!(paths.counts(START), [64, 0, 0, 0]);
        assert_eq!(paths.next_probe(START + PAUSE), None);
    }
}

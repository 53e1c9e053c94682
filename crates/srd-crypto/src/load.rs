//! Limits of the handshakes that unknown senders can cause.
//!
//! A handshake costs a responder six scalar multiplications, some 0.3 ms; a first message costs
//! its sender little. Three token buckets bound the damage. The first serves every sender, the
//! second senders with a valid cookie, and the third senders with a valid cookie whose address is a
//! known peer's. "Under load" means that the first bucket is empty. The second bucket is separate
//! because a flood from forged addresses can empty the first: then the second stays full for
//! senders that have proved their address. The third bucket is separate because unknown senders
//! with real addresses can empty the second: then the third stays full for peers.
//!
//! Bound: each bucket admits the configured rate, with bursts of a tenth of a second. So the
//! endpoint handles at most three times the rate. Each bucket has two words of state and no queue.

use crate::time::{Duration, Instant};

/// Time in which an empty bucket becomes full. So a burst is the configured rate times this time.
const BURST: Duration = Duration::from_millis(100);

/// Decision on the first message of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// The handshake is carried out.
    Accept,
    /// The sender gets a cookie, and the message is not stored.
    DemandCookie,
    /// The message is dropped: too many senders have returned a cookie.
    Drop,
}

/// Proof that accompanies the first message of a handshake. It is checked before the message is
/// parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// The message carries no proof.
    None,
    /// A cookie that [`super::CookieJar::check`] accepts: the sender receives packets at its
    /// address.
    Cookie,
    /// A valid cookie, and the address belongs to a known peer that has not opened many handshakes
    /// recently.
    Known,
}

/// Rate limit of the handshakes that unknown senders cause: three token buckets, for all senders,
/// for senders with a cookie, and for known peers.
#[derive(Clone, Debug)]
pub struct HandshakeLoad {
    anyone: Bucket,
    proven: Bucket,
    known: Bucket,
}

impl HandshakeLoad {
    /// Returns three full buckets, each for `per_second_max` handshakes per second. With zero,
    /// every sender has to return a cookie, and each of the other two buckets admits one handshake
    /// per second.
    pub fn new(per_second_max: u32) -> Self {
        let proven = Bucket::new(per_second_max.max(1));
        Self { anyone: Bucket::new(per_second_max), known: proven.clone(), proven }
    }

    /// Whether the bucket of all senders is empty, so that a sender without a cookie has to get one
    /// first.
    pub fn under_load(&self, now: Instant) -> bool {
        !self.anyone.has_token(now)
    }

    /// Decides on one first message, and takes a token if the message is accepted.
    pub fn admit(&mut self, now: Instant, proof: Proof) -> Admission {
        // S22: Cookies beyond the handshake rate
        let known = proof == Proof::Known && self.known.take(now);
        let proven = known || proof != Proof::None && self.proven.take(now);
        if proven || self.anyone.take(now) {
            Admission::Accept
        } else if proof == Proof::None {
            Admission::DemandCookie
        } else {
            Admission::Drop
        }
    }
}

/// A token bucket that stores only a time: at `due` the bucket is full again.
#[derive(Clone, Debug)]
struct Bucket {
    /// Time per token; `None`: the bucket never has a token.
    token: Option<Duration>,
    due: Instant,
}

impl Bucket {
    fn new(per_second_max: u32) -> Self {
        let token = 1_000_000_000_u64.checked_div(per_second_max.into());
        Self { token: token.map(|ns| Duration::from_nanos(ns.max(1))), due: Instant::ZERO }
    }

    fn has_token(&self, now: Instant) -> bool {
        // With a rate below ten per second, a burst is still one handshake.
        self.token.is_some_and(|token| self.due.since(now) <= BURST - token)
    }

    fn take(&mut self, now: Instant) -> bool {
        let granted = self.has_token(now);
        if let (true, Some(token)) = (granted, self.token) {
            self.due = self.due.max(now) + token;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn accepted(load: &mut HandshakeLoad, now: Instant, tries: u32, proof: Proof) -> u32 {
        (0..tries).map(|_| u32::from(load.admit(now, proof) == Admission::Accept)).sum()
    }

    #[test]
    fn a_burst_is_a_tenth_of_a_second_and_the_rate_holds_after_it() {
        let mut load = HandshakeLoad::new(1000);
        assert!(!load.under_load(at_ms(0)));
        assert_eq!(accepted(&mut load, at_ms(0), 500, Proof::None), 100);
        assert!(load.under_load(at_ms(0)));
        assert_eq!(load.admit(at_ms(0), Proof::None), Admission::DemandCookie);
        let later: u32 = (1..=1000).map(|ms| accepted(&mut load, at_ms(ms), 5, Proof::None)).sum();
        assert_eq!(later, 1000);
    }

    #[test]
    fn a_flood_without_cookies_leaves_room_for_those_who_have_one() {
        let mut load = HandshakeLoad::new(1000);
        accepted(&mut load, at_ms(0), 1000, Proof::None);
        assert_eq!(accepted(&mut load, at_ms(0), 500, Proof::Cookie), 100);
        assert_eq!(load.admit(at_ms(0), Proof::Cookie), Admission::Drop);
    }

    #[test]
    fn strangers_with_cookies_leave_room_for_known_peers() {
        let mut load = HandshakeLoad::new(1000);
        accepted(&mut load, at_ms(0), 1000, Proof::Cookie);
        assert_eq!(accepted(&mut load, at_ms(0), 500, Proof::Known), 100);
        assert_eq!(load.admit(at_ms(0), Proof::Known), Admission::Drop);
    }

    #[test]
    fn silence_does_not_save_up_more_than_a_burst() {
        let mut load = HandshakeLoad::new(1000);
        assert_eq!(accepted(&mut load, at_ms(1_000_000), 500, Proof::None), 100);
    }

    #[test]
    fn extreme_rates_and_times_are_handled() {
        let mut none = HandshakeLoad::new(0);
        assert_eq!(none.admit(at_ms(0), Proof::None), Admission::DemandCookie);
        assert_eq!(none.admit(at_ms(0), Proof::Cookie), Admission::Accept);
        assert_eq!(none.admit(at_ms(999), Proof::Cookie), Admission::Drop);
        assert_eq!(none.admit(at_ms(1000), Proof::Cookie), Admission::Accept);
        let mut all = HandshakeLoad::new(u32::MAX);
        assert_eq!(accepted(&mut all, at_ms(0), 10_000, Proof::None), 10_000);
        assert_eq!(all.admit(Instant::FAR_FUTURE, Proof::None), Admission::Accept);
    }

    #[test]
    fn time_running_backwards_grants_nothing_extra() {
        let mut load = HandshakeLoad::new(1000);
        accepted(&mut load, at_ms(1000), 1000, Proof::None);
        assert_eq!(accepted(&mut load, at_ms(0), 1000, Proof::None), 0);
    }
}

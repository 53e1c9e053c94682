//! Cookies: proof, without state, that an unknown sender receives packets at its source address.
//!
//! Under load a responder answers a first message with a cookie instead of a handshake, and serves
//! the sender only after the sender returns the cookie. The cookie is a MAC over the source
//! address. So the responder needs one HMAC to create it and one or two to check it, and stores
//! nothing. The key of the MAC changes every [`PERIOD`]. The previous key is accepted too, so a
//! cookie is valid for one to two periods.
//!
//! A cookie proves no identity, only that its holder received a packet sent to that address. An
//! attacker on the path can obtain cookies for every address behind the path; against such an
//! attacker, the rate limit of [`super::HandshakeLoad`] remains.
//!
//! The caller passes the address in one canonical form: 16 bytes of the IPv6 or v4-mapped address,
//! followed by the port if unknown senders always use one port. The bytes have to be equal when a
//! cookie is created and when it is checked.

use core::fmt;

use ring::hmac;

use super::kdf::{LABEL, expand, wipe};
use crate::time::{Duration, Instant};

/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 16;

/// Period in which one key creates cookies.
pub const PERIOD: Duration = Duration::from_secs(120);

/// Creates and checks cookies.
pub struct CookieJar {
    seed: [u8; 32],
    start: Instant,
    period: u64,
    current: hmac::Key,
    /// The key of the previous period; `None` in the first period.
    previous: Option<hmac::Key>,
}

impl CookieJar {
    /// Creates a jar whose keys are derived from `seed`. The first period starts now.
    pub fn new(seed: [u8; 32], now: Instant) -> Self {
        let current = period_key(&seed, 0);
        Self { seed, start: now, period: 0, current, previous: None }
    }

    /// Returns the current cookie of `source`.
    pub fn cookie_for(&mut self, now: Instant, source: &[u8]) -> [u8; COOKIE_BYTES] {
        self.turn(now);
        cookie(&self.current, source)
    }

    /// Whether `presented` is the cookie of `source` of this period or of the previous period.
    pub fn check(&mut self, now: Instant, source: &[u8], presented: &[u8; COOKIE_BYTES]) -> bool {
        self.turn(now);
        // S23: Contents of a cookie
        equal(&cookie(&self.current, source), presented)
            || self.previous.as_ref().is_some_and(|key| equal(&cookie(key, source), presented))
    }

    /// Replaces the keys if `now` is in a later period. A time before the current period is
    /// ignored.
    fn turn(&mut self, now: Instant) {
        let period = now.since(self.start).as_nanos() / PERIOD.as_nanos();
        if period > self.period {
            self.previous = Some(period_key(&self.seed, period - 1));
            self.current = period_key(&self.seed, period);
            self.period = period;
        }
    }
}

impl Drop for CookieJar {
    fn drop(&mut self) {
        wipe(&mut self.seed);
    }
}

impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieJar").field("period", &self.period).finish_non_exhaustive()
    }
}

fn period_key(seed: &[u8; 32], period: u64) -> hmac::Key {
    let mut key: [u8; 32] = expand(seed, &[LABEL, b"cookie", &period.to_be_bytes()]);
    let mac = hmac::Key::new(hmac::HMAC_SHA256, &key);
    wipe(&mut key);
    mac
}

fn cookie(key: &hmac::Key, source: &[u8]) -> [u8; COOKIE_BYTES] {
    let mut out = [0; COOKIE_BYTES];
    out.copy_from_slice(&hmac::sign(key, source).as_ref()[..COOKIE_BYTES]);
    out
}

/// Compares in constant time: no branch and no memory access depends on where the two differ.
pub(super) fn equal(a: &[u8; COOKIE_BYTES], b: &[u8; COOKIE_BYTES]) -> bool {
    let difference = u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b);
    core::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn a_cookie_is_good_for_its_source_only_and_every_bit_counts() {
        let mut jar = CookieJar::new([1; 32], at(5));
        let cookie = jar.cookie_for(at(6), b"source");
        assert!(jar.check(at(6), b"source", &cookie));
        assert!(!jar.check(at(6), b"sourcf", &cookie));
        assert!(!jar.check(at(6), b"", &cookie));
        for bit in 0..COOKIE_BYTES * 8 {
            let mut forged = cookie;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(!jar.check(at(6), b"source", &forged));
        }
    }

    #[test]
    fn a_cookie_outlives_one_turn_of_the_key_but_not_two() {
        let mut jar = CookieJar::new([1; 32], at(0));
        let cookie = jar.cookie_for(at(119), b"s");
        assert!(jar.check(at(120), b"s", &cookie));
        assert!(jar.check(at(239), b"s", &cookie));
        assert!(!jar.check(at(240), b"s", &cookie));
        assert_ne!(jar.cookie_for(at(240), b"s"), cookie);
    }

    #[test]
    fn long_silence_and_time_running_backwards_are_harmless() {
        let mut jar = CookieJar::new([1; 32], at(100));
        let cookie = jar.cookie_for(at(1_000_000), b"s");
        assert!(jar.check(at(1_000_000), b"s", &cookie));
        assert!(jar.check(at(0), b"s", &cookie));
        assert!(!jar.check(Instant::FAR_FUTURE, b"s", &cookie));
    }

    #[test]
    fn one_seed_gives_one_cookie_and_two_seeds_two() {
        let cookie = |seed| CookieJar::new([seed; 32], at(0)).cookie_for(at(0), b"s");
        assert_eq!(cookie(1), cookie(1));
        assert_ne!(cookie(1), cookie(2));
    }
}

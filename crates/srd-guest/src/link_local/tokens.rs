//! Tokens of instance metadata.
//!
//! A token contains its expiry, and a keyed MAC proves its origin and its instance. So no tokens
//! are stored, no program can invalidate another's token, and a token that was issued at one
//! interface of an instance is valid at all of them (V11). The key stays the same for the life of
//! the card, even after a hand-over to another process.

use std::fmt::Write as _;

use ring::hmac;
use srd_proto::time::{Duration, Instant};
use srd_vpc::id::InstanceId;

/// Size in bytes of a token's first part, its expiry. Random bytes, which make the token unique,
/// and the MAC follow.
const END_BYTES: usize = 8;
const CHANCE_BYTES: usize = 8;
const MAC_BYTES: usize = 32;
const BYTES: usize = END_BYTES + CHANCE_BYTES + MAC_BYTES;

/// Issues and checks tokens of instance metadata.
#[derive(Debug)]
pub(super) struct Tokens {
    key: hmac::Key,
    secret: Secret,
}

/// The bytes of the key. Their debug output is hidden, so that no log contains them.
struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Tokens {
    /// Creates the issuer of tokens with a key of 32 random bytes.
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), secret: Secret(key) }
    }

    /// Returns the bytes of the key, for a process that takes over.
    pub(super) fn secret(&self) -> [u8; 32] {
        self.secret.0
    }

    /// Issues a token for an instance.
    pub(super) fn issue(
        &self,
        now: Instant,
        of: InstanceId,
        lasts: Duration,
        chance: [u8; CHANCE_BYTES],
    ) -> String {
        let end = (now + lasts).as_nanos().to_be_bytes();
        let said = [end, chance].concat();
        let mac = hmac::sign(&self.key, &authenticated(of, &said));
        let mut text = String::new();
        for byte in said.iter().chain(mac.as_ref()) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Whether a token belongs to this instance and has not expired.
    pub(super) fn holds(&self, now: Instant, of: InstanceId, token: &[u8]) -> bool {
        let Some(bytes) = bytes_of(token) else { return false };
        let (said, mac) = bytes.split_at(END_BYTES + CHANCE_BYTES);
        let is_ours = hmac::verify(&self.key, &authenticated(of, said), mac).is_ok();
        let end = said.first_chunk().map_or(0, |end| u64::from_be_bytes(*end));
        is_ours && now.as_nanos() < end
    }
}

/// Returns the data that the MAC authenticates: the instance and the first parts of the token,
/// which have fixed lengths.
fn authenticated(of: InstanceId, said: &[u8]) -> Vec<u8> {
    [&of.0.to_be_bytes(), said].concat()
}

/// Parses the bytes of a token; `None` if the text is malformed.
fn bytes_of(token: &[u8]) -> Option<[u8; BYTES]> {
    let digit = |at: usize| match *token.get(at)? {
        digit @ b'0'..=b'9' => Some(digit - b'0'),
        digit @ b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if token.len() != 2 * BYTES {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = digit(2 * at)? << 4 | digit(2 * at + 1)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;
    const MINUTE: Duration = Duration::from_secs(60);
    const ONE: InstanceId = InstanceId(1);

    #[test]
    fn a_token_holds_for_its_time_and_its_instance() {
        let tokens = Tokens::new([1; 32]);
        let token = tokens.issue(NOW, ONE, MINUTE, [2; 8]);
        let holds = |now, of| tokens.holds(now, of, token.as_bytes());
        let last = NOW + Duration::from_nanos(MINUTE.as_nanos() - 1);
        assert!(holds(NOW, ONE) && holds(last, ONE));
        assert!(!holds(NOW + MINUTE, ONE), "it is over");
        assert!(!holds(NOW, InstanceId(2)), "another instance");
        assert!(!Tokens::new([3; 32]).holds(NOW, ONE, token.as_bytes()), "another key");
        assert_ne!(token, tokens.issue(NOW, ONE, MINUTE, [4; 8]));
    }

    /// Regression: 256 tokens of another program invalidated a token.
    #[test]
    fn regression_no_number_of_other_tokens_ends_one() {
        let tokens = Tokens::new([1; 32]);
        let token = tokens.issue(NOW, ONE, Duration::from_secs(21_600), [0; 8]);
        for chance in 0..1000_u64 {
            tokens.issue(NOW, ONE, Duration::from_secs(1), chance.to_be_bytes());
        }
        assert!(tokens.holds(NOW + MINUTE, ONE, token.as_bytes()));
    }

    #[test]
    fn each_change_of_a_token_ends_it() {
        let tokens = Tokens::new([1; 32]);
        let token = tokens.issue(NOW, ONE, MINUTE, [2; 8]).into_bytes();
        for at in 0..token.len() {
            let mut other = token.clone();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            assert!(!tokens.holds(NOW, ONE, &other), "{at}");
            assert!(!tokens.holds(NOW, ONE, &token[..at]), "{at}");
        }
        let longer = [&token[..], b"0"].concat();
        let upper = token.to_ascii_uppercase();
        for other in [&longer[..], &upper, b"", b"zz"] {
            assert!(!tokens.holds(NOW, ONE, other));
        }
    }
}

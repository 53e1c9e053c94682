//! The form of the key that all ranks of a job share, as the provider reads it.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;

/// Bytes of a key.
const BYTES: usize = 32;
/// Description of the text form of a key.
pub const FORM: &str = "64 hexadecimal digits";
/// Command that prints a key.
pub const MAKE: &str = "openssl rand -hex 32";

/// Returns a random key, with a line feed at its end.
///
/// # Errors
/// An error of the operating system, if the kernel returns no random bytes.
pub fn draw() -> Result<String> {
    let mut bytes = [0; BYTES];
    let source = "/dev/urandom";
    let mut file = File::open(source).context(source)?;
    file.read_exact(&mut bytes).context(source)?;
    let mut text = String::with_capacity(2 * BYTES + 1);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    Ok(text)
}

/// Whether a text has the form of a key; white space around the key is ignored.
#[must_use]
pub fn is_one(text: &str) -> bool {
    let text = text.trim();
    text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_a_key_and_another_each_time() {
        let (one, other) = (draw().unwrap(), draw().unwrap());
        assert!(is_one(&one) && is_one(&other));
        assert_ne!(one, other);
    }

    #[test]
    fn anything_else_is_none() {
        let key = draw().unwrap();
        let short = &key[..2 * BYTES - 1];
        for text in ["", short, &format!("{short}g"), &format!("{short}00"), "\u{e4}"] {
            assert!(!is_one(text), "{text:?}");
        }
    }
}

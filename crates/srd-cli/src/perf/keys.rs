//! Keys: 32 bytes, written as 64 hexadecimal digits.

use super::KeyArgs;
use crate::failure::Usage;
use crate::output;
use anyhow::{Context, Result};
use srd_proto::crypto::noise;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A secret or public key.
pub(super) type Key = [u8; 32];

/// Reads a key as people pass it.
pub(super) fn parse(text: &str, what: &str) -> Result<Key> {
    let text = text.trim();
    let mut key = [0; 32];
    let digit = |at: usize| text.as_bytes().get(at).and_then(|c| char::from(*c).to_digit(16));
    let wrong = || {
        let length = text.chars().count();
        Usage(format!("{what} must be 64 hexadecimal digits (32 bytes), not {length} characters"))
    };
    if text.len() != 64 {
        return Err(wrong().into());
    }
    for (at, byte) in key.iter_mut().enumerate() {
        let pair = digit(2 * at).zip(digit(2 * at + 1));
        let value = pair.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        *byte = value
            .ok_or_else(|| Usage(format!("{what} must be hexadecimal digits only (0-9, a-f)")))?;
    }
    Ok(key)
}

/// Writes a key as people pass it.
pub(super) fn hex(key: &Key) -> String {
    key.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The key that both ends share, if one was given.
pub(super) fn job_key(args: &KeyArgs) -> Result<Option<Key>> {
    if let Some(text) = &args.job_key {
        return parse(text, "--job-key").map(Some);
    }
    let Some(file) = &args.job_key_file else { return Ok(None) };
    parse(&output::read(file)?, &format!("the key in {}", file.display())).map(Some)
}

/// A new private key.
pub(super) fn draw() -> Result<Key> {
    srd_net::clock::seed().context("no random numbers from the kernel")
}

/// The public key of a private one.
pub(super) fn public(private: &Key) -> Key {
    noise::public_key(private)
}

/// The private key in a file, which is made if it does not exist.
pub(super) fn private_key(file: Option<&Path>) -> Result<Key> {
    let Some(file) = file else { return draw() };
    if file.exists() {
        return parse(&output::read(file)?, &format!("the key in {}", file.display()));
    }
    output::check_writable(file)?;
    let key = draw()?;
    let mut options = OpenOptions::new();
    let mut made = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    writeln!(made, "{}", hex(&key)).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_writing_and_reading() {
        let key = draw().unwrap();
        assert_eq!(parse(&hex(&key), "key").unwrap(), key);
        assert_eq!(parse(&format!(" {}\n", hex(&key).to_uppercase()), "key").unwrap(), key);
    }

    #[test]
    fn a_bad_key_is_refused_without_showing_it() {
        let short = parse("abc", "--job-key").unwrap_err().to_string();
        assert!(short.contains("64 hexadecimal digits") && short.contains("3 characters"));
        let text = "zz".repeat(32);
        let error = parse(&text, "--job-key").unwrap_err().to_string();
        assert!(error.contains("0-9") && !error.contains("zz"), "{error}");
        // Sixty-four bytes that are not sixty-four characters.
        assert!(parse(&"é".repeat(32), "--job-key").is_err());
    }

    #[test]
    fn a_key_file_is_made_once_and_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let first = private_key(Some(&file)).unwrap();
        assert_eq!(private_key(Some(&file)).unwrap(), first);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

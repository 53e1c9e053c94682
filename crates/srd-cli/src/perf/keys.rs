//! Keys of `srd perf`: 32 bytes, written in base64 like those of `srd up`, and also read as
//! hexadecimal digits.

use super::KeyArgs;
use crate::failure::Usage;
use crate::output;
use anyhow::{Context, Result};
use srd_daemon::keys::{PublicKey, SecretKey};
use srd_proto::crypto::noise;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A secret or public key.
pub(super) type Key = [u8; 32];

/// Parses a secret key in base64 or in hexadecimal digits.
fn secret(text: &str, what: &str) -> Result<Key> {
    let key = SecretKey::parse(text).map_err(|e| Usage(format!("{what} is no key: {e}")))?;
    Ok(key.bytes())
}

/// Parses the server's public key in base64 or in hexadecimal digits.
pub(super) fn public_key(text: &str) -> Result<Key> {
    let key = PublicKey::parse(text).map_err(|e| Usage(format!("--peer-key is no key: {e}")))?;
    Ok(key.0)
}

/// Returns the key that the two ends share; `None` if the user gave none.
pub(super) fn job_key(args: &KeyArgs) -> Result<Option<Key>> {
    if let Some(text) = &args.job_key {
        return secret(text, "--job-key").map(Some);
    }
    let Some(file) = &args.job_key_file else { return Ok(None) };
    secret(&output::read(file)?, &format!("what {} holds", file.display())).map(Some)
}

/// Generates a private key.
pub(super) fn draw() -> Result<Key> {
    srd_net::clock::seed().context("no random numbers from the kernel")
}

/// Returns the public key of a private key.
pub(super) fn public(private: &Key) -> PublicKey {
    PublicKey(noise::public_key(private))
}

/// Returns the private key in a file. If the file does not exist, a key is generated and stored in
/// it. Without a file, a key is generated.
pub(super) fn private_key(file: Option<&Path>) -> Result<Key> {
    let Some(file) = file else { return draw() };
    if file.exists() {
        return secret(&output::read(file)?, &format!("what {} holds", file.display()));
    }
    output::check_writable(file)?;
    let key = SecretKey::draw_private().context("no random numbers from the kernel")?;
    let mut options = OpenOptions::new();
    let mut made = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    let written = writeln!(made, "{}", key.expose()).inspect_err(|_| {
        // The next start would refuse an incomplete key.
        let _ = std::fs::remove_file(file);
    });
    written.with_context(|| format!("cannot write {}", file.display()))?;
    Ok(key.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of either end may come from `srd genkey` and `srd pubkey`, or be in hexadecimal
    /// digits.
    #[test]
    fn keys_are_read_in_both_forms() {
        let private = SecretKey::draw_private().unwrap();
        let hex = |key: &Key| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let public = public(&private.bytes());
        for text in [private.expose(), hex(&private.bytes())] {
            assert_eq!(secret(&format!("{text}\n"), "key").unwrap(), private.bytes());
        }
        for text in [public.to_string(), hex(&public.0), hex(&public.0).to_uppercase()] {
            assert_eq!(public_key(&text).unwrap(), public.0);
        }
        assert_eq!(public, private.public(), "as `srd pubkey` prints it");
    }

    #[test]
    fn a_bad_key_is_refused_with_both_forms_and_without_showing_it() {
        let text = "zz".repeat(32);
        for text in ["abc", &text, &"é".repeat(32)] {
            let error = secret(text, "--job-key").unwrap_err().to_string();
            assert!(error.contains("base64") && error.contains("64 hexadecimal"), "{error}");
            assert!(!error.contains(text), "{error}");
        }
        assert!(public_key(&"0".repeat(64)).unwrap_err().to_string().contains("nobody's"));
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

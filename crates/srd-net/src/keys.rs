//! Keys: 32 bytes, written as one line of base64, as WireGuard writes them. Two forms are read:
//! base64, and 64 hexadecimal digits as `openssl rand -hex 32` prints them.
//!
//! Each secret is in a separate file that only its owner may read. Errors and `Debug` output never
//! contain it.

use std::fmt;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use srd_proto::crypto;
use zeroize::Zeroize as _;

use crate::key_file::{KeyFileError, read_key_file_of};

/// Command that prints a new private key.
const MAKE: &str = "srd genkey";
/// Command that prints a new preshared key.
const MAKE_SHARED: &str = "srd genpsk";

/// Characters of a key in base64.
const BASE64_CHARACTERS: usize = 44;
/// Characters of a key in hexadecimal digits.
const HEX_CHARACTERS: usize = 64;
/// Smallest number of characters that identify a peer by the beginning of its key.
const NAME_CHARACTERS_MIN: usize = 8;

/// A public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// A private or preshared key.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Reason why a text is not a key. The error does not contain the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyError(String);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyError {}

/// Reads 32 bytes of base64 or of hexadecimal digits.
fn decode(text: &str) -> Result<[u8; 32], KeyError> {
    let text = text.trim();
    let wrong = |what: &str| {
        KeyError(format!("{what}; a key is 44 characters of base64, or 64 hexadecimal digits"))
    };
    let characters = text.chars().count();
    if characters == HEX_CHARACTERS {
        return from_hex(text).ok_or_else(|| wrong("not all of it are digits from 0 to f"));
    }
    if characters != BASE64_CHARACTERS {
        return Err(wrong(&format!("it has {characters} characters")));
    }
    let bytes = STANDARD.decode(text).map_err(|_| wrong("it is not base64"))?;
    bytes.try_into().map_err(|_| wrong("it does not hold 32 bytes"))
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    for (byte, pair) in key.iter_mut().zip(digits?.chunks_exact(2)) {
        *byte = u8::try_from(pair[0] * 16 + pair[1]).ok()?;
    }
    Some(key)
}

/// Whether `wanted`, an argument of a command, means the public key `key` (base64). `wanted` is
/// either the beginning of the base64 text, of at least eight characters, or the whole key in
/// hexadecimal digits.
pub fn is_meant(key: &str, wanted: &str) -> bool {
    let in_hex = || PublicKey::parse(wanted).is_ok_and(|wanted| wanted.to_string() == key);
    wanted.len() >= NAME_CHARACTERS_MIN && (key.starts_with(wanted) || in_hex())
}

impl PublicKey {
    /// Reads a key from its text.
    ///
    /// # Errors
    /// [`KeyError`], if the text is not a key. The error describes the fault of the text.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let key = decode(text)?;
        if key == [0; 32] {
            return Err(KeyError("it is all zeros, which is nobody's key".into()));
        }
        if crypto::is_weak(&key) {
            let why = "it is of small order, which is nobody's key: every secret shared with it \
                       would be zero";
            return Err(KeyError(why.into()));
        }
        Ok(Self(key))
    }

    /// Returns the first eight characters of the key's text, to show in place of a name for a peer
    /// that has no name.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(8);
        text
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl SecretKey {
    /// Returns a new preshared key: 32 random bytes from the kernel.
    ///
    /// # Errors
    /// An error of the kernel, if its random generator fails.
    pub fn draw() -> io::Result<Self> {
        crate::clock::seed().map(Self)
    }

    /// Returns a new private key, clamped for X25519 as WireGuard clamps it.
    ///
    /// # Errors
    /// An error of the kernel, if its random generator fails.
    pub fn draw_private() -> io::Result<Self> {
        let Self(mut key) = Self::draw()?;
        key[0] &= 248;
        key[31] = (key[31] & 127) | 64;
        Ok(Self(key))
    }

    /// Reads a key from its text.
    ///
    /// # Errors
    /// [`KeyError`], if the text is not a key. The error describes the fault without the text.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        decode(text).map(Self)
    }

    /// Returns the public key that belongs to this private key.
    pub fn public(&self) -> PublicKey {
        PublicKey(crypto::public_key(&self.0))
    }

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Returns the key as base64 text. Use it only to write the file that will hold the key.
    pub fn expose(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// Reads the key from a file that only its owner may read. The owner is this user, root, or the
    /// user `also`. If root starts a service as another user, `also` is that user.
    ///
    /// # Errors
    /// [`KeyFileError`], if the file is refused: the reason and the remedy.
    pub fn load(path: &Path, also: Option<u32>) -> Result<Self, KeyFileError> {
        Self::load_made_by(path, MAKE, also)
    }

    /// Reads a preshared key, as [`SecretKey::load`] does for a private key.
    ///
    /// # Errors
    /// As [`SecretKey::load`].
    pub fn load_shared(path: &Path, also: Option<u32>) -> Result<Self, KeyFileError> {
        Self::load_made_by(path, MAKE_SHARED, also).map_err(|mut error| {
            if error.remedy.contains(MAKE_SHARED) {
                error.remedy += ", and give the peer the same; or copy the peer's";
            }
            error
        })
    }

    fn load_made_by(path: &Path, make: &str, also: Option<u32>) -> Result<Self, KeyFileError> {
        let text = read_key_file_of(path, make, also)?;
        let shown = path.display();
        let refused = |why: String| KeyFileError {
            what: format!("{shown} holds no key: {why}"),
            remedy: if make == MAKE {
                format!(
                    "restore it, or {make} > {shown}: then each peer needs the new public key \
                     (srd pubkey < {shown})"
                )
            } else {
                format!("restore it, or {make} > {shown}, and the same at the peer")
            },
        };
        let key = Self::parse(&text).map_err(|e| refused(e.to_string()))?;
        if key.0 == [0; 32] {
            return Err(refused("all of it is zero".to_owned()));
        }
        Ok(key)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey") // a log must not contain the key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_survive_writing_and_reading_and_pair_up() {
        let private = SecretKey::draw_private().unwrap();
        assert_eq!(SecretKey::parse(&format!(" {}\n", private.expose())).unwrap(), private);
        let public = private.public();
        assert_eq!(PublicKey::parse(&public.to_string()).unwrap(), public);
        assert_eq!(public.short().len(), 8);
    }

    #[test]
    fn the_public_key_is_that_of_rfc_7748() {
        // Alice's keys in section 6.1 of RFC 7748.
        let alice = SecretKey::parse("dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=").unwrap();
        assert_eq!(alice.public().to_string(), "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=");
    }

    #[test]
    fn a_key_is_read_in_either_form_and_written_in_one() {
        // Alice's keys in section 6.1 of RFC 7748.
        let hex = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
        let base64 = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
        for text in [hex, &hex.to_uppercase(), &format!(" {hex}\n"), base64] {
            assert_eq!(PublicKey::parse(text).unwrap().to_string(), base64);
        }
        for (wanted, is) in [
            (hex, true),
            (base64, true),
            (&base64[..8], true),
            (&base64[..7], false),
            (&hex[..32], false),
            (&"0".repeat(64), false),
        ] {
            assert_eq!(is_meant(base64, wanted), is, "{wanted}");
        }
    }

    #[test]
    fn a_bad_key_is_refused_without_showing_it() {
        let text = format!("{}=", "!".repeat(43));
        for text in ["abc", &text, &"é".repeat(44), &"é".repeat(64), &"z".repeat(64)] {
            let error = SecretKey::parse(text).unwrap_err().to_string();
            assert!(error.contains("44 characters of base64") && !error.contains(text), "{error}");
            assert!(error.contains("64 hexadecimal digits"), "{error}");
        }
        assert!(PublicKey::parse(&STANDARD.encode([0; 32])).is_err());
        assert_eq!(format!("{:?}", SecretKey([7; 32])), "SecretKey");
    }

    #[test]
    fn a_key_file_that_others_may_read_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let key = SecretKey::draw_private().unwrap();
        fs::write(&file, key.expose() + "\n").unwrap();
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            match SecretKey::load(&file, None) {
                Ok(read) => assert!(good && read == key),
                Err(error) => {
                    assert!(!good && error.remedy.starts_with("chmod 600"), "{error}");
                    assert!(error.what.contains(&format!("{mode:04o}")), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_key_file_that_is_absent_or_no_file_or_no_key_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let error = SecretKey::load(&directory.path().join("none"), None).unwrap_err();
        assert!(error.remedy.contains("srd genkey"), "{error}");
        let error = SecretKey::load(directory.path(), None).unwrap_err();
        assert!(error.what.contains("no ordinary file"), "{error}");
        let file = directory.path().join("key");
        fs::write(&file, "not a key").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let error = SecretKey::load(&file, None).unwrap_err();
        assert!(error.what.contains("holds no key"), "{error}");
        assert!(error.remedy.contains("each peer needs the new public key"), "{error}");
    }
}

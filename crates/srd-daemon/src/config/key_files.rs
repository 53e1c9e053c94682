//! Key files that the configuration names.

use std::path::{Path, PathBuf};

use srd_config::{ConfigError, Source};
use toml::Spanned;

use super::wireguard;
use crate::keys::SecretKey;

type Result<T> = std::result::Result<T, ConfigError>;

/// Whether the key files of a configuration are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keys {
    /// Key files are read and checked.
    Read,
    /// Key files are not read; each key is replaced by a random one.
    Left,
}

/// Returns the error for a key of a host that uses no encryption.
pub(super) fn unused_key(source: &Source<'_>, key: &Spanned<String>) -> ConfigError {
    let remedy = "take it out, or take protection = \"plain\" out";
    source.error(Some(key.span()), "a key that nothing uses", remedy)
}

/// Reads a private or preshared key from the file that the configuration names. With
/// [`Keys::Left`], returns a random key instead.
pub(super) fn key_file(
    source: &Source<'_>,
    file: &Spanned<String>,
    keys: Keys,
    load: impl FnOnce(&Path) -> std::result::Result<SecretKey, srd_net::KeyFileError>,
) -> Result<SecretKey> {
    if keys == Keys::Left {
        let failed = |e| source.error(None, format!("random numbers: {e}"), "try again");
        return SecretKey::draw().map_err(failed);
    }
    let path = beside(source.path, file.as_ref());
    load(&path).map_err(|e| {
        // A file converted from WireGuard needs WireGuard's key: a new key from `srd genkey` would
        // not match the public key that the peers have.
        let is_to_come = wireguard::is_made(source.text) && !path.exists();
        let remedy = if is_to_come {
            "do what the comment above it says: the key of WireGuard's file goes there".to_owned()
        } else {
            e.remedy
        };
        source.error(Some(file.span()), e.what, remedy)
    })
}

/// Resolves a path relative to the directory of the file that contains it.
fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

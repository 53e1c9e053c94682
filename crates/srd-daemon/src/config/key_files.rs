//! Key files that the configuration names.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use srd_config::{ConfigError, Source};
use srd_trust::privileges;
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
            let is_denied =
                File::open(&path).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
            let of_daemon = privileges::is_own_account().filter(|_| is_denied);
            of_daemon.map_or(e.remedy, |is_srd| remedy_of_daemon(&path, is_srd))
        };
        source.error(Some(file.span()), e.what, remedy)
    })
}

/// Returns the remedy if a daemon that has changed its user cannot read a key file. `is_srd`:
/// whether the daemon runs as the user `srd`, and not as a user of no account.
fn remedy_of_daemon(key: &Path, is_srd: bool) -> String {
    let key = key.display();
    let give = format!("chown {} {key}", privileges::OWN_ACCOUNT);
    if is_srd {
        return format!("{give} (as root), and let this user enter its directory");
    }
    format!(
        "without a user `srd` on this machine, a change needs a restart, or `srd card apply` for \
         the VPC's file; or create the system user `srd`, {give}, and restart"
    )
}

/// Resolves a path relative to the directory of the file that contains it.
pub(super) fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// In an earlier version, the remedy was to run the command as root, which does not help a
    /// daemon that has another user.
    #[test]
    fn regression_a_daemon_that_may_not_read_a_key_names_a_remedy_that_helps() {
        let key = Path::new("/etc/srd/private.key");
        let remedy = remedy_of_daemon(key, true);
        assert!(remedy.starts_with("chown srd /etc/srd/private.key (as root)"), "{remedy}");
        let remedy = remedy_of_daemon(key, false);
        for part in ["needs a restart", "srd card apply", "create the system user `srd`"] {
            assert!(remedy.contains(part), "{remedy}");
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("srd0.toml");
        let text = "[interface]\nmode = \"cloud\"\nlisten = \"192.0.2.1:7471\"\n\
                    private_key_file = \"key\"\n[cloud]\n";
        std::fs::write(&file, text).unwrap();
        let id = srd_trust::spare::FIRST;
        let read = move || {
            let daemon = rustix::process::Uid::from_raw(id);
            // The change of the user affects only this thread.
            rustix::thread::set_thread_res_uid(None, daemon, None).ok()?;
            Some(super::super::Config::parse(text, &file).unwrap_err())
        };
        let key = directory.path().join("key");
        std::fs::write(&key, SecretKey::draw().unwrap().expose()).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        if let Some(error) = std::thread::spawn(read).join().unwrap() {
            assert!(error.what.contains("permission denied"), "{error}");
            assert!(error.remedy.contains("chown srd "), "{error}");
        }
    }
}

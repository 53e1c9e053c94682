//! Private key files: read only if no user but the owner may access them.

use std::env;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use srd_trust::private;

/// Reads a key in PEM from an ordinary file, which must belong to this user or root, and which no
/// other user may read or change. Never blocks: a pipe is refused.
///
/// # Errors
/// A text for the user with a remedy, if the file is refused or holds no key.
pub(crate) fn read(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let file = open(path)?;
    PrivateKeyDer::from_pem_reader(file)
        .map_err(|e| anyhow::anyhow!("{}: no private key in PEM: {e}", path.display()))
}

fn open(path: &Path) -> Result<File> {
    let shown = path.display();
    let file = private::open(path);
    let file = file.with_context(|| format!("{shown}: no private key can be read"))?;
    let Some(file) = file else {
        bail!("{shown} is no ordinary file: name the file of a private key");
    };
    if !is_credential(path) {
        let checked = private::check(&file, None).with_context(|| shown.to_string())?;
        checked.map_err(|exposed| exposed.fault(path))?;
    }
    Ok(file)
}

/// Whether systemd created this file only for this service (`LoadCredential=`). An access list lets
/// the service's user read the file, and the file mode shows that as rights of the group.
fn is_credential(path: &Path) -> bool {
    env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|directory| path.starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, chown};

    fn refusal(path: &Path) -> String {
        format!("{:#}", read(path).unwrap_err())
    }

    #[test]
    fn regression_a_key_that_others_may_use_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("own.key");
        write(&path, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        for mode in [0o600, 0o400] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path).unwrap();
        }
        for mode in [0o640, 0o604, 0o620, 0o601, 0o777] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let text = refusal(&path);
            assert!(text.contains(&format!("(mode {mode:04o}): chmod 600 /")), "{text}");
        }
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        // Only root can give a file away.
        if chown(&path, Some(65_534), None).is_ok() {
            assert!(refusal(&path).contains("belongs to user 65534"));
        }
    }

    #[test]
    fn what_is_no_key_file_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("own.key");
        assert!(refusal(&path).contains("No such file"));
        assert!(refusal(directory.path()).contains("no ordinary file"));
        let made = std::process::Command::new("mkfifo").arg("-m600").arg(&path).status().unwrap();
        assert!(made.success());
        assert!(refusal(&path).contains("no ordinary file"));
    }
}

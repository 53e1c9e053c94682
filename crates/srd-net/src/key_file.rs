//! Files that hold a secret key. They are read only if no other user may access them.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use srd_trust::private;
use zeroize::Zeroizing;

/// Largest number of bytes of a key file: a key has at most 64 characters, and the remaining bytes
/// may be white space.
const BYTES_MAX: u64 = 1024;

/// Reason why a key file was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyFileError {
    /// Description of the fault.
    pub what: String,
    /// Description of the remedy.
    pub remedy: String,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for KeyFileError {}

/// Reads the text of a key file: a regular file of at most 1,024 bytes, which belongs to this user
/// or root, and which no other user may read or change. The text is wiped when it is dropped. Never
/// blocks: a pipe is refused. `make` is the command that prints a new key; remedies contain it.
///
/// # Errors
/// [`KeyFileError`], if the file cannot be read or does not meet these conditions. The error
/// describes the fault and its remedy, and never contains the text of the file.
pub fn read_key_file(path: &Path, make: &str) -> Result<Zeroizing<String>, KeyFileError> {
    read_key_file_of(path, make, None)
}

/// Reads the text of a key file that may belong to the user `also` in addition to the owners that
/// [`read_key_file`] allows. If root starts a service as another user, `also` is that user.
///
/// # Errors
/// As [`read_key_file`].
pub fn read_key_file_of(
    path: &Path,
    make: &str,
    also: Option<u32>,
) -> Result<Zeroizing<String>, KeyFileError> {
    let shown = path.display();
    let error = |what: String, remedy: String| KeyFileError { what, remedy };
    let refused = |e: io::Error| {
        let (words, remedy) = match e.kind() {
            io::ErrorKind::NotFound => (
                "no such file".to_owned(),
                format!("correct the path, or make one: umask 077; {make} > {shown}"),
            ),
            io::ErrorKind::PermissionDenied => {
                let remedy = "run this as root, or as the user that the key belongs to".to_owned();
                ("permission denied".to_owned(), remedy)
            }
            io::ErrorKind::InvalidData => {
                ("not a text file (UTF-8)".to_owned(), "name a key file".to_owned())
            }
            _ => (e.to_string(), "name a readable file".to_owned()),
        };
        error(format!("cannot read {shown}: {words}"), remedy)
    };
    let Some(file) = private::open(path).map_err(refused)? else {
        return Err(error(format!("{shown} is no ordinary file"), "name a key file".into()));
    };
    if let Err(exposed) = private::check(&file, also).map_err(refused)? {
        let private::Fault { what, remedy } = exposed.fault(path);
        return Err(error(what, remedy));
    }
    // Allocates all memory first: if the buffer grew, a copy of the secret would stay behind in the
    // old memory.
    let mut text =
        Zeroizing::new(String::with_capacity(usize::try_from(BYTES_MAX).unwrap_or(0) + 1));
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(refused)?;
    if text.len() as u64 > BYTES_MAX {
        let what = format!("{shown} has more than {BYTES_MAX} bytes: it holds no key");
        return Err(error(what, "name a key file".into()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    const MAKE: &str = "openssl rand -hex 32";

    /// Makes a directory for one test, and a file in it with this text and mode.
    fn file(name: &str, text: &[u8], mode: u32) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("srd-key-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("key");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn refusal(path: &Path) -> String {
        let error = read_key_file(path, MAKE).unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        error.to_string()
    }

    fn remove(path: &Path) {
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_file_that_only_its_owner_may_use_is_read() {
        for mode in [0o600, 0o400] {
            let path = file(&format!("good{mode:o}"), b"secret\n", mode);
            assert_eq!(read_key_file(&path, MAKE).unwrap().as_str(), "secret\n");
            remove(&path);
        }
    }

    #[test]
    fn a_file_that_others_may_use_is_refused_with_the_remedy() {
        for mode in [0o640, 0o604, 0o620, 0o601, 0o777] {
            let path = file(&format!("bad{mode:o}"), b"secret\n", mode);
            let text = refusal(&path);
            assert!(text.contains(&format!("chmod 600 {}", path.display())), "{text}");
            assert!(text.contains(&format!("{mode:04o}")) && !text.contains("secret"), "{text}");
            remove(&path);
        }
    }

    #[test]
    fn a_pipe_a_directory_and_a_large_file_are_refused_at_once() {
        let path = file("kind", &[b'a'; 1025], 0o600);
        assert!(refusal(&path).contains("more than 1024 bytes"));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(refusal(&path).contains("not a text file"));
        fs::remove_file(&path).unwrap();
        assert!(refusal(&path).contains("correct the path, or make one: umask 077; openssl rand"));
        assert!(refusal(path.parent().unwrap()).contains("no ordinary file"));
        let made = std::process::Command::new("mkfifo").arg("-m600").arg(&path).status().unwrap();
        assert!(made.success());
        assert!(refusal(&path).contains("no ordinary file"));
        assert!(refusal(Path::new("/dev/null")).contains("no ordinary file"));
        remove(&path);
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let path = file("owner", b"secret\n", 0o600);
        // Only root can change the owner of a file.
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
            assert!(refusal(&path).contains("belongs to user 65534"));
            assert!(read_key_file_of(&path, MAKE, Some(65_533)).is_err());
            assert_eq!(read_key_file_of(&path, MAKE, Some(65_534)).unwrap().as_str(), "secret\n");
        }
        remove(&path);
    }
}

//! The key that all ranks of a job share: variables that agree, and a file that no other user can
//! read.

use super::List;
use crate::check::finding::{Class, Fix, Outcome};
use crate::mpi::key;
use std::env;
use std::path::{Path, PathBuf};

const WHY: &str = "whoever holds the key can join the job; without one nothing is encrypted";
const WANTED: &str = "FI_SRD_KEY_FILE names a file that only you can read";

/// Values of the variables that configure the provider's key and encryption.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Variables {
    pub(super) file: Option<PathBuf>,
    pub(super) has_text: bool,
    pub(super) encryption: Option<String>,
}

impl Variables {
    /// Returns the values in the environment of this process.
    pub(super) fn read() -> Self {
        Self {
            file: env::var_os("FI_SRD_KEY_FILE").map(PathBuf::from),
            has_text: env::var_os("FI_SRD_JOB_KEY").is_some(),
            encryption: env::var("FI_SRD_ENCRYPTION").ok(),
        }
    }

    fn is_off(&self) -> bool {
        let off = ["0", "no", "off", "false"];
        self.encryption.as_deref().is_some_and(|value| off.contains(&value.to_lowercase().as_str()))
    }
}

/// Checks the job key of this machine, and adds the finding to `list`.
pub(super) fn check(list: &mut List) {
    list.add("job-key", WHY, outcome(&Variables::read()));
}

fn outcome(variables: &Variables) -> Outcome {
    let make =
        format!("(umask 077; {} > ~/srd-job.key); export FI_SRD_KEY_FILE=~/srd-job.key", key::MAKE);
    let failed = |found: &str, command: &str, why| {
        let fix = Fix::by_hand(command.to_owned(), why);
        Outcome::failed(Class::Required, found, WANTED, fix)
    };
    let Variables { file, has_text, encryption } = variables;
    match (file, has_text) {
        (Some(_), true) => failed(
            "FI_SRD_KEY_FILE and FI_SRD_JOB_KEY are both set",
            "unset FI_SRD_JOB_KEY",
            "the provider refuses both",
        ),
        (None, false) if encryption.is_some() && !variables.is_off() => failed(
            "FI_SRD_ENCRYPTION is on, and there is no key",
            &make,
            "then copy it to all hosts",
        ),
        (Some(_), _) | (_, true) if variables.is_off() => failed(
            "FI_SRD_ENCRYPTION is off, and there is a key",
            "unset FI_SRD_ENCRYPTION",
            "or take the key away",
        ),
        (None, false) => {
            let fix = Fix::by_hand(make, "then copy it to all hosts");
            Outcome::failed(Class::Recommended, "no key: nothing is encrypted", WANTED, fix)
        }
        (None, true) => {
            let fix = Fix::by_hand(make, "other users may see variables of processes");
            Outcome::failed(Class::Recommended, "the key itself is in a variable", WANTED, fix)
        }
        (Some(file), false) => of_file(file),
    }
}

fn of_file(file: &Path) -> Outcome {
    match look(file) {
        Ok(()) => Outcome::ok(Class::Required, file.display().to_string(), WANTED),
        Err((found, command)) => {
            let fix = Fix::by_hand(command, "the same on every host");
            Outcome::failed(Class::Required, found, WANTED, fix)
        }
    }
}

/// Checks a key file. The error has the fault and the command that fixes it.
fn look(file: &Path) -> Result<(), (String, String)> {
    let shown = file.display();
    let make = format!("(umask 077; {} > {shown})", key::MAKE);
    // Reads the file in the same way as the provider.
    let text = srd_net::read_key_file(file, key::MAKE).map_err(|e| (e.what, e.remedy))?;
    if !key::is_one(&text) {
        return Err((format!("{shown} holds no key, which is {}", key::FORM), make));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Status;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn status(variables: &Variables) -> Status {
        match outcome(variables) {
            Outcome::Checked { status, .. } => status,
            Outcome::NotApplicable(reason) => panic!("{reason}"),
        }
    }

    #[test]
    fn variables_must_agree() {
        let file = || Some(PathBuf::from("/no/such/key"));
        let all = |file, has_text, encryption: Option<&str>| Variables {
            file,
            has_text,
            encryption: encryption.map(str::to_owned),
        };
        assert_eq!(status(&all(None, false, None)), Status::Warn);
        assert_eq!(status(&all(None, false, Some("0"))), Status::Warn);
        assert_eq!(status(&all(None, false, Some("1"))), Status::Error);
        assert_eq!(status(&all(None, true, None)), Status::Warn);
        assert_eq!(status(&all(None, true, Some("no"))), Status::Error);
        assert_eq!(status(&all(file(), true, None)), Status::Error);
        assert_eq!(status(&all(file(), false, None)), Status::Error, "no such file");
    }

    #[test]
    fn the_file_must_hold_a_key_and_be_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let variables = Variables { file: Some(path.clone()), ..Variables::default() };
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write(&key::draw().unwrap(), 0o600);
        assert_eq!(status(&variables), Status::Ok);
        write(&key::draw().unwrap(), 0o644);
        assert_eq!(status(&variables), Status::Error);
        write("not a key", 0o600);
        assert_eq!(status(&variables), Status::Error);
    }
}

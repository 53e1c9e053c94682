//! The files of the state directory. Each file has mode 0600 and is replaced as a whole.
//!
//! The directory belongs to the user `srd`, and a start by root reads and writes it. So no link
//! below the directories of root is followed: this user could lead root to files of root.
//!
//! | file | content |
//! |---|---|
//! | `identity.key` | identity of the host at the controller |
//! | `private.key` | private key of the transport |
//! | `pending.key` | next private key, which the controller has not stored yet |
//! | `next.key` | next private key, which the controller has stored |
//! | `offered.key` | next private key, which the controller may have sent to the peers already: it replaces `private.key` as soon as the controller has admitted this host, and at the next start |
//! | `cloud.toml` | the part of the cloud that the controller has sent, for the card |
//! | `cloud.former.toml` | the former part, until the card has accepted the new one |
//! | `enrolment.json` | [`Enrolment`]: name, overlay address, peers |

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use rustix::fs::{AtFlags, Mode, OFlags, linkat, open, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use srd_enrol::frame::CONTROLLER_BYTES_MAX;
use srd_enrol::{ControllerIdentities, Fingerprint, Identity, Peer};
use srd_trust::{place, private, privileges};

use crate::keys::SecretKey;

/// Name of the file with the private key of the transport.
pub const PRIVATE_KEY: &str = "private.key";
/// Name of the file with the next private key, which the controller has not stored yet.
pub(super) const PENDING_KEY: &str = "pending.key";
/// Name of the file with the next private key, which no session has offered to the controller yet.
pub(super) const NEXT_KEY: &str = "next.key";
/// Name of the file with the next private key, which a session has offered to the controller.
pub(super) const OFFERED_KEY: &str = "offered.key";
/// Name of the file with the part of the cloud that the controller has sent.
pub const CLOUD: &str = "cloud.toml";
/// Name of the file with the former part of the cloud, until the card has accepted the new one.
const CLOUD_FORMER: &str = "cloud.former.toml";
const IDENTITY: &str = "identity.key";
const ENROLMENT: &str = "enrolment.json";
/// Largest file of this directory, in bytes.
const FILE_BYTES_MAX: usize = 2 * CONTROLLER_BYTES_MAX;

/// The host, as the controller has admitted it, and its peers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Enrolment {
    /// Fingerprint of the controller.
    pub controller: Fingerprint,
    /// Fingerprint of the next identity of the controller; `None`: the identity is not being
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_controller: Option<Fingerprint>,
    /// Name of this host.
    pub name: String,
    /// Overlay address of this host, with the length of the overlay's prefix.
    pub address: IpNet,
    /// Addresses at which peers reach this host.
    pub endpoints: Vec<SocketAddr>,
    /// Generation of the peers; 0: the host has no peers yet.
    pub generation: u64,
    /// The peers.
    pub peers: Vec<Peer>,
    /// Whether the controller has removed this host. It may enrol again with a new token.
    pub is_removed: bool,
}

impl Enrolment {
    /// Returns the identities of the controller that this host accepts.
    pub fn identities(&self) -> ControllerIdentities {
        ControllerIdentities { present: self.controller, next: self.next_controller }
    }
}

/// The state directory of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateDirectory(PathBuf);

impl StateDirectory {
    /// The directory at this path.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns the path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates the directory and those above it, with mode 0700. If the user `srd` exists, it gets
    /// the new directories, because the daemon runs as this user.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn create(&self) -> Result<(), String> {
        // An earlier start may have given the directory, and the one above it, to the user `srd`.
        let own = privileges::own_user();
        let is_own_or_missing = |at: &&Path| match fs::symlink_metadata(at) {
            Ok(of) => of.is_dir() && Some(of.uid()) == own,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        let above = self.0.ancestors().find(|at| !is_own_or_missing(at)).unwrap_or(&self.0);
        place::check(above).map_err(|error| failed(above, &error))?;
        let missing = self.0.ancestors().take_while(|path| !path.as_os_str().is_empty());
        let missing: Vec<&Path> = missing.take_while(|path| !path.exists()).collect();
        for path in missing.into_iter().rev() {
            DirBuilder::new().mode(0o700).create(path).map_err(|error| failed(path, &error))?;
            give(path).map_err(|error| failed(path, &error))?;
        }
        give(&self.0).map_err(|error| failed(&self.0, &error))
    }

    /// Returns the content of a file; `None` if there is no such file.
    fn read(&self, name: &str) -> Result<Option<String>, String> {
        let path = self.file(name);
        let shown = path.display();
        let file = match private::open(&path) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(format!("{shown} is no regular file")),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&path, &error)),
        };
        let checked = private::check(&file, privileges::own_user());
        let checked = checked.map_err(|error| format!("{shown}: {error}"))?;
        checked.map_err(|exposed| exposed.fault(&path).to_string())?;
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX as u64).read_to_string(&mut text);
        read.map_err(|error| format!("{shown}: {error}"))?;
        Ok(Some(text))
    }

    /// Replaces a file. The new content is durable when the call returns.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn write(&self, name: &str, text: &str) -> Result<(), String> {
        self.replace_file(name, text, true)
    }

    /// Replaces the file with the part of the cloud. After a failure of the machine, the file may
    /// have any content: the instances have ended then, and the controller sends the part again.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn write_cloud(&self, text: &str) -> Result<(), String> {
        self.replace_file(CLOUD, text, false)
    }

    /// Replaces the file with the part of the cloud, and calls `accept` with its path. If `accept`
    /// fails, the file has its former content again afterwards.
    ///
    /// # Errors
    /// A text for the operator: the error of `accept`, or of the operating system.
    pub(super) fn try_cloud(
        &self,
        text: &str,
        accept: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<(), String> {
        let shown = self.file(CLOUD_FORMER);
        let failed = |error: io::Error| format!("{}: {error}", shown.display());
        self.keep_cloud().map_err(failed)?;
        let tried = self.write_cloud(text).and_then(|()| accept(&self.file(CLOUD)));
        match tried {
            Ok(()) => {
                let removed = self.directory().and_then(|of| remove(&of, CLOUD_FORMER));
                removed.map_err(failed)
            }
            Err(why) => match self.restore_cloud().map_err(failed) {
                Ok(()) => Err(why),
                Err(also) => Err(format!("{why}; {also}")),
            },
        }
    }

    /// Keeps the file with the part of the cloud under a second name.
    fn keep_cloud(&self) -> io::Result<()> {
        let directory = self.directory()?;
        remove(&directory, CLOUD_FORMER)?;
        match linkat(&directory, CLOUD, &directory, CLOUD_FORMER, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // Not every file system has second names.
            Err(_) => Ok(renameat(&directory, CLOUD, &directory, CLOUD_FORMER)?),
        }
    }

    /// Gives the file that was kept its first name again. Without such a file, the refused one is
    /// removed.
    fn restore_cloud(&self) -> io::Result<()> {
        let directory = self.directory()?;
        match renameat(&directory, CLOUD_FORMER, &directory, CLOUD) {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => remove(&directory, CLOUD),
            Err(error) => Err(error.into()),
        }
    }

    fn replace_file(&self, name: &str, text: &str, is_durable: bool) -> Result<(), String> {
        let replaced = self.replace(name, text, is_durable);
        replaced.map_err(|error| format!("cannot write {}", failed(&self.file(name), &error)))
    }

    fn replace(&self, name: &str, text: &str, is_durable: bool) -> io::Result<()> {
        let (directory, new) = (self.directory()?, format!("{name}.new"));
        remove(&directory, &new)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(openat(&directory, &new, flags, Mode::RUSR | Mode::WUSR)?);
        if let Some(user) = privileges::own_user() {
            fchown(&file, Some(user), None)?;
        }
        file.write_all(text.as_bytes())?;
        if is_durable {
            file.sync_all()?;
        }
        renameat(&directory, &new, &directory, name)?;
        if is_durable {
            directory.sync_all()?;
        }
        Ok(())
    }

    /// Opens the directory. Links are followed only where no other user can change the path.
    fn directory(&self) -> io::Result<File> {
        let of_root = self.0.ancestors().find(|at| place::check(at).is_ok());
        let of_root = of_root.unwrap_or(Path::new("/"));
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut directory = open(of_root, flags | OFlags::PATH, Mode::empty())?;
        let below = self.0.strip_prefix(of_root).map_err(io::Error::other)?;
        for name in below {
            let flags = flags | OFlags::PATH | OFlags::NOFOLLOW;
            directory = openat(&directory, name, flags, Mode::empty())?;
        }
        Ok(openat(&directory, ".", flags | OFlags::RDONLY, Mode::empty())?.into())
    }

    /// Gives a file of the directory another name.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), String> {
        let renamed = self.directory().and_then(|directory| {
            renameat(&directory, from, &directory, to)?;
            directory.sync_all()
        });
        renamed.map_err(|error| format!("cannot rename {}: {error}", self.file(from).display()))
    }

    /// Returns the enrolment; `None` if this host has not enrolled.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn enrolment(&self) -> Result<Option<Enrolment>, String> {
        let Some(text) = self.read(ENROLMENT)? else { return Ok(None) };
        let read = serde_json::from_str(&text);
        let shown = self.file(ENROLMENT);
        read.map(Some).map_err(|error| {
            format!(
                "{}: {error}: remove it, and enrol this host again with a new token",
                shown.display()
            )
        })
    }

    /// Stores the enrolment.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn store(&self, enrolment: &Enrolment) -> Result<(), String> {
        let text = serde_json::to_string_pretty(enrolment).map_err(|error| error.to_string())?;
        self.write(ENROLMENT, &text)
    }

    /// Returns the identity of this host at the controller; draws it if it is missing.
    ///
    /// # Errors
    /// A text for the operator.
    pub(super) fn identity(&self) -> Result<Identity, String> {
        if let Some(text) = self.read(IDENTITY)? {
            let shown = self.file(IDENTITY);
            return Identity::parse(&text).map_err(|error| format!("{}: {error}", shown.display()));
        }
        let identity = Identity::draw()?;
        self.write(IDENTITY, &identity.expose())?;
        Ok(identity)
    }

    /// Returns a private key of the transport; draws it if it is missing.
    ///
    /// # Errors
    /// A text for the operator.
    pub(super) fn key(&self, name: &str) -> Result<SecretKey, String> {
        if let Some(key) = self.key_if_any(name)? {
            return Ok(key);
        }
        let key = SecretKey::draw_private().map_err(|error| format!("random numbers: {error}"))?;
        self.write(name, &key.expose())?;
        Ok(key)
    }

    /// Returns a private key of the transport; `None` if there is no such file.
    ///
    /// # Errors
    /// A text for the operator.
    pub(super) fn key_if_any(&self, name: &str) -> Result<Option<SecretKey>, String> {
        let Some(text) = self.read(name)? else { return Ok(None) };
        let shown = self.file(name);
        let key = SecretKey::parse(&text);
        key.map(Some).map_err(|error| format!("{}: {error}", shown.display()))
    }
}

impl StateDirectory {
    /// Returns the next private key of the transport that the controller has stored; `None` if
    /// there is no such key.
    ///
    /// # Errors
    /// A text for the operator.
    pub(super) fn next_key(&self) -> Result<Option<SecretKey>, String> {
        match self.key_if_any(OFFERED_KEY)? {
            Some(key) => Ok(Some(key)),
            None => self.key_if_any(NEXT_KEY),
        }
    }

    /// Records that the next key is offered to the controller, which may send it to the peers. The
    /// record is durable when the call returns. Nothing changes if there is no next key.
    ///
    /// # Errors
    /// A text for the operator.
    pub(super) fn mark_offered(&self) -> Result<(), String> {
        match self.key_if_any(NEXT_KEY)? {
            Some(_) => self.rename(NEXT_KEY, OFFERED_KEY),
            None => Ok(()),
        }
    }

    /// Makes a key that an earlier process has offered to the controller the key of this host.
    /// Returns whether there was one.
    ///
    /// # Errors
    /// A text for the operator.
    pub(super) fn use_offered_key(&self) -> Result<bool, String> {
        let Some(_) = self.key_if_any(OFFERED_KEY)? else { return Ok(false) };
        self.rename(OFFERED_KEY, PRIVATE_KEY)?;
        Ok(true)
    }
}

/// Gives a directory to the user `srd`, if this user exists and this process runs as root. A link
/// in the path is followed only where no other user can change the path.
fn give(path: &Path) -> io::Result<()> {
    let Some(user) = privileges::own_user() else { return Ok(()) };
    fchown(StateDirectory::new(path.to_owned()).directory()?, Some(user), None)
}

/// Returns the text of an error at a path, with the remedy for a process that lacks the rights.
pub(super) fn failed(at: &Path, error: &io::Error) -> String {
    let is_denied = error.kind() == ErrorKind::PermissionDenied && place::exposed(error).is_none();
    let remedy = if is_denied { ": only root and the owner may do this: use sudo" } else { "" };
    format!("{}: {error}{remedy}", at.display())
}

/// Removes a file of a directory, if it exists.
fn remove(directory: &File, name: &str) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// The first enrolment by another user than root ended with the error of the operating system.
    #[test]
    fn regression_an_enrolment_without_rights_ends_with_a_remedy() {
        let said = |error: io::Error| failed(Path::new("/var/lib/srd"), &error);
        let denied = said(ErrorKind::PermissionDenied.into());
        assert!(denied.starts_with("/var/lib/srd: ") && denied.ends_with("use sudo"), "{denied}");
        assert!(!said(ErrorKind::NotFound.into()).contains("sudo"));
        // This error has a remedy of its own.
        let exposed = place::Exposed { at: PathBuf::from("/var"), why: String::from("its mode") };
        let exposed = said(io::Error::new(ErrorKind::PermissionDenied, exposed));
        assert!(!exposed.contains("sudo"), "{exposed}");
    }

    fn enrolment() -> Enrolment {
        Enrolment {
            controller: Identity::draw().unwrap().fingerprint(),
            next_controller: None,
            name: "a".to_owned(),
            address: "10.77.0.1/16".parse().unwrap(),
            endpoints: vec!["192.0.2.1:7471".parse().unwrap()],
            generation: 3,
            peers: Vec::new(),
            is_removed: false,
        }
    }

    #[test]
    fn files_are_private_and_survive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(directory.path().join("a/b"));
        assert_eq!(state.enrolment(), Ok(None));
        state.create().unwrap();
        let (identity, key) = (state.identity().unwrap(), state.key(PRIVATE_KEY).unwrap());
        let enrolment = enrolment();
        state.store(&enrolment).unwrap();
        state.store(&enrolment).unwrap();
        assert_eq!(state.identity().unwrap().fingerprint(), identity.fingerprint());
        assert_eq!(state.key(PRIVATE_KEY), Ok(key));
        assert_eq!(state.enrolment(), Ok(Some(enrolment)));
        let files: Vec<_> = fs::read_dir(state.file("")).unwrap().flatten().collect();
        assert_eq!(files.len(), 3);
        for file in files {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        }
    }

    /// The file of a host of an earlier build.
    #[test]
    fn an_enrolment_without_a_next_controller_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(directory.path().to_owned());
        let before = enrolment();
        state.store(&before).unwrap();
        let text = fs::read_to_string(state.file(ENROLMENT)).unwrap();
        assert!(!text.contains("next_controller"), "{text}");
        assert_eq!(state.enrolment(), Ok(Some(before.clone())));
        let next_controller = Some(Identity::draw().unwrap().fingerprint());
        let during = Enrolment { next_controller, ..before };
        state.store(&during).unwrap();
        assert_eq!(state.enrolment(), Ok(Some(during)));
    }

    /// Root followed links that the user of the daemon had made.
    #[test]
    fn regression_no_link_of_the_daemon_s_user_leads_root_to_another_file() {
        use std::os::unix::fs::{chown, lchown, symlink};
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root gives files away");
            return;
        }
        let other = Some(65_534);
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let of_root = StateDirectory::new(at("root"));
        let theirs = StateDirectory::new(at("theirs/state"));
        of_root.create().unwrap();
        theirs.create().unwrap();
        of_root.store(&enrolment()).unwrap();
        chown(at("theirs"), other, None).unwrap();
        chown(at("theirs/state"), other, None).unwrap();
        theirs.write("file", "text").unwrap();
        symlink(at("root/enrolment.json"), at("theirs/state/enrolment.json")).unwrap();
        lchown(at("theirs/state/enrolment.json"), other, None).unwrap();
        let error = theirs.enrolment().unwrap_err();
        assert!(error.contains("belongs to user 65534"), "{error}");
        // In place of the link, there is a file.
        theirs.store(&enrolment()).unwrap();
        theirs.enrolment().unwrap().unwrap();
        fs::rename(at("theirs/state"), at("theirs/old")).unwrap();
        symlink(at("root"), at("theirs/state")).unwrap();
        lchown(at("theirs/state"), other, None).unwrap();
        theirs.write("file", "text").unwrap_err();
        theirs.rename(ENROLMENT, "file").unwrap_err();
        theirs.enrolment().unwrap_err();
        assert!(of_root.enrolment().unwrap().is_some() && !at("root/file").exists());
    }

    /// After the first refusal of a process, the refused text stayed, and a reload put it in force.
    #[test]
    fn regression_a_refused_part_of_the_cloud_does_not_stay() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(directory.path().to_owned());
        let refuse = |path: &Path| {
            assert_eq!(fs::read_to_string(path).unwrap(), "new");
            Err("no".to_owned())
        };
        assert_eq!(state.try_cloud("new", refuse), Err("no".to_owned()));
        assert!(!state.file(CLOUD).exists());
        state.write_cloud("former").unwrap();
        let content = || fs::read_to_string(state.file(CLOUD)).unwrap();
        for _ in 0..2 {
            assert_eq!(state.try_cloud("new", refuse), Err("no".to_owned()));
            assert_eq!(content(), "former");
        }
        assert_eq!(state.try_cloud("new", |_| Ok(())), Ok(()));
        assert_eq!(content(), "new");
        assert!(!state.file(CLOUD_FORMER).exists());
    }

    #[test]
    fn files_that_others_can_read_or_that_are_damaged_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(directory.path().to_owned());
        state.store(&enrolment()).unwrap();
        fs::set_permissions(state.file(ENROLMENT), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(state.enrolment().unwrap_err().contains("chmod 600"));
        state.write(ENROLMENT, "{").unwrap();
        assert!(state.enrolment().unwrap_err().contains("enrol this host again"));
        state.write(IDENTITY, "hidden").unwrap();
        let error = state.identity().unwrap_err();
        assert!(error.contains(IDENTITY) && !error.contains("hidden"), "{error}");
    }
}

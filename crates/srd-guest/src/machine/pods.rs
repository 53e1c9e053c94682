//! Pods: network namespaces that other programs have made, for example a container runtime. The
//! interfaces of an instance of a pod are devices in the namespace of the pod.
//!
//! A program of root, such as the CNI plugin, *announces* a pod: it writes a file into a directory
//! that only root may enter. The name of the file is the name of the pod. An instance whose table
//! in the cloud's file has the key `pod` with this name gets its devices in that namespace. The
//! helper reads announcements, and accepts no namespace that was not announced, whatever the card
//! requests.
//!
//! Bounds: an announcement has at most [`FILE_BYTES_MAX`] bytes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::fstatfs;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};
use srd_trust::place;

use crate::control::protocol::is_name;
use crate::machine::locks;
use crate::machine::within::within;

/// Directory of the announcements.
pub const DIRECTORY: &str = "/run/srd-card/pods";
/// Maximum size of an announcement in bytes.
pub const FILE_BYTES_MAX: u64 = 8192;
/// Maximum length of a device's name in bytes, as in the kernel.
const DEVICE_BYTES_MAX: usize = 15;
/// Magic number of the file system of namespaces (`NSFS_MAGIC` of Linux).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// The announcement of a pod.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// Path of the file of the network namespace.
    netns: PathBuf,
    /// Device and inode of this file, which identify the namespace: the path may belong to another
    /// namespace later.
    identity: (u64, u64),
    /// The interface in the pod.
    interface: PodInterface,
}

/// The first interface of an instance in its pod.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodInterface {
    /// Name of the device in the namespace.
    pub device: String,
    /// Whether the default routes of the namespace lead to the device.
    pub default_route: bool,
}

/// Whether a device in a namespace may have this name.
pub fn is_device(name: &str) -> bool {
    let fits = (1..=DEVICE_BYTES_MAX).contains(&name.len()) && name != "lo";
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    fits && begins && name.bytes().all(is_word)
}

/// Opens the file of a network namespace, which is not the one of this process.
fn open(netns: &Path) -> Result<File> {
    let shown = netns.display();
    let file = File::open(netns).with_context(|| format!("the namespace {shown}"))?;
    let kind = fstatfs(&file).with_context(|| format!("the namespace {shown}"))?.f_type;
    if u64::try_from(kind).ok() != Some(NSFS_MAGIC) {
        bail!("{shown} is no namespace");
    }
    let own = fs::metadata("/proc/thread-self/ns/net").context("the namespace of this process")?;
    if identity(&file)? == (own.dev(), own.ino()) {
        bail!("{shown} is the network of this machine, not of a pod");
    }
    Ok(file)
}

fn identity(file: &File) -> Result<(u64, u64)> {
    let facts = file.metadata().context("a namespace")?;
    Ok((facts.dev(), facts.ino()))
}

impl Pod {
    /// Describes the pod with this network namespace.
    ///
    /// # Errors
    /// The file is not that of another network namespace, or no device can have the name of the
    /// interface.
    pub fn new(netns: &Path, interface: PodInterface) -> Result<Self> {
        if !is_device(&interface.device) {
            // Debug form: a name may have control characters, which a log must not get.
            bail!("{:?} is no name of a device", interface.device);
        }
        let file = open(netns)?;
        // A namespace of another kind cannot be entered as a network.
        within(&file, || ()).with_context(|| format!("the namespace {}", netns.display()))?;
        let identity = identity(&file)?;
        Ok(Self { netns: netns.to_owned(), identity, interface })
    }

    /// Opens the namespace, which is the announced one.
    fn file(&self) -> Result<File> {
        let file = open(&self.netns)?;
        if identity(&file)? != self.identity {
            bail!("{} is another namespace than the announced one", self.netns.display());
        }
        Ok(file)
    }

    /// The interface in the pod.
    pub(crate) fn interface(&self) -> &PodInterface {
        &self.interface
    }

    /// Opens the namespace, in which no device has the name of the interface yet.
    pub(crate) fn open(&self) -> Result<File> {
        let file = self.file()?;
        if self.has_device()? {
            bail!("the pod has a device {} already", self.interface.device);
        }
        Ok(file)
    }

    /// Runs `work` in the namespace, on a separate thread. Programs that `work` starts run in the
    /// namespace as well.
    ///
    /// # Errors
    /// The namespace is gone.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        within(&self.file()?, work)
    }

    /// Whether the namespace has a device with the name of the interface.
    ///
    /// # Errors
    /// The namespace is gone, or an error of the operating system.
    pub fn has_device(&self) -> Result<bool> {
        let find = || {
            let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
            name_to_index(&socket, &self.interface.device)
        };
        match self.within(find)? {
            Ok(_) => Ok(true),
            Err(Errno::NODEV) => Ok(false),
            Err(error) => Err(error).context("the devices of the namespace"),
        }
    }

    /// Writes the announcement of the pod with this name. The directory is created with mode 0700.
    ///
    /// # Errors
    /// A pod cannot have this name, another user may enter or change the directory, or an error of
    /// the operating system.
    pub fn announce(&self, directory: &Path, name: &str) -> Result<()> {
        let path = path_of(directory, name)?;
        if let Some(above) = directory.parent() {
            place::make_directory(above, locks::DIRECTORY_MODE)?;
        }
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.with_context(|| format!("cannot make {}", directory.display()))?,
        }
        check(directory)?;
        let new = directory.join(format!(".{name}.{}", std::process::id()));
        let failed = || format!("cannot write {}", path.display());
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new).with_context(failed)?;
        let written = file.write_all(&serde_json::to_vec(self)?);
        let written = written.and_then(|()| fs::rename(&new, &path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written.with_context(failed)
    }
}

/// Removes the announcement of a pod, if there is one. Devices in the pod stay.
///
/// # Errors
/// A pod cannot have this name, or an error of the operating system.
pub fn withdraw(directory: &Path, name: &str) -> Result<()> {
    let path = path_of(directory, name)?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("cannot remove {}", path.display())),
    }
}

/// Reads the announcement of a pod.
///
/// # Errors
/// There is no such announcement, or another user may change it.
pub fn read(directory: &Path, name: &str) -> Result<Pod> {
    let path = path_of(directory, name)?;
    let mut text = Vec::new();
    let file = File::open(&path).with_context(|| format!("no pod `{name}` is announced here"))?;
    check(directory)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
        bail!("{} has more than {FILE_BYTES_MAX} bytes", path.display());
    }
    let pod: Pod = serde_json::from_slice(&text)
        .with_context(|| format!("{} is no announcement", path.display()))?;
    if !is_device(&pod.interface.device) {
        // Debug form: a name may have control characters, which a log must not get.
        bail!("{}: {:?} is no name of a device", path.display(), pod.interface.device);
    }
    Ok(pod)
}

/// Returns the directory of the announcements for a directory of locks.
pub(crate) fn beside(locks: &Path) -> PathBuf {
    locks.with_file_name("pods")
}

fn path_of(directory: &Path, name: &str) -> Result<PathBuf> {
    if !is_name(name) {
        bail!("{name:?} is no name of a pod: use up to 40 letters, digits and hyphens");
    }
    Ok(directory.join(name))
}

/// Checks that only root may enter the directory of the announcements.
fn check(directory: &Path) -> Result<()> {
    place::check(directory)?;
    let facts = fs::symlink_metadata(directory)?;
    if !facts.is_dir() || facts.mode() & 0o077 != 0 {
        bail!("{} has to be a directory of mode 0700: remove it", directory.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn interface(device: &str) -> PodInterface {
        PodInterface { device: device.to_owned(), default_route: true }
    }

    /// A pod whose namespace is not opened.
    fn pod(device: &str) -> Pod {
        let netns = PathBuf::from("/run/netns/none");
        Pod { netns, identity: (4, 7), interface: interface(device) }
    }

    #[test]
    fn an_announcement_is_read_as_it_was_written_until_it_is_withdrawn() {
        let directory = tempfile::tempdir().unwrap();
        let pods = directory.path().join("pods");
        assert!(read(&pods, "a").unwrap_err().to_string().contains("no pod `a` is announced"));
        withdraw(&pods, "a").unwrap();
        pod("eth0").announce(&pods, "a").unwrap();
        pod("net1").announce(&pods, "b").unwrap();
        assert_eq!(read(&pods, "a").unwrap(), pod("eth0"));
        assert_eq!(fs::metadata(&pods).unwrap().permissions().mode() & 0o777, 0o700);
        withdraw(&pods, "a").unwrap();
        assert!(read(&pods, "a").is_err());
        assert_eq!(read(&pods, "b").unwrap(), pod("net1"));
        assert_eq!(fs::read_dir(&pods).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn names_that_leave_the_directory_and_large_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let pods = directory.path().join("pods");
        for name in ["", "../locks/x", "a/b", ".a", "-a", &"x".repeat(41)] {
            assert!(pod("eth0").announce(&pods, name).is_err(), "{name}");
            assert!(read(&pods, name).is_err() && withdraw(&pods, name).is_err(), "{name}");
        }
        pod("eth0").announce(&pods, "a").unwrap();
        let bytes = usize::try_from(FILE_BYTES_MAX).unwrap();
        for (length, what) in [(bytes, "no announcement"), (bytes + 1, "more than 8192 bytes")] {
            fs::write(pods.join("a"), " ".repeat(length)).unwrap();
            let error = read(&pods, "a").unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_directory_that_others_may_enter_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let pods = directory.path().join("pods");
        pod("eth0").announce(&pods, "a").unwrap();
        fs::set_permissions(&pods, Permissions::from_mode(0o755)).unwrap();
        assert!(read(&pods, "a").unwrap_err().to_string().contains("0700"));
        assert!(pod("eth0").announce(&pods, "b").is_err());
    }

    #[test]
    fn only_another_network_namespace_is_one_of_a_pod() {
        let error = |path: &Path| Pod::new(path, interface("eth0")).unwrap_err();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(error(&file).to_string().contains("is no namespace"));
        let own = error(Path::new("/proc/self/ns/net")).to_string();
        assert!(own.contains("the network of this machine"), "{own}");
        assert!(error(&directory.path().join("missing")).to_string().contains("missing"));
    }

    #[test]
    fn devices_have_names_that_are_no_option_and_no_path() {
        for name in ["eth0", "ens5", "net1", "a.b-c_d", &"x".repeat(15)] {
            assert!(is_device(name), "{name}");
        }
        for name in ["", "lo", "-eth0", ".", "..", "a/b", "a b", "a:1", "é", &"x".repeat(16)] {
            assert!(!is_device(name), "{name}");
        }
    }
}

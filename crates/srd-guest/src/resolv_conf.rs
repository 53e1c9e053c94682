//! The `resolv.conf` of a namespace: the one that `ip netns exec` gives to its programs.
//!
//! It names the cloud's resolver, if the cloud has one, as DHCP does on EC2. A file that a person
//! has put there stays, and is in force. Ours is removed with its namespace, however this process
//! ends, and so are the directories above if nothing else is in them.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use srd_vpc::id::EniId;
use srd_vpc::object::World;

use crate::link_local::DOMAIN;
use crate::protocol::NamespaceName;
use crate::undo::Undo;

/// Where `ip netns exec` looks for files of a namespace.
const DIRECTORY: &str = "/etc/netns";
/// The first line of files that are ours.
const OURS: &str = "# Written by srd card, which removes it at its end.";

/// The files of all namespaces, by their names.
#[derive(Debug, Default)]
pub(crate) struct ResolvConfs(BTreeMap<NamespaceName, ResolvConf>);

/// A file. It is removed when this is dropped.
#[derive(Debug)]
struct ResolvConf {
    path: PathBuf,
    resolver: Ipv4Addr,
    undo: Undo,
}

/// The file of a namespace below a directory.
fn file_of(root: &Path, namespace: &str) -> PathBuf {
    root.join(namespace).join("resolv.conf")
}

impl ResolvConf {
    /// Writes the file of a namespace below a directory; `None` if a person's is there.
    fn write(
        root: &Path,
        namespace: &str,
        resolver: Ipv4Addr,
        undo: &Undo,
    ) -> Result<Option<Self>> {
        let (directory, path) = (root.join(namespace), file_of(root, namespace));
        match fs::read_to_string(&path) {
            Ok(text) if !text.starts_with(OURS) => return Ok(None),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let file = Self { path, resolver, undo: undo.clone() };
        undo.later(&file.removal())?;
        let text = format!("{OURS}\nsearch {DOMAIN}\nnameserver {resolver}\n");
        for again in [true, true, false] {
            // Another card may remove a directory while it is empty.
            let written =
                fs::create_dir_all(&directory).and_then(|()| fs::write(&file.path, &text));
            match written {
                Err(error) if again && error.kind() == ErrorKind::NotFound => {}
                written => {
                    written?;
                    break;
                }
            }
        }
        Ok(Some(file))
    }

    fn removal(&self) -> String {
        let path = self.path.display();
        let directories = self.path.ancestors().skip(1).take(2);
        let directories: Vec<String> =
            directories.map(|directory| directory.display().to_string()).collect();
        format!(
            "head -n 1 {path} | grep -qxF '{OURS}' && rm {path}; rmdir {}",
            directories.join(" ")
        )
    }
}

impl Drop for ResolvConf {
    fn drop(&mut self) {
        let is_ours = fs::read_to_string(&self.path).is_ok_and(|text| text.starts_with(OURS));
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("{} stays: {error}", self.path.display());
        }
        for directory in self.path.ancestors().skip(1).take(2) {
            // One that is not empty stays.
            let _ = fs::remove_dir(directory);
        }
        self.undo.never(&self.removal());
    }
}

impl ResolvConfs {
    /// Files that another process has written: of which namespace, where, and with which resolver.
    pub(crate) fn adopt(all: Vec<(NamespaceName, PathBuf, Ipv4Addr)>, undo: &Undo) -> Self {
        let is_ours = |(namespace, path, _): &(NamespaceName, PathBuf, Ipv4Addr)| {
            // The file is written and removed by this process later on.
            *path == file_of(Path::new(DIRECTORY), namespace.as_str())
        };
        let all = all.into_iter().filter(is_ours);
        let files = all.map(|(namespace, path, resolver)| {
            (namespace, ResolvConf { path, resolver, undo: undo.clone() })
        });
        Self(files.collect())
    }

    /// The namespaces that have a file of ours, where it is, and its resolver.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&NamespaceName, &Path, Ipv4Addr)> {
        let all = self.0.iter();
        all.map(|(namespace, file)| (namespace, file.path.as_path(), file.resolver))
    }

    /// They are another process's now, and stay.
    pub(crate) fn leave(self) {
        self.0.into_values().for_each(std::mem::forget);
    }

    /// Writes the files of these namespaces, with the resolvers of their clouds, and no others.
    pub(crate) fn set(&mut self, wanted: BTreeMap<NamespaceName, Ipv4Addr>, undo: &Undo) {
        self.0.retain(|namespace, file| wanted.get(namespace) == Some(&file.resolver));
        for (namespace, resolver) in wanted {
            if self.0.contains_key(&namespace) {
                continue;
            }
            let file = ResolvConf::write(Path::new(DIRECTORY), namespace.as_str(), resolver, undo);
            match file.with_context(|| format!("resolv.conf of {namespace}")) {
                Ok(file) => self.0.extend(file.map(|file| (namespace, file))),
                Err(error) => tracing::warn!("{error:#}: its programs use this machine's"),
            }
        }
    }
}

/// The resolver of an interface's cloud, if that has DNS support.
pub(crate) fn resolver_of(world: &World, eni: EniId) -> Option<Ipv4Addr> {
    let subnet = world.subnets.get(&world.enis.get(&eni)?.subnet)?;
    let vpc = world.vpcs.get(&subnet.vpc).filter(|vpc| vpc.dns_support)?;
    let base = vpc.ipv4.first()?.network();
    Some(Ipv4Addr::from(u32::from(base).wrapping_add(2)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;

    const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn setting() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("netns");
        let file = root.join("one/resolv.conf");
        (directory, root, file)
    }

    #[test]
    fn it_is_there_as_long_as_its_namespace() {
        let (directory, root, file) = setting();
        let undo = Undo::start_at(&directory.path().join("locks")).unwrap();
        let one = ResolvConf::write(&root, "one", RESOLVER, &undo).unwrap().unwrap();
        let two = ResolvConf::write(&root, "two", RESOLVER, &undo).unwrap().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("\nsearch ec2.internal\nnameserver 10.0.0.2\n"), "{text}");
        drop(one);
        assert!(!file.exists() && root.join("two/resolv.conf").exists());
        drop(two);
        assert!(!root.exists());
    }

    /// A process that is killed leaves the rest to the list.
    #[test]
    fn it_is_removed_after_a_kill() {
        let (directory, root, file) = setting();
        let undo = Undo::start_at(&directory.path().join("locks")).unwrap();
        let one = ResolvConf::write(&root, "one", RESOLVER, &undo).unwrap().unwrap();
        assert!(file.exists());
        let command = one.removal();
        std::mem::forget(one);
        let status = std::process::Command::new("sh").args(["-c", &command]).status().unwrap();
        assert!(status.success());
        assert!(!root.exists());
    }

    #[test]
    fn a_person_s_file_stays() {
        let (directory, root, file) = setting();
        let undo = Undo::start_at(&directory.path().join("locks")).unwrap();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "nameserver 192.0.2.1\n").unwrap();
        assert!(ResolvConf::write(&root, "one", RESOLVER, &undo).unwrap().is_none());
        // One that has become a person's in between stays, too.
        let other = root.join("two/resolv.conf");
        let two = ResolvConf::write(&root, "two", RESOLVER, &undo).unwrap().unwrap();
        fs::write(&other, "nameserver 192.0.2.1\n").unwrap();
        drop(two);
        assert_eq!(fs::read_to_string(&file).unwrap(), "nameserver 192.0.2.1\n");
        assert!(other.exists());
        // What a killed card has left is written again.
        fs::write(&file, format!("{OURS}\nnameserver 192.0.2.9\n")).unwrap();
        let one = ResolvConf::write(&root, "one", RESOLVER, &undo).unwrap();
        assert!(one.is_some() && fs::read_to_string(&file).unwrap().contains("10.0.0.2"));
    }
}

//! The `resolv.conf` of a namespace, which `ip netns exec` gives to its programs.
//!
//! The file names the cloud's resolver, if the cloud has one, as DHCP does on EC2. A file of the
//! administrator stays, and is in force. The card's file is removed with its namespace, whatever
//! ends this process, and so are the directories above if they are empty.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use srd_vpc::id::EniId;
use srd_vpc::object::World;

use crate::control::protocol::NamespaceName;
use crate::link_local::DOMAIN;

/// Directory in which `ip netns exec` looks for files of a namespace.
pub(crate) const DIRECTORY: &str = "/etc/netns";
/// The first line of files that the card has written.
const OURS: &str = "# Written by srd card, which removes it at its end.";

/// The resolvers that the card has set for namespaces, by the names of the namespaces.
#[derive(Debug, Default)]
pub(crate) struct Resolvers(BTreeMap<NamespaceName, Ipv4Addr>);

/// The helper's handle of a `resolv.conf` that a card has written.
#[derive(Debug)]
pub(crate) struct ResolvConf {
    path: PathBuf,
    resolver: Ipv4Addr,
}

/// Returns the path of a namespace's file below a directory.
fn file_of(root: &Path, namespace: &str) -> PathBuf {
    root.join(namespace).join("resolv.conf")
}

impl ResolvConf {
    /// Writes the file of a namespace below a directory; `None` if the administrator has a file
    /// there.
    pub(crate) fn write(root: &Path, namespace: &str, resolver: Ipv4Addr) -> Result<Option<Self>> {
        let (directory, path) = (root.join(namespace), file_of(root, namespace));
        match fs::read_to_string(&path) {
            Ok(text) if !text.starts_with(OURS) => return Ok(None),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let file = Self { path, resolver };
        let text = format!("{OURS}\nsearch {DOMAIN}\nnameserver {resolver}\n");
        for again in [true, true, false] {
            // Another card may remove the directory while it is empty.
            let written =
                fs::create_dir_all(&directory).and_then(|()| fs::write(&file.path, &text));
            match written {
                Err(error) if again && error.kind() == ErrorKind::NotFound => {}
                Ok(()) => break,
                Err(error) => {
                    file.remove_part_of(&text);
                    return Err(error.into());
                }
            }
        }
        Ok(Some(file))
    }

    /// Removes a file that was not written completely. An empty file would be in force, and would
    /// later be taken for a file of the administrator.
    fn remove_part_of(&self, text: &str) {
        if fs::read_to_string(&self.path).is_ok_and(|part| text.starts_with(&part)) {
            let _ = fs::remove_file(&self.path);
        }
        self.remove_directories();
    }

    /// Removes the directories above the file; a directory that is not empty stays.
    fn remove_directories(&self) {
        for directory in self.path.ancestors().skip(1).take(2) {
            let _ = fs::remove_dir(directory);
        }
    }

    pub(crate) fn resolver(&self) -> Ipv4Addr {
        self.resolver
    }

    /// Removes the file, unless the administrator has replaced it.
    pub(crate) fn remove(self) {
        let is_ours = fs::read_to_string(&self.path).is_ok_and(|text| text.starts_with(OURS));
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("{} stays: {error}", self.path.display());
        }
        self.remove_directories();
    }
}

impl Resolvers {
    /// Records the resolvers that namespaces shall have. Returns the necessary changes: the new
    /// resolver of a namespace, or `None` if its file has to be removed.
    pub(crate) fn set(
        &mut self,
        wanted: BTreeMap<NamespaceName, Ipv4Addr>,
    ) -> Vec<(NamespaceName, Option<Ipv4Addr>)> {
        let gone = self.0.keys().filter(|name| !wanted.contains_key(name));
        let mut changes: Vec<_> = gone.map(|name| (name.clone(), None)).collect();
        let new = wanted.iter().filter(|(name, of)| self.0.get(name) != Some(*of));
        changes.extend(new.map(|(name, of)| (name.clone(), Some(*of))));
        self.0 = wanted;
        changes
    }
}

/// Returns the address of the resolver of an interface's cloud; `None` if the cloud has no DNS
/// support.
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
        let (_directory, root, file) = setting();
        let one = ResolvConf::write(&root, "one", RESOLVER).unwrap().unwrap();
        let two = ResolvConf::write(&root, "two", RESOLVER).unwrap().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("\nsearch ec2.internal\nnameserver 10.0.0.2\n"), "{text}");
        one.remove();
        assert!(!file.exists() && root.join("two/resolv.conf").exists());
        two.remove();
        assert!(!root.exists());
    }

    #[test]
    fn a_person_s_file_stays() {
        let (_directory, root, file) = setting();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "nameserver 192.0.2.1\n").unwrap();
        assert!(ResolvConf::write(&root, "one", RESOLVER).unwrap().is_none());
        // A file that the administrator has replaced meanwhile stays as well.
        let other = root.join("two/resolv.conf");
        let two = ResolvConf::write(&root, "two", RESOLVER).unwrap().unwrap();
        fs::write(&other, "nameserver 192.0.2.1\n").unwrap();
        two.remove();
        assert_eq!(fs::read_to_string(&file).unwrap(), "nameserver 192.0.2.1\n");
        assert!(other.exists());
        // The file of a killed card is written again.
        fs::write(&file, format!("{OURS}\nnameserver 192.0.2.9\n")).unwrap();
        let one = ResolvConf::write(&root, "one", RESOLVER).unwrap();
        assert!(one.is_some() && fs::read_to_string(&file).unwrap().contains("10.0.0.2"));
    }

    /// Mounts a file system with no free space, which needs privileges.
    #[test]
    fn regression_a_file_that_cannot_be_written_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mount = directory.path().join("full");
        fs::create_dir(&mount).unwrap();
        let run = |program: &str, words: &[&str]| {
            let mut command = std::process::Command::new(program);
            command.args(words).arg(&mount).status().is_ok_and(|status| status.success())
        };
        if !run("mount", &["-t", "tmpfs", "-o", "size=4k", "none"]) {
            println!("skipped: mounts need privileges");
            return;
        }
        fs::write(mount.join("fill"), [0; 4096]).unwrap();
        let root = mount.join("netns");
        let error = ResolvConf::write(&root, "one", RESOLVER).unwrap_err();
        let is_there = root.exists();
        assert!(run("umount", &[]));
        assert!(error.to_string().contains("space"), "{error}");
        assert!(!is_there);
    }

    #[test]
    fn only_what_differs_is_changed() {
        let name = |of: &str| NamespaceName::of_instance(of).unwrap();
        let mut all = Resolvers::default();
        let other = Ipv4Addr::new(10, 1, 0, 2);
        let two = BTreeMap::from([(name("a"), RESOLVER), (name("b"), RESOLVER)]);
        assert_eq!(all.set(two.clone()).len(), 2);
        assert!(all.set(two).is_empty());
        let changes = all.set(BTreeMap::from([(name("b"), other)]));
        assert_eq!(changes, [(name("a"), None), (name("b"), Some(other))]);
    }
}

//! Network namespaces of instances, and their interfaces.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};
use srd_net::Tun;

use crate::control::protocol::NamespaceName;
use crate::failure::Missing;
use crate::helper::Helper;
use crate::machine::batch::batch;
use crate::machine::earlier;
use crate::machine::locks::{self, Lock};
use crate::machine::pods::PodInterface;
use crate::machine::programs::{self, Named};
use crate::machine::within::within;

/// Target of the log messages of this module.
pub(crate) const LOG_TARGET: &str = module_path!();
pub(crate) const NETNS_DIR: &str = "/run/netns";
/// Maximum size of a guest's packet in bytes (EC2 User Guide, *Network MTU*).
const MTU: u16 = 9001;
/// First number of the routing tables of interfaces. The rules that lead to a table have the same
/// number as priority.
const TABLES: usize = 10_000;
/// Upper bound of the number of interfaces of an instance, larger than the number of any instance
/// type.
pub(crate) const DEVICES_MAX: usize = 100;

/// The card's handle of an instance's namespace. Dropping it removes the namespace, if no program
/// runs in it.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: NamespaceName,
    helper: Helper,
    /// Whether programs in the namespace are ended when it is removed.
    ends_programs: bool,
    /// Whether an earlier card has left the namespace, with programs inside. If the start of the
    /// instance fails, these programs are not ended.
    is_found: bool,
    /// Whether another process has taken the namespace over, so that this handle does not remove
    /// it.
    is_left: bool,
}

/// The helper's handle of an instance's namespace.
#[derive(Debug)]
pub(crate) struct Owned {
    inside: Inside,
    /// The open namespace, which exists as long as this file is open, even if its name is deleted.
    file: Option<File>,
    /// Whether an earlier card has left the namespace, with programs inside.
    is_found: bool,
    /// Whether the namespace belongs to a pod. Then the card removes its own name of the namespace,
    /// and ends no programs.
    is_pod: bool,
    /// The lock that prevents other cards from using the namespace while this card runs.
    owned: Lock,
}

/// Access to a namespace by its name, from any thread. The namespace may have been deleted since.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    name: NamespaceName,
}

/// Configuration of an interface's device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Device {
    /// The name of the device in the instance.
    pub(crate) name: String,
    /// Addresses with the prefix lengths of their subnets.
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    /// Whether the default routes lead to this device.
    pub(crate) is_primary: bool,
}

impl Device {
    /// Gives the first device of an instance the name and the routes that its pod has for it.
    pub(crate) fn set_pod(&mut self, interface: &PodInterface) {
        self.name.clone_from(&interface.device);
        self.is_primary = interface.default_route;
    }
}

/// Returns the path of a namespace's file in [`NETNS_DIR`].
pub(crate) fn path_of(name: &NamespaceName) -> PathBuf {
    Path::new(NETNS_DIR).join(name.as_str())
}

/// Runs `ip` with these arguments.
pub(crate) fn ip(words: &[&str]) -> Result<()> {
    run("ip", words)
}

/// Runs a program that prints nothing if it succeeds.
pub(crate) fn run(program: &str, words: &[&str]) -> Result<()> {
    let missing = || Missing::program(program, "iproute2 nftables");
    let output = Command::new(program).args(words).output().with_context(missing)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}", words.join(" "), said.trim());
    }
    Ok(())
}

impl Namespace {
    pub(crate) fn new(name: NamespaceName, is_found: bool, helper: Helper) -> Self {
        Self { name, helper, ends_programs: false, is_found, is_left: false }
    }

    pub(crate) fn name(&self) -> &NamespaceName {
        &self.name
    }

    /// Records that the instance has started completely. From then on, the removal of the namespace
    /// may end its programs, as configured.
    pub(crate) fn settle(&mut self) {
        self.is_found = false;
    }

    /// Sets whether programs in the namespace are ended when it is removed.
    pub(crate) fn set_ends_programs(&mut self, ends: bool) {
        self.ends_programs = ends;
    }

    /// Drops the handle without removing the namespace, which another process has taken over.
    pub(crate) fn leave(mut self) {
        self.is_left = true;
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if !self.is_left {
            self.helper.remove(self.name.clone(), self.ends_programs && !self.is_found);
        }
    }
}

impl Owned {
    /// Creates the namespace of an instance. A namespace of an earlier run is replaced if no
    /// program runs in it. If programs run in it and `may_find` is true, the namespace is kept with
    /// its programs; if `may_find` is false, an error is returned.
    pub(crate) fn make(instance: &str, may_find: bool, locks: &Path) -> Result<Self> {
        let name = NamespaceName::of_instance(instance)
            .with_context(|| format!("a namespace cannot have the name of `{instance}`"))?;
        let path = path_of(&name);
        let is_of_a_card = locks.join(name.as_str()).exists();
        let owned = own(&name, locks, false)?;
        if path.exists() {
            let programs = programs::inside(&path);
            if !programs.is_empty() && may_find {
                tracing::info!("programs run in the namespace {name}, which a card has left");
                let file = File::open(&path).ok();
                let (inside, is_pod) = (Inside { name }, false);
                return Ok(Self { inside, file, is_found: true, is_pod, owned });
            }
            if !programs.is_empty() {
                // The lock of a namespace that a card has left shows this to the card's next file.
                if !is_of_a_card {
                    owned.remove();
                }
                bail!(
                    "the namespace {name} is there already, and programs run in it: {}; end them, \
                     or give the instance another name (`srd run --name`)",
                    Named(&programs)
                );
            }
            ip(&["netns", "del", name.as_str()])?;
        }
        ip(&["netns", "add", name.as_str()])
            .context("an instance needs a network namespace, and so root")?;
        let file = File::open(&path).ok();
        let (inside, is_found, is_pod) = (Inside { name }, false, false);
        let namespace = Self { inside, file, is_found, is_pod, owned };
        match ip(&["-n", namespace.name().as_str(), "link", "set", "lo", "up"]) {
            Ok(()) => Ok(namespace),
            Err(error) => {
                namespace.delete();
                Err(error)
            }
        }
    }

    /// Gives the namespace of a pod the name of an instance. A name that an earlier card has left
    /// is replaced.
    pub(crate) fn of_pod(instance: &str, pod: File, locks: &Path) -> Result<Self> {
        let name = NamespaceName::of_instance(instance)
            .with_context(|| format!("a namespace cannot have the name of `{instance}`"))?;
        let owned = own(&name, locks, true)?;
        let path = path_of(&name);
        let named = match path.exists() {
            true => ip(&["netns", "del", name.as_str()]),
            false => Ok(()),
        };
        let (inside, is_found, is_pod) = (Inside { name }, false, true);
        let namespace = Self { inside, file: Some(pod), is_found, is_pod, owned };
        match named.and_then(|()| namespace.name_again()) {
            Ok(()) => Ok(namespace),
            Err(error) => {
                namespace.delete();
                Err(error)
            }
        }
    }

    /// Whether the namespace belongs to a pod.
    pub(crate) fn is_pod(&self) -> bool {
        self.is_pod
    }

    /// Whether an earlier card has left the namespace, with programs inside.
    pub(crate) fn is_found(&self) -> bool {
        self.is_found
    }

    /// Prepares a namespace of an earlier card, so that these devices can be created in it. The
    /// earlier card's devices, addresses and routes disappeared when its descriptors were closed,
    /// but its routing rules remain: they are deleted. A device with the name of one of these
    /// devices was created by another program, and is deleted as well.
    pub(crate) fn clear(&self, devices: &[Device]) -> Result<()> {
        let inside = &self.inside;
        for Device { name, .. } in devices {
            let find = || {
                let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
                name_to_index(&socket, name)
            };
            if inside.within(find)?.is_ok() {
                tracing::warn!("the device {name} in {} is not the card's: removed", self.name());
                ip(&["-n", self.name().as_str(), "link", "del", "dev", name])?;
            }
        }
        let mut lines = Vec::new();
        for family in ["-4", "-6"] {
            let output = Command::new("ip")
                .args(["-n", self.name().as_str(), family, "rule", "show"])
                .output()
                .with_context(|| Missing::program("ip", "iproute2"))?;
            let rules = String::from_utf8_lossy(&output.stdout).into_owned();
            let ours = rules.lines().filter_map(priority_of_ours);
            let delete = |n| format!("{family} rule del priority {n} table {n}");
            lines.extend(ours.map(delete));
        }
        inside.batch(&lines)
    }

    /// Returns the open file of the namespace; `None` if it could not be opened when this handle
    /// was created.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Gives the namespace its name, which another program has deleted or which is new.
    pub(crate) fn name_again(&self) -> Result<()> {
        let name = self.name().as_str();
        let file = self.file.as_ref().with_context(|| format!("the namespace {name} is gone"))?;
        // `ip` accepts the number of a thread in place of a process id.
        let attach = || {
            let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
            ip(&["netns", "attach", name, &thread])
        };
        within(file, attach)?
    }

    pub(crate) fn name(&self) -> &NamespaceName {
        &self.inside.name
    }

    pub(crate) fn inside(&self) -> &Inside {
        &self.inside
    }

    /// Removes the namespace if no program runs in it. Returns whether it is gone. If programs run
    /// in it, it keeps its name, for the next card and for `ip netns pids`. The namespace of a pod
    /// loses the name of the instance, and stays.
    pub(crate) fn delete(self) -> bool {
        let name = self.name();
        let path = path_of(name);
        if !path.exists() {
            // Another program has deleted the name.
            self.owned.remove();
            return true;
        }
        let programs = if self.is_pod { Vec::new() } else { programs::inside(&path) };
        if !programs.is_empty() {
            tracing::warn!(
                "the namespace {name} stays, without an interface, since programs run in it: {}",
                Named(&programs)
            );
            return false;
        }
        match ip(&["netns", "del", name.as_str()]) {
            Ok(()) => {
                self.owned.remove();
                true
            }
            // The removal is tried again at the end of this card.
            Err(error) => {
                tracing::warn!("the namespace {name} stays for now: {error:#}");
                false
            }
        }
    }
}

/// Removes a namespace that was left to its programs, if they have ended and no other card owns it.
pub(crate) fn delete_left(name: &NamespaceName, locks: &Path) {
    let path = path_of(name);
    if !programs::inside(&path).is_empty() {
        return;
    }
    if let Ok(Some(lock)) = Lock::take(locks, name.as_str())
        && (!path.exists() || ip(&["netns", "del", name.as_str()]).is_ok())
    {
        lock.remove();
    }
}

impl Inside {
    /// Gives access to the namespace with this name. The namespace need not exist yet.
    pub(crate) fn of(name: NamespaceName) -> Self {
        Self { name }
    }

    /// Restores addresses that a device has lost, and lost default routes. `routes`: whether the
    /// default routes of IPv4 and IPv6 are lost.
    pub(crate) fn restore(
        &self,
        device: &str,
        addresses: &[(IpAddr, u8)],
        routes: [bool; 2],
    ) -> Result<()> {
        let add = |(address, length): &(IpAddr, u8)| match address {
            IpAddr::V4(_) => format!("-4 addr replace {address}/{length} dev {device}"),
            IpAddr::V6(_) => format!("-6 addr replace {address}/{length} dev {device} nodad"),
        };
        let routes = ["-4", "-6"].into_iter().zip(routes).filter(|(_, is_lost)| *is_lost);
        let routes =
            routes.map(|(family, _)| format!("{family} route replace default dev {device}"));
        let lines: Vec<String> = addresses.iter().map(add).chain(routes).collect();
        self.batch(&lines)
    }

    /// Restores the routing table and the routing rules of an interface, for an instance with
    /// several interfaces. Changes nothing while the device is down.
    pub(crate) fn restore_tables(&self, number: usize, device: &Device) -> Result<()> {
        let Device { name, addresses, .. } = device;
        let is_up = self.within(|| srd_net::link::is_up(name).unwrap_or(false))?;
        if !is_up {
            return Ok(());
        }
        let table = TABLES + number;
        let mut routes = Vec::new();
        for (address, _) in addresses {
            let family = if address.is_ipv6() { "-6" } else { "-4" };
            let (address, table) = (address.to_string(), table.to_string());
            let rule = ["rule", "add", "from", &address, "table", &table, "priority", &table];
            match ip(&[&["-n", self.name.as_str(), family], &rule[..]].concat()) {
                Err(error) if !error.to_string().contains("File exists") => return Err(error),
                _ => {}
            }
            routes.push(format!("{family} route replace default dev {name} table {table}"));
        }
        routes.dedup();
        self.batch(&routes)
    }

    /// Opens `queues` queues of a device, and creates the device if it is missing.
    fn open(&self, device: &str, queues: u16) -> Result<Vec<Tun>> {
        let open = || (0..queues).map(|_| Tun::open_one_of_several(device)).collect();
        let opened: std::io::Result<Vec<Tun>> = self.within(open)?;
        opened.context("a TUN device")
    }

    /// Opens `queues` more queues of an existing device.
    pub(crate) fn open_more(&self, device: &str, queues: u16) -> Result<Vec<Tun>> {
        let open = || -> std::io::Result<Vec<Tun>> {
            // If the device was moved to another namespace, opening would make a new one.
            let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
            name_to_index(&socket, device)?;
            (0..queues).map(|_| Tun::open_one_of_several(device)).collect()
        };
        self.within(open)?.with_context(|| format!("the device {device} in {}", self.name))
    }

    /// Creates the device of the interface with this number in the namespace, with `queues` queues
    /// and rings of `ring` packets, and sets its addresses and routes. `several`: whether the
    /// instance has other interfaces.
    pub(crate) fn add(
        &self,
        (number, several): (usize, bool),
        device: &Device,
        queues: u16,
        ring: u32,
    ) -> Result<Vec<Tun>> {
        let tun = self.open(&device.name, queues)?;
        let name = &device.name;
        // The kernel sends router solicitations from an address that it has chosen itself, which no
        // interface of a VPC has. Each start would count packets with a spoofed source.
        let mut lines = vec![
            format!("link set dev {name} addrgenmode none"),
            format!("link set dev {name} mtu {MTU} txqueuelen {ring} up"),
        ];
        lines.extend(addresses_and_routes(number, several, device));
        self.batch(&lines)?;
        Ok(tun)
    }

    /// Runs `ip -batch` in the namespace, once for the lines of each address family.
    fn batch(&self, lines: &[String]) -> Result<()> {
        for family in ["-4", "-6"] {
            let of = |line: &&String| line.starts_with("-6") == (family == "-6");
            let text: Vec<&str> = lines
                .iter()
                .filter(of)
                .map(|line| line.trim_start_matches(family).trim())
                .collect();
            if !text.is_empty() {
                batch(&["-n", self.name.as_str(), family, "-batch", "-"], &text.join("\n"))?;
            }
        }
        Ok(())
    }

    /// Runs `work` in the namespace, on a separate thread. Sockets and devices that `work` opens
    /// belong to this namespace even after the thread has ended.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = path_of(&self.name);
        let file = File::open(&path).with_context(|| format!("namespace {}", self.name))?;
        within(&file, work)
    }
}

/// Returns lines for `ip -batch` that set addresses and routes of an interface's device. Each line
/// begins with its family.
///
/// The default routes lead to the primary interface. If the instance has `several` interfaces,
/// packets from an address of one interface leave by that interface, because the card drops them at
/// any other. A rule for each address leads to a table of its interface (EC2 User Guide, *Configure
/// your network interface for multiple network interfaces*; Amazon Linux does the same
/// automatically).
fn addresses_and_routes(number: usize, several: bool, device: &Device) -> Vec<String> {
    let name = &device.name;
    let mut lines = Vec::new();
    let mut families = [false; 2];
    let table = TABLES + number;
    for (address, length) in &device.addresses {
        let (family, nodad) = if address.is_ipv6() { ("-6 ", " nodad") } else { ("-4 ", "") };
        lines.push(format!("{family}addr add {address}/{length} dev {name}{nodad}"));
        if several {
            lines.push(format!("{family}rule add from {address} table {table} priority {table}"));
        }
        families[usize::from(address.is_ipv6())] = true;
    }
    let mut tables = Vec::new();
    if device.is_primary {
        tables.push(String::new());
    }
    if several {
        tables.push(format!(" table {table}"));
    }
    for (_, family) in families.into_iter().zip(["-4 ", "-6 "]).filter(|(has, _)| *has) {
        // A program that ran before the device was made may have set a route of its own.
        let route = |table| format!("{family}route replace default dev {name}{table}");
        lines.extend(tables.iter().map(route));
    }
    lines
}

/// Returns the priority of a rule, as `ip rule show` prints it, if the rule leads to a table of an
/// interface.
fn priority_of_ours(line: &str) -> Option<usize> {
    let priority: usize = line.split(':').next()?.parse().ok()?;
    let table: usize = line.split("lookup ").nth(1)?.split_whitespace().next()?.parse().ok()?;
    (priority == table && (TABLES..TABLES + DEVICES_MAX).contains(&table)).then_some(priority)
}

/// Removes namespaces of earlier cards whose programs have ended, and logs the other namespaces
/// with their programs. Namespaces of `instances` are skipped, because [`Owned::make`] handles
/// them.
pub(crate) fn sweep(instances: &BTreeSet<NamespaceName>) {
    for (name, lock) in locks::left(Path::new(locks::DIRECTORY)) {
        let path = Path::new(NETNS_DIR).join(&name);
        if !path.exists() {
            lock.remove();
            continue;
        }
        if earlier::has_lock(&name) || instances.iter().any(|wanted| wanted.as_str() == name) {
            continue;
        }
        let programs = if lock.is_of_pod() { Vec::new() } else { programs::inside(&path) };
        if !programs.is_empty() {
            tracing::warn!(
                "the namespace {name} of an earlier card stays, without an interface, since \
                 programs run in it: {}; no instance here has its name. End them: the next card \
                 removes it",
                Named(&programs)
            );
            continue;
        }
        match ip(&["netns", "del", &name]) {
            Ok(()) => {
                tracing::info!("the namespace {name}, which an earlier card has left, is removed");
                lock.remove();
            }
            Err(error) => tracing::warn!("the namespace {name} stays for now: {error:#}"),
        }
    }
}

/// Takes the lock of a namespace for this card. `is_pod`: whether the namespace belongs to a pod.
fn own(name: &NamespaceName, directory: &Path, is_pod: bool) -> Result<Lock> {
    locks::make(directory)?;
    let lock = match earlier::has_lock(name.as_str()) {
        true => None,
        false => Lock::take(directory, name.as_str())?,
    };
    let lock = lock.with_context(|| {
        format!("another card has the namespace {name}: end it, or give the instance another name")
    })?;
    lock.set_pod(is_pod)?;
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_an_instance_s_own_are_told_from_ours() {
        let ours = |line| priority_of_ours(line);
        assert_eq!(ours("10001:\tfrom 10.0.1.11 lookup 10001 "), Some(10_001));
        assert_eq!(ours("10001:\tfrom 10.0.1.11 lookup 7"), None);
        assert_eq!(ours("100:\tfrom 10.0.1.11 lookup 100"), None);
        assert_eq!(ours("20000:\tfrom 10.0.1.11 lookup 20000"), None);
        assert_eq!(ours("32766:\tfrom all lookup main"), None);
        assert_eq!(ours(""), None);
    }
}

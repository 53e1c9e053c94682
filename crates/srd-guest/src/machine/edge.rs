//! The internet's side: a TUN device in this machine's own namespace.
//!
//! Public addresses of the VPC are routed into the device, so that programs of this machine reach
//! instances as the internet would. Packets of instances to other machines are forwarded, and leave
//! with this machine's address. If the machine was no router before, it does not forward packets of
//! other machines either.
//!
//! Instances reach the machine itself only at its address on the internet's side ([`OWN`]), and may
//! answer its own connections. They reach its other addresses only if private addresses are
//! carried. The packet rules here enforce this, and [`crate::machine::own`] does so without them.
//!
//! All changes are undone when this process ends. If another program removes a part meanwhile, as a
//! firewall does that reloads its rules, the helper puts it back ([`crate::helper`]). If the helper
//! is killed as well, the packet rules stay, and show whether the card had switched forwarding on.
//! The next card undoes both ([`clean_left`]).
//!
//! A lock decides to which card the internet's side belongs ([`Right`]): the device may be missing
//! while its card makes it again.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use srd_net::Tun;

use crate::machine::batch::{batch, failed_line};
use crate::machine::locks::Lock;
use crate::machine::namespace::{ip, run};
use crate::machine::own::{OWN, Own};
use crate::machine::programs;

/// Name of the TUN device between instances and the network of this machine.
pub(crate) const DEVICE: &str = "srd-igw";
/// Name of the nftables table that contains the card's packet rules.
pub(crate) const TABLE: &str = "srd_card";
const MTU: u16 = 1500;
const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// Directory with an entry for each device of this network namespace.
const SETTINGS: &str = "/proc/sys/net/ipv4/conf";
/// File whose inode number identifies this network namespace.
const NETWORK: &str = "/proc/thread-self/ns/net";
/// Longest wait for the [`Right`] while a card that starts undoes the changes of a killed one.
const RIGHT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts to take the [`Right`].
const PAUSE: Duration = Duration::from_millis(10);

/// The right to set up, or to undo, the internet's side of this network namespace. One helper has
/// it at a time: from before the device is made until all changes are undone, or until it is
/// killed.
#[derive(Debug)]
pub(crate) struct Right(Lock);

impl Right {
    /// Takes the right. `directory`: that of the locks.
    ///
    /// # Errors
    /// Another card has the internet's side, or an error of the operating system.
    pub(crate) fn take(directory: &Path) -> Result<Self> {
        Self::take_within(directory, RIGHT_WAIT_MAX)
    }

    fn take_within(directory: &Path, wait: Duration) -> Result<Self> {
        let until = Instant::now() + wait;
        loop {
            if let Some(right) = Self::try_take(directory)? {
                return Ok(right);
            }
            if is_made() || Instant::now() >= until {
                return Err(in_use());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Takes the right; `None` if another helper has it.
    fn try_take(directory: &Path) -> Result<Option<Self>> {
        let namespace = fs::metadata(NETWORK).context(NETWORK)?.ino();
        Ok(Lock::take(directory, &format!("edge-{namespace}"))?.map(Self))
    }

    /// Gives the right back, after all changes were undone.
    pub(crate) fn give_back(self) {
        self.0.remove();
    }
}

/// Whether the device of the internet's side exists.
fn is_made() -> bool {
    Path::new(SETTINGS).join(DEVICE).exists()
}

/// The card's state of the internet's side.
#[derive(Debug)]
pub(crate) struct Edge {
    /// The TUN device; `None` while it is deleted.
    tun: Option<Tun>,
    routed: BTreeSet<Ipv4Addr>,
    /// The addresses of this machine that instances cannot reach; `None` if they can reach all of
    /// them.
    pub(crate) own: Option<Own>,
}

impl Edge {
    /// Takes the device, and the addresses that are routed into it. `private`: whether instances
    /// reach private addresses and all addresses of this machine.
    pub(crate) fn new(tun: Tun, routed: BTreeSet<Ipv4Addr>, private: bool) -> Result<Self> {
        let own = if private { None } else { Some(Own::start()?) };
        Ok(Self { tun: Some(tun), routed, own })
    }

    /// Records that the device was deleted, and its routes with it.
    pub(crate) fn lose(&mut self) {
        self.tun = None;
        self.routed.clear();
    }

    /// Takes the device that was created again, with routes of these addresses. Packet rules refer
    /// to the device by its name, and still apply.
    pub(crate) fn find(&mut self, tun: Tun, routed: BTreeSet<Ipv4Addr>) {
        (self.tun, self.routed) = (Some(tun), routed);
    }

    /// Returns the device; `None` while it is deleted.
    pub(crate) fn tun(&self) -> Option<&Tun> {
        self.tun.as_ref()
    }

    /// Returns the device for reading; `None` while it is deleted.
    pub(crate) fn tun_mut(&mut self) -> Option<&mut Tun> {
        self.tun.as_mut()
    }

    /// Returns the addresses in `publics` that are not routed into the device. While the device is
    /// deleted, the result is empty, because the device is created again with all routes.
    pub(crate) fn missing(&self, publics: &BTreeSet<Ipv4Addr>) -> BTreeSet<Ipv4Addr> {
        match self.tun {
            Some(_) => publics.difference(&self.routed).copied().collect(),
            None => BTreeSet::new(),
        }
    }

    /// Records that routes of these addresses were added, unless the device is deleted.
    pub(crate) fn has_routed(&mut self, added: BTreeSet<Ipv4Addr>) {
        if self.tun.is_some() {
            self.routed.extend(added);
        }
    }

    /// Removes and returns the routed addresses that are missing from `publics`.
    pub(crate) fn take_over(&mut self, publics: &BTreeSet<Ipv4Addr>) -> BTreeSet<Ipv4Addr> {
        let over = self.routed.difference(publics).copied().collect();
        self.routed.retain(|address| publics.contains(address));
        over
    }

    /// Returns the addresses that are routed into the device.
    pub(crate) fn routed(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.routed.iter().copied()
    }

    /// Whether an address is a public address of an instance.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V4(address) if self.routed.contains(&address))
    }
}

/// Creates the device of the internet's side with its address, and routes `publics` into it.
pub(crate) fn make(publics: &BTreeSet<Ipv4Addr>) -> Result<Tun> {
    let tun = Tun::open(DEVICE).map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => in_use(),
        _ => anyhow::Error::new(error).context("a TUN device for the internet's side"),
    })?;
    let mtu = MTU.to_string();
    ip(&["link", "set", DEVICE, "mtu", &mtu, "up"])?;
    ip(&["addr", "add", &format!("{OWN}/32"), "dev", DEVICE])?;
    route(publics, &BTreeSet::new())?;
    Ok(tun)
}

/// The error for a device that another process has.
fn in_use() -> anyhow::Error {
    let holders = programs::holders_of_tun(DEVICE);
    let by = match holders.is_empty() {
        true => String::from("another process"),
        false => programs::Named(&holders).to_string(),
    };
    anyhow!(
        "{by} has the device {DEVICE}, since one card of a machine connects its instances to the \
         internet: start this one without --internet (`internet = true`), or end the other one"
    )
}

/// Routes the addresses in `add` into the device, all or none, and removes the routes of the
/// addresses in `remove`. `ip` runs once for all additions, and once for all removals.
pub(crate) fn route(add: &BTreeSet<Ipv4Addr>, remove: &BTreeSet<Ipv4Addr>) -> Result<()> {
    let delete = |address: &Ipv4Addr| format!("route del {address}/32 dev {DEVICE}");
    let add_one = |address: &Ipv4Addr| format!("route add {address}/32 dev {DEVICE} src {OWN}");
    let lines = |all: Vec<String>| all.join("\n");
    if !remove.is_empty() {
        let all = lines(remove.iter().map(delete).collect());
        if let Err(error) = batch(&["-force", "-batch", "-"], &all) {
            tracing::warn!("routes were removed by another: {error:#}");
        }
    }
    if add.is_empty() {
        return Ok(());
    }
    let Err(error) = batch(&["-batch", "-"], &lines(add.iter().map(add_one).collect())) else {
        return Ok(());
    };
    // The batch ends at the first line that fails.
    let failed = failed_line(&format!("{error:#}")).unwrap_or(add.len());
    let done: Vec<String> = add.iter().take(failed.saturating_sub(1)).map(delete).collect();
    if !done.is_empty() {
        let _ = batch(&["-force", "-batch", "-"], &lines(done));
    }
    let address = add.iter().nth(failed.saturating_sub(1)).copied().unwrap_or(OWN);
    Err(error.context(format!("the public address {address} is in use here")))
}

/// Returns the packet rules for packets of instances to this machine itself. `private`: whether
/// instances reach all addresses of this machine; the result is then empty.
fn to_machine(private: bool) -> String {
    if private {
        return String::new();
    }
    format!(
        "add rule ip {TABLE} in iifname {DEVICE} ct state established,related accept\n\
         add rule ip {TABLE} in iifname {DEVICE} ip daddr {OWN} accept\n\
         add rule ip {TABLE} in iifname {DEVICE} drop\n"
    )
}

/// Returns the value of `net.ipv4.ip_forward`: `1` if this machine forwards packets.
pub(crate) fn forwarding() -> Result<String> {
    let now = fs::read_to_string(FORWARD).context(FORWARD)?;
    Ok(now.trim().to_owned())
}

/// Switches the forwarding of packets on again.
pub(crate) fn forward_again() -> Result<()> {
    fs::write(FORWARD, "1").context(FORWARD)
}

/// Sets the rules by which packets of instances leave this machine with its address, and switches
/// forwarding on. Returns the previous value of `net.ipv4.ip_forward`.
pub(crate) fn forward(private: bool) -> Result<String> {
    let before = forwarding()?;
    let set = set_rules(private, &before).and_then(|()| {
        if before != "1" {
            forward_again()?;
        }
        Ok(())
    });
    if set.is_err() {
        give_back(&before);
    }
    set.map(|()| before)
}

/// Replaces all packet rules of the card. `before`: the value of `net.ipv4.ip_forward` before the
/// card started.
pub(crate) fn set_rules(private: bool, before: &str) -> Result<()> {
    let mut rules = format!(
        "add table ip {TABLE}\nflush table ip {TABLE}\n\
         add chain ip {TABLE} out {{ type nat hook postrouting priority 100 ; }}\n\
         add rule ip {TABLE} out iifname {DEVICE} oifname != {DEVICE} masquerade\n\
         add chain ip {TABLE} through {{ type filter hook forward priority 0 ; }}\n\
         add chain ip {TABLE} in {{ type filter hook input priority 0 ; }}\n\
         {}",
        to_machine(private)
    );
    if before != "1" {
        // This rule also shows the next card that this one had switched forwarding on.
        rules +=
            &format!("add rule ip {TABLE} through iifname != {DEVICE} oifname != {DEVICE} drop\n");
    }
    run("nft", &[&rules])
}

/// Undoes the changes of a card that was killed together with its helper: its packet rules, and the
/// value of `net.ipv4.ip_forward`. Does nothing while the internet's side belongs to another card.
/// `directory`: that of the locks.
pub(crate) fn clean_left(directory: &Path) {
    if let Err(error) = if_free(directory, clean) {
        tracing::warn!("packet rules of a killed card may stay: {error:#}");
    }
}

/// Runs `clean` if the internet's side belongs to no card. No card can set it up meanwhile.
fn if_free(directory: &Path, clean: impl FnOnce()) -> Result<()> {
    let Some(right) = Right::try_take(directory)? else { return Ok(()) };
    // A card whose helper was killed has the device until it ends.
    if !is_made() {
        clean();
    }
    right.give_back();
    Ok(())
}

fn clean() {
    let Some(rules) = rules() else { return };
    let before = before(&rules);
    give_back(before);
    let forwarding = forwarding().unwrap_or_default();
    tracing::info!(
        "a card was killed, and its helper as well: its packet rules (table ip {TABLE}) are \
         removed, and net.ipv4.ip_forward is {forwarding}"
    );
}

/// Returns the value of `net.ipv4.ip_forward` before the start of the card that has set these
/// rules, which `nft` has listed: `1`, or `0` if the card switched forwarding on.
fn before(rules: &str) -> &'static str {
    if rules.contains(&format!("oifname != \"{DEVICE}\" drop")) { "0" } else { "1" }
}

/// Returns the card's packet rules as `nft` lists them; `None` if the table does not exist.
pub(crate) fn rules() -> Option<String> {
    let mut list = Command::new("nft");
    let output = list.args(["list", "table", "ip", TABLE]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Removes the card's packet rules, and restores `net.ipv4.ip_forward` to its value before the card
/// started.
pub(crate) fn give_back(before: &str) {
    if before != "1"
        && let Err(error) = fs::write(FORWARD, before)
    {
        tracing::warn!("{FORWARD} stays: {error}");
    }
    if let Err(error) = run("nft", &["delete", "table", "ip", TABLE]) {
        tracing::warn!("the table {TABLE} of packet rules stays: {error:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `net.ipv4.ip_forward` stayed 1 after a card and its helper were killed.
    #[test]
    fn regression_the_packet_rules_tell_whether_the_card_has_switched_forwarding_on() {
        let listed = |through: &str| {
            format!(
                "table ip srd_card {{\n\tchain out {{\n\t\ttype nat hook postrouting priority \
                 srcnat; policy accept;\n\t\tiifname \"srd-igw\" oifname != \"srd-igw\" \
                 masquerade\n\t}}\n\n\tchain through {{\n\t\ttype filter hook forward priority \
                 filter; policy accept;\n{through}\t}}\n\n\tchain in {{\n\t\tiifname \
                 \"srd-igw\" drop\n\t}}\n}}\n"
            )
        };
        assert_eq!(before(&listed("")), "1");
        let drops = "\t\tiifname != \"srd-igw\" oifname != \"srd-igw\" drop\n";
        assert_eq!(before(&listed(drops)), "0");
    }

    /// A card that started removed the packet rules of another one, whose device was missing
    /// because it was being made again.
    #[test]
    fn regression_the_internet_s_side_belongs_to_its_card_also_while_the_device_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let cleans = || {
            let mut has_cleaned = false;
            if_free(at, || {
                has_cleaned = true;
                assert!(Right::try_take(at).unwrap().is_none(), "no card begins meanwhile");
            })
            .unwrap();
            has_cleaned
        };
        assert!(!is_made(), "a card with the internet's side runs here");
        assert!(cleans());
        let right = Right::take(at).unwrap();
        assert!(!cleans());
        let error = Right::take_within(at, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("without --internet"), "{error}");
        right.give_back();
        assert!(cleans());
        assert_eq!(fs::read_dir(at).unwrap().count(), 0, "no file stays");
    }

    #[test]
    fn addresses_are_routed_once_and_none_while_the_device_is_gone() {
        let all = |last: &[u8]| -> BTreeSet<Ipv4Addr> {
            last.iter().map(|last| Ipv4Addr::new(198, 51, 100, *last)).collect()
        };
        let fd = fs::File::open("/dev/null").unwrap().into();
        let mut edge = Edge::new(Tun::adopt(fd, false), all(&[1, 2]), true).unwrap();
        assert_eq!(edge.missing(&all(&[2, 3])), all(&[3]));
        edge.has_routed(all(&[3]));
        assert_eq!(edge.take_over(&all(&[2, 3])), all(&[1]));
        assert!(edge.has(IpAddr::from([198, 51, 100, 3])) && edge.routed().count() == 2);
        edge.lose();
        assert!(edge.missing(&all(&[7])).is_empty());
        edge.has_routed(all(&[7]));
        assert_eq!(edge.routed().count(), 0);
    }
}

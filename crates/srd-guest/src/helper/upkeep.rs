//! Changes by other programs to objects and settings of the helper: `srd card status` shows them,
//! and packet rules are restored at once.
//!
//! The kernel notifies of each change of packet rules ([`Notices`]). After each change the helper
//! compares the card's own rules, and sets them again if they differ. Two checks are at least
//! [`PAUSE`] apart, so that a program that removes the rules in a loop costs little. There are no
//! notices of `net.ipv4.ip_forward`, which is read each second.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use serde::{Deserialize, Serialize};

use super::Spec;
use super::inspect::{self, Identity};
use crate::control::protocol::NamespaceName;
use crate::machine::edge;
use crate::machine::namespace::{Device, Owned};

/// Minimum time from one check of the packet rules to the next.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// Minimum time between two log lines of the same kind.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// The kernel's group of changes of packet rules (`NFNLGRP_NFTABLES`).
const RULES_GROUP: u32 = 7;
/// Maximum number of changed namespaces and devices in one answer, which has to fit into a packet.
const WARNINGS_MAX: usize = 100;
/// Maximum number of notices that are read at once.
const NOTICES_MAX: usize = 4096;

/// Changes by other programs that `srd card status` shows.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upkeep {
    /// Number of times that packet rules were put back.
    pub(crate) rules_restored: u64,
    /// Changes that were not undone, as sentences with remedies.
    pub(crate) warnings: Vec<String>,
}

/// State of the checks, shared by the threads of the helper.
#[derive(Debug, Default)]
struct State {
    rules_restored: u64,
    /// The warning about the forwarding of packets, if it is off.
    forwarding: Option<String>,
    namespaces: BTreeMap<NamespaceName, Identity>,
}

/// Access to the state of the checks, for each thread of the helper.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<State>>);

impl Shared {
    /// Checks these namespaces and devices for changes by other programs.
    pub(super) fn look(&self, of: &[(NamespaceName, Vec<Device>)]) -> Upkeep {
        let mut warnings: Vec<String> = Vec::new();
        for (name, devices) in of {
            // A namespace that is being created or removed has no identity.
            let identity = self.identity(name);
            warnings.extend(identity.iter().flat_map(|of| inspect::look(name, *of, devices)));
        }
        let more = warnings.len().saturating_sub(WARNINGS_MAX);
        if more > 0 {
            warnings.truncate(WARNINGS_MAX);
            warnings.push(format!("and {more} more changes of this kind"));
        }
        let state = self.lock();
        warnings.extend(state.forwarding.clone());
        Upkeep { rules_restored: state.rules_restored, warnings }
    }

    pub(super) fn identity(&self, name: &NamespaceName) -> Option<Identity> {
        self.lock().namespaces.get(name).copied()
    }

    /// Adds a namespace, with its identity, to the namespaces that are checked.
    pub(super) fn add(&self, owned: &Owned) {
        if let Some(identity) = owned.file().and_then(inspect::identity) {
            self.lock().namespaces.insert(owned.name().clone(), identity);
        }
    }

    /// Removes a namespace from the namespaces that are checked, before it is deleted.
    pub(super) fn remove(&self, name: &NamespaceName) {
        self.lock().namespaces.remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notices of changes of packet rules.
pub(super) struct Notices(Socket);

impl Notices {
    /// # Errors
    /// An error if the kernel sends no notices of packet rules.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.add_membership(RULES_GROUP)?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Takes all notices. Returns whether there was a notice, or notices were lost.
    pub(super) fn drain(&self) -> bool {
        let mut found = false;
        for _ in 0..NOTICES_MAX {
            match self.0.recv_from_full() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                _ => found = true,
            }
        }
        found
    }
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notices")
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Checks and restores the packet rules and `net.ipv4.ip_forward`, on which the internet's side
/// depends.
#[derive(Debug)]
pub(super) struct Guard {
    shared: Shared,
    /// The packet rules that the card has set, as `nft` lists them; `None` if they were not set or
    /// could not be listed.
    rules: Option<String>,
    logged: Option<Instant>,
    /// Time of the last log line about forwarding.
    said_off: Option<Instant>,
}

impl Guard {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared, rules: None, logged: None, said_off: None }
    }

    /// Stores the packet rules that were just set, for later comparison.
    pub(super) fn keep_rules(&mut self) {
        self.rules = edge::rules();
    }

    /// Checks whether this machine forwards packets, as the card requires, and logs a change.
    /// `before`: the value of `net.ipv4.ip_forward` before the card started.
    pub(super) fn look_at_forwarding(&mut self, before: &str) {
        let is_off = edge::forwarding().is_ok_and(|now| now != "1");
        let before_too = "`sysctl -w net.ipv4.ip_forward=1` switches it on";
        let remedy = if before == "1" {
            before_too.to_owned()
        } else {
            format!("{before_too}, and so does `srd card apply FILE`")
        };
        let text = is_off.then(|| {
            format!(
                "another program has switched net.ipv4.ip_forward off: no packet passes between \
                 instances and other machines of the internet's side: {remedy}"
            )
        });
        let was = std::mem::replace(&mut self.shared.lock().forwarding, text.clone());
        if text.is_some() == was.is_some() {
            return;
        }
        let now = Instant::now();
        match text {
            None => tracing::info!("net.ipv4.ip_forward is on again"),
            Some(_) if self.said_off.is_some_and(|at| now.duration_since(at) < LOG_EVERY) => {}
            Some(text) => {
                self.said_off = Some(now);
                tracing::warn!("{text}");
            }
        }
    }

    /// Switches the forwarding of packets on again, if the card had switched it on.
    pub(super) fn restore_forwarding(&mut self, before: &str) {
        let is_off = edge::forwarding().is_ok_and(|now| now != "1");
        if is_off && before != "1" {
            match edge::forward_again() {
                Ok(()) => tracing::info!("net.ipv4.ip_forward is switched on again"),
                Err(error) => tracing::warn!("net.ipv4.ip_forward stays off: {error:#}"),
            }
        }
        self.look_at_forwarding(before);
    }

    /// Sets the packet rules again if they differ from the stored rules. `before`: the value of
    /// `net.ipv4.ip_forward` before the card started.
    pub(super) fn tend(&mut self, spec: &Spec, before: &str) {
        let found = edge::rules();
        if found.is_some() && found == self.rules {
            return;
        }
        let what = if found.is_none() { "removed" } else { "changed" };
        let set = edge::set_rules(spec.internet_private, before);
        // Another program may have removed the rules again: only the first list of rules is stored.
        if self.rules.is_none() {
            self.rules = edge::rules();
        }
        if set.is_ok() {
            self.shared.lock().rules_restored += 1;
        }
        let now = Instant::now();
        if self.logged.is_some_and(|at| now.duration_since(at) < LOG_EVERY) {
            return;
        }
        self.logged = Some(now);
        match set {
            Ok(()) => tracing::warn!(
                "another program has {what} the card's packet rules (table ip {}; `nft flush \
                 ruleset` and reloads of a firewall do that): they are set again. Meanwhile \
                 instances did not reach this machine, but packets between other networks may have \
                 passed. Let the firewall replace its own tables only",
                edge::TABLE
            ),
            Err(error) => tracing::error!(
                "another program has {what} the card's packet rules (table ip {}), and they cannot \
                 be set again: {error:#}. Instances still do not reach this machine, but they \
                 reach no other machine, and this one may be a router for others. Start the card \
                 again",
                edge::TABLE
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In an earlier version the answer did not fit into a packet, and the card waited for it.
    #[test]
    fn regression_the_number_of_warnings_in_an_answer_is_bounded() {
        let shared = Shared::default();
        let file = std::fs::File::open("/dev/null").unwrap();
        let names = (0..WARNINGS_MAX + 5).map(|n| NamespaceName::of_instance(&format!("none-{n}")));
        let of: Vec<_> = names.map(|name| (name.unwrap(), Vec::new())).collect();
        for (name, _) in &of {
            shared.lock().namespaces.insert(name.clone(), inspect::identity(&file).unwrap());
        }
        let warnings = shared.look(&of).warnings;
        assert_eq!(warnings.len(), WARNINGS_MAX + 1);
        assert!(warnings[0].contains("has deleted the namespace srd-i-none-0"), "{}", warnings[0]);
        assert_eq!(warnings[WARNINGS_MAX], "and 5 more changes of this kind");
    }
}

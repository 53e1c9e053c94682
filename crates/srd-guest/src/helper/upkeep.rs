//! What other programs of this machine change of what the helper has set up: it is noticed and put
//! back, and the status has it.
//!
//! The kernel notifies of each change of packet rules ([`Notices`]). Each change leads to a look at
//! the card's own rules, and those that differ are set again. Between two looks there are at least
//! [`PAUSE`], so that a program which removes the rules again and again costs little.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use serde::{Deserialize, Serialize};

use super::Spec;
use crate::edge;

/// The least time from one look to the next.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// The log has at most one line of a kind in this time.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// The kernel's group of changes of packet rules (`NFNLGRP_NFTABLES`).
const RULES_GROUP: u32 = 7;
/// Notices that are read at once.
const NOTICES_MAX: usize = 4096;

/// What the status shows of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upkeep {
    /// How often packet rules were put back that another program had removed or changed.
    pub(crate) rules_restored: u64,
}

/// The same for the threads of the helper.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<Upkeep>>);

impl Shared {
    pub(super) fn get(&self) -> Upkeep {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Upkeep> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notices of changes of packet rules.
pub(super) struct Notices(Socket);

impl Notices {
    /// # Errors
    /// The kernel has no such notices.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.add_membership(RULES_GROUP)?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Takes all that there are. Lost ones are followed by others, or by a look of the clock.
    pub(super) fn drain(&self) {
        for _ in 0..NOTICES_MAX {
            if let Err(error) = self.0.recv_from_full()
                && error.kind() == io::ErrorKind::WouldBlock
            {
                return;
            }
        }
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

/// What was set up of the internet's side.
#[derive(Debug)]
pub(super) struct Guard {
    shared: Shared,
    /// The packet rules, as `nft` lists them.
    rules: Option<String>,
    logged: Option<Instant>,
}

impl Guard {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared, rules: None, logged: None }
    }

    /// Packet rules were set: they are to stay as they are.
    pub(super) fn keep_rules(&mut self) {
        self.rules = edge::rules();
    }

    /// Puts packet rules back that are others than those that were set. `before`: whether this
    /// machine forwarded packets before the card.
    pub(super) fn tend(&mut self, spec: &Spec, before: &str) {
        let found = edge::rules();
        if found == self.rules {
            return;
        }
        let what = if found.is_none() { "removed" } else { "changed" };
        let set = edge::set_rules(spec.internet_private, before);
        self.rules = edge::rules();
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
                 be set again: {error:#}. Instances still do not reach this machine, but they reach \
                 no other machine, and this one may be a router for others. Start the card again",
                edge::TABLE
            ),
        }
    }
}

//! What the daemon may do: `CAP_NET_ADMIN` while it sets up, nothing afterwards.

use anyhow::{Context as _, Result};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Whether this process may make interfaces and mark packets.
pub(crate) fn may_administer() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Gives up every capability, for good. Threads that exist already keep theirs: call this
/// before any is started.
///
/// # Errors
/// The operating system's.
pub(crate) fn drop_all() -> Result<()> {
    rustix::thread::set_no_new_privs(true).context("cannot renounce new privileges")?;
    rustix::thread::clear_ambient_capability_set().context("cannot clear ambient capabilities")?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).context("cannot drop capabilities")
}

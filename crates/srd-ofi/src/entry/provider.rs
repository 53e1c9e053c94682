//! The symbol that libfabric looks up in the library, `fi_prov_ini`, and the provider that it
//! returns.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::bits::fi_version;
use crate::abi::fid::fi_context;
use crate::abi::provider::fi_provider;
use crate::core::look;
use crate::settings::PARAMETERS;

/// The provider's own version: raised with each release, so that the newest of two is taken.
const VERSION: u32 = fi_version(0, 1);

struct Shared(UnsafeCell<fi_provider>);

// SAFETY: this library writes only in `fi_prov_ini`, and there one number, whole; each core calls
// it once, before it uses the provider; then only cores write, under their own locks.
unsafe impl Sync for Shared {}

static PROVIDER: Shared = Shared(UnsafeCell::new(fi_provider {
    version: VERSION,
    fi_version: crate::core::OLDEST,
    context: fi_context { internal: [ptr::null_mut(); 4] },
    name: c"srd".as_ptr(),
    getinfo: super::info::getinfo,
    fabric: super::fabric::open,
    cleanup,
}));

/// The provider, as a pointer for the core. The core writes into it.
#[must_use]
pub fn provider() -> *mut fi_provider {
    PROVIDER.0.get()
}

/// The core's first call. Null if the core is older than what is known of its structures.
///
/// # Safety
/// Only libfabric calls this, and each of a process only once, before anything else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_prov_ini() -> *mut fi_provider {
    let provider = provider();
    // SAFETY: it is a static.
    let Some(core) = (unsafe { look(provider) }) else { return ptr::null_mut() };
    // A core refuses a provider that is older than what the application was written for, so this
    // one claims to be as new as the newest core: structures only grow at their ends.
    // SAFETY: the field is aligned, and lives as long as the process; other cores may read it.
    let version = unsafe { AtomicU32::from_ptr(&raw mut (*provider).fi_version) };
    version.store(core.version(), Ordering::Relaxed);
    for parameter in PARAMETERS {
        core.define(parameter.name, parameter.kind, parameter.help);
    }
    provider
}

/// The core unloads the provider. No thread is running that does not belong to an endpoint, and
/// nothing else is held.
extern "C" fn cleanup() {}

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

/// The provider's own version. Each release raises it, so that libfabric uses the newest of two
/// providers.
const VERSION: u32 = fi_version(0, 1);

struct Shared(UnsafeCell<fi_provider>);

// SAFETY: this library writes only in `fi_prov_ini`, and only one number, atomically. Each core
// calls `fi_prov_ini` once, before it uses the provider. Afterwards only cores write, under their
// own locks.
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

/// Returns the provider as a pointer for libfabric's core, which writes into it.
#[must_use]
pub fn provider() -> *mut fi_provider {
    PROVIDER.0.get()
}

/// Entry point that libfabric calls after it has loaded the library. Returns null if this libfabric
/// is older than the oldest supported release.
///
/// # Safety
/// Only libfabric calls this function. Each libfabric of a process calls it once, before any other
/// call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_prov_ini() -> *mut fi_provider {
    let provider = provider();
    // SAFETY: the provider is a static.
    let Some(core) = (unsafe { look(provider) }) else { return ptr::null_mut() };
    // A core refuses a provider that is older than the release for which the application was
    // written. So this provider reports the version of the newest core: structures only grow at
    // their ends. SAFETY: the field is aligned, and lives as long as the process; other cores may
    // read it.
    let version = unsafe { AtomicU32::from_ptr(&raw mut (*provider).fi_version) };
    version.store(core.version(), Ordering::Relaxed);
    for parameter in PARAMETERS {
        core.define(parameter.name, parameter.kind, parameter.help);
    }
    provider
}

/// Handles the unloading of the provider by libfabric. Only endpoints have threads and resources,
/// so there is nothing to release.
extern "C" fn cleanup() {}

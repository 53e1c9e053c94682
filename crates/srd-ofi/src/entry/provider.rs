//! What libfabric finds in the library: `fi_prov_ini`, and the provider that it returns.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int};
use std::io::Write as _;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::bits::fi_version;
use crate::abi::fid::fi_context;
use crate::abi::provider::fi_provider;
use crate::core::{core, look};
use crate::settings::{Illegible, PARAMETERS, Settings, Values};

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

/// The provider, as the core knows it. The core writes into it.
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
    let Some(core) = look() else { return ptr::null_mut() };
    let provider = provider();
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

/// The parameters as the core knows them.
struct FromCore;

impl Values for FromCore {
    fn string(&self, name: &CStr) -> Option<String> {
        core()?.string(name)
    }

    fn integer(&self, name: &CStr) -> Result<Option<c_int>, Illegible> {
        core().map_or(Ok(None), |core| core.integer(name))
    }
}

/// The settings of this process. What is wrong with them is in the log, and once on the standard
/// error: the log shows no warnings unless they are asked for, and an MPI that finds no
/// provider says no more than that.
pub(super) fn settings() -> Option<Settings> {
    static SAID: Once = Once::new();
    let warn = |reason: String| {
        crate::core::log(crate::core::Level::Warn, &reason);
        SAID.call_once(|| {
            // Without a standard error the text is lost.
            let _ = writeln!(std::io::stderr(), "libfabric: srd cannot be used: {reason}");
        });
    };
    Settings::read(&FromCore).map_err(warn).ok()
}

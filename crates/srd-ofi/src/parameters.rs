//! The parameters of the provider, as registered with the loaded libfabric.

use std::ffi::{CStr, c_int};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::{Level, core, log};
use crate::settings::{Illegible, Settings, Values};

/// Source of the values of the parameters that were registered with libfabric's core.
struct FromCore;

impl Values for FromCore {
    fn string(&self, name: &CStr) -> Option<String> {
        core()?.string(name)
    }

    fn integer(&self, name: &CStr) -> Result<Option<c_int>, Illegible> {
        core().map_or(Ok(None), |core| core.integer(name))
    }
}

/// Returns the settings of this process; `None` if a setting is faulty. A faulty setting is
/// reported in the log, and once on the standard error, because the log shows no warnings by
/// default, and an MPI that finds no provider gives no reason.
pub(crate) fn settings() -> Option<Settings> {
    // Not a `Once`: if a thread is writing the text while another one forks, the child would wait
    // for the end of the writing forever.
    static SAID: AtomicBool = AtomicBool::new(false);
    let warn = |reason: String| {
        log(Level::Warn, &reason);
        if !SAID.swap(true, Ordering::Relaxed) {
            // If the standard error is closed, the text is lost.
            let _ = writeln!(std::io::stderr(), "libfabric: srd cannot be used: {reason}");
        }
    };
    Settings::read(&FromCore).map_err(warn).ok()
}

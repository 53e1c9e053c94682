//! A fabric: the settings under which domains are opened.

use srd_host::{CallError, Process};

use crate::abi::errno::FI_EOPBADSTATE;
use crate::core::{Level, log};
use crate::settings::Settings;
use crate::{Errno, Outcome};

/// An open fabric. It cannot be closed while a domain or an event queue holds it.
#[derive(Debug)]
pub struct Fabric {
    /// Name of the fabric.
    pub name: String,
    /// The release that the application was written for.
    pub api_version: u32,
    /// Values of the parameters when the fabric was opened.
    pub settings: Settings,
    /// The process that opened the fabric.
    pub process: Process,
}

/// Checks that the current process is `process`, and not a forked child. In the child, locks may be
/// held by threads that do not exist there.
///
/// # Errors
/// `FI_EOPBADSTATE` in the child of a fork; the reason is in the log.
pub fn same_process(process: Process) -> Outcome {
    if process.is_current() {
        return Ok(());
    }
    log(Level::Warn, &CallError::Forked.to_string());
    Err(Errno(FI_EOPBADSTATE))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::{CStr, c_int};
    use std::sync::Arc;

    use super::*;

    struct Nothing;

    impl crate::settings::Values for Nothing {
        fn string(&self, _: &CStr) -> Option<String> {
            None
        }

        fn integer(&self, _: &CStr) -> Result<Option<c_int>, crate::settings::Illegible> {
            Ok(None)
        }
    }

    /// Returns a fabric with default settings.
    pub(crate) fn fabric() -> Arc<Fabric> {
        let settings = Settings::read(&Nothing).unwrap();
        let process = Process::current();
        Arc::new(Fabric { name: "srd".into(), api_version: 0x10011, settings, process })
    }
}

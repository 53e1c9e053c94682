//! A fabric: the settings under which domains are opened.

use crate::settings::Settings;

/// An open fabric. It cannot be closed while a domain or an event queue holds it.
#[derive(Debug)]
pub struct Fabric {
    /// Its name.
    pub name: String,
    /// The release that the application was written for.
    pub api_version: u32,
    /// The parameters, as they were when it was opened.
    pub settings: Settings,
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

        fn integer(&self, _: &CStr) -> Option<c_int> {
            None
        }
    }

    /// A fabric with default settings.
    pub(crate) fn fabric() -> Arc<Fabric> {
        let settings = Settings::read(&Nothing).unwrap();
        Arc::new(Fabric { name: "srd".into(), api_version: 0x10011, settings })
    }
}

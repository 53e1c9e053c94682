//! NCCL's log, through the function that NCCL passes to `init`. Without this function, nothing is
//! logged.

use std::sync::RwLock;

use srd_host::OfProcess;

use crate::abi::{LOG_INFO, LOG_WARN};

/// Function that writes a line at a level.
pub type Print = Box<dyn Fn(i32, &str) + Send + Sync>;

/// Returns the function of this process. The child of a fork logs nothing until NCCL passes a
/// function to it.
fn printer() -> &'static RwLock<Option<Print>> {
    static PRINT: OfProcess<RwLock<Option<Print>>> = OfProcess::new();
    PRINT.get(|_| RwLock::new(None))
}

/// Writes every line with this function from now on.
pub fn use_printer(print: Print) {
    if let Ok(mut current) = printer().write() {
        *current = Some(print);
    }
}

/// Logs a warning about an error.
pub fn warn(text: &str) {
    say(LOG_WARN, text);
}

/// Logs information for people.
pub fn info(text: &str) {
    say(LOG_INFO, text);
}

fn say(level: i32, text: &str) {
    if let Ok(current) = printer().read()
        && let Some(print) = &*current
    {
        print(level, &format!("NET/SRD : {text}"));
    }
}

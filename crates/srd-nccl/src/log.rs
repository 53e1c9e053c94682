//! NCCL's log, through the function that NCCL passes to `init`. Without one, nothing is logged.

use std::sync::RwLock;

use crate::abi::{LOG_INFO, LOG_WARN};

/// Writes a line at a level.
pub type Print = Box<dyn Fn(i32, &str) + Send + Sync>;

static PRINT: RwLock<Option<Print>> = RwLock::new(None);

/// Every line goes here from now on.
pub fn use_printer(print: Print) {
    if let Ok(mut current) = PRINT.write() {
        *current = Some(print);
    }
}

/// Something went wrong.
pub fn warn(text: &str) {
    say(LOG_WARN, text);
}

/// Logs information that may be useful for a person.
pub fn info(text: &str) {
    say(LOG_INFO, text);
}

fn say(level: i32, text: &str) {
    if let Ok(current) = PRINT.read()
        && let Some(print) = &*current
    {
        print(level, &format!("NET/SRD : {text}"));
    }
}

//! NCCL's log, through the function that it hands to `init`. Without one, nothing is said.

use std::sync::RwLock;

use crate::abi::{LOG_INFO, LOG_WARN, Logger};
use crate::entry::print;

static LOGGER: RwLock<Option<Logger>> = RwLock::new(None);

/// Says everything to this from now on.
pub fn use_logger(logger: Option<Logger>) {
    if let (Ok(mut current), Some(logger)) = (LOGGER.write(), logger) {
        *current = Some(logger);
    }
}

/// Something went wrong.
pub fn warn(text: &str) {
    say(LOG_WARN, text);
}

/// Something that a person may want to know.
pub fn info(text: &str) {
    say(LOG_INFO, text);
}

fn say(level: i32, text: &str) {
    let logger = LOGGER.read().ok().and_then(|logger| *logger);
    if let Some(logger) = logger {
        print(logger, level, &format!("NET/SRD : {text}"));
    }
}

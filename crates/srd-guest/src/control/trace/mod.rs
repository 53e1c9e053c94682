//! Traced packets: tracing for users.
//!
//! The loop hands over the raw records of the card. The thread of the connection formats them, and
//! applies the rules again to list the decision of each table ([`words`]).

mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use srd_card::vpc::trace::Taken;
use srd_proto::time::Instant;
use srd_vpc::id::EniId;

pub(crate) use words::{TraceFormatter, protocol_name};

use crate::figures::pages::directory::Directory;

/// Records of the card, and the data that their text needs.
pub(crate) struct Noted {
    pub(crate) taken: Taken,
    pub(crate) directory: Arc<Directory>,
    pub(crate) now: Instant,
    /// Records of packets that left the card for a host without a session with it.
    pub(crate) waiting: BTreeSet<usize>,
}

/// An interface of this host.
pub(crate) struct LocalInterface {
    pub(crate) instance: String,
    pub(crate) device: String,
    pub(crate) eni: EniId,
}

//! Traces of packets as text, for `srd card trace` and `srd card capture`.
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
    /// Indices of the records of packets that were sent to a host while there was no session with
    /// this host.
    pub(crate) waiting: BTreeSet<usize>,
}

/// An interface of this host, as traces name it.
pub(crate) struct LocalInterface {
    pub(crate) instance: String,
    pub(crate) device: String,
    pub(crate) eni: EniId,
}

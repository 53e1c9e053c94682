//! Packets that a person follows through the card.
//!
//! The loop hands over what the card has noted, as it is; the thread of the connection puts it into
//! words, and asks all objects once more what each of them says of a packet ([`words`]).

mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use srd_card::vpc::trace::Taken;
use srd_proto::time::Instant;
use srd_vpc::id::EniId;

pub(crate) use words::{Words, protocol_name};

use crate::pages::directory::Directory;

/// What the card has noted, and what its words need.
pub(crate) struct Noted {
    pub(crate) taken: Taken,
    pub(crate) directory: Arc<Directory>,
    pub(crate) now: Instant,
    /// Records of packets that left the card for a host without a session with it.
    pub(crate) waiting: BTreeSet<usize>,
}

/// An interface of this host.
pub(crate) struct Place {
    pub(crate) instance: String,
    pub(crate) device: String,
    pub(crate) eni: EniId,
}

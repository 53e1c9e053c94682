//! Changes that wait for their namespaces, and for each other.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;

use srd_proto::time::Instant;

use crate::orders::Command;
use crate::protocol::Answer;
use crate::world::Vpc;

/// Changes that wait: each connection has one at most, and each instance that is added ends once.
/// The server takes 256 connections.
#[derive(Default)]
pub(crate) struct Changes {
    /// The one that has its namespaces made.
    pub(crate) under_way: Option<Change>,
    pub(crate) waiting: VecDeque<Command>,
}

/// A change, and what is said at its end.
pub(crate) struct Change {
    pub(crate) vpc: Vpc,
    pub(crate) then: Then,
}

/// What is said at the end.
pub(crate) enum Then {
    /// The time since this.
    Applied(Instant, Sender<Answer>),
    /// The instance of this name.
    Attached(String, Sender<Answer>),
    /// Nobody asks.
    Detached(String),
}

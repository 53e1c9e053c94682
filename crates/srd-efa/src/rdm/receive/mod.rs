//! Reception of messages: from the peer's datagram to the application's receive.
//!
//! | module | content |
//! |---|---|
//! | `inbound` | state of incoming messages |
//! | `dispatch` | admission of peers' frames, and calls of their handlers |
//! | `reorder` | order of messages, and assembly of their parts |
//! | `matching`, `list` | search for the receive of a message |
//! | `deliver` | delivery of messages into receives |
//! | `post` | calls that post, cancel and peek |
//! | `long` | long messages: the receiver reads them |

pub(crate) mod deliver;
pub(crate) mod dispatch;
pub(crate) mod inbound;
pub(crate) mod list;
pub(crate) mod long;
pub(crate) mod matching;
#[cfg(test)]
mod matching_tests;
pub(crate) mod post;
pub(crate) mod reorder;

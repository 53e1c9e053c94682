//! From a peer's datagram to the application's receive.
//!
//! | module | what |
//! |---|---|
//! | `inbound` | what is known of a message on its way in |
//! | `dispatch` | judges what peers send, and hands it on |
//! | `reorder` | brings messages into their order, and parts together |
//! | `matching`, `list` | which message goes into which receive |
//! | `deliver` | brings messages and receives together |
//! | `post` | receives are posted, cancelled, and looked for |
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

//! The Messaging Layer's pure parts, for a provider with reliable datagram endpoints (`FI_EP_RDM`).
//!
//! [`Matcher`] brings receives and messages together: one for tagged messages, another for those
//! without a tag. It knows nothing of packets or buffers, so that whoever moves bytes can look a
//! message up while it still lies in the packet that brought it, and copy it once.

mod chain;
mod matching;
#[cfg(test)]
mod matching_tests;

pub use matching::{Limits, Matcher, MessageKey, Offer, ReceiveKey, Want};

//! Congestion control of a context: one window in bytes for all its paths.
//!
//! The input of the controller are acknowledged bytes, of the median queueing delay over paths, of
//! marks and of losses; it answers with a window. It does not know paths. The law is NSCC's
//! (Ultra Ethernet) with "median delay above target" in the place of marks where the fabric
//! does not mark, so that one late path moves nothing.

mod rate;
mod window;

pub(crate) use window::{AckSignal, Window};

//! Congestion control of a context: one window in bytes for all its paths.
//!
//! The inputs of the controller are acknowledged bytes, the median queueing delay over paths, marks
//! and losses. The output is a window. The controller does not distinguish paths. The law is that
//! of NSCC (Ultra Ethernet), with "median delay above target" instead of marks if the fabric does
//! not mark. So one late path does not change the window.

mod rate;
mod window;

pub(crate) use window::{AckSignal, Window};

//! Congestion control of a context: one window in bytes for all its paths.
//!
//! The inputs of the controller are acknowledged bytes, the median queueing delay over paths, marks
//! and losses. The output is a window. The control law is that of NSCC (Ultra Ethernet); if the
//! fabric does not mark, a median delay above the target replaces the marks. The controller does
//! not distinguish paths, and one late path does not change the median, so it does not change the
//! window.

mod rate;
mod rate_rules;
mod window;

pub(crate) use window::{AckSignal, Window};

//! Endpoints: the protocol core with sockets, a clock and threads.
//!
//! | module | content |
//! |---|---|
//! | [`endpoint`], [`driver`] | the endpoint for ordinary programs, and its thread |
//! | [`local`] | the endpoint that the caller's thread drives |
//! | [`engine`] | the loop that both use: transmit, events, receive, timers |
//! | [`options`], [`bind`] | options and errors of binding, and the binding |
//! | [`events`] | events and statistics of an endpoint |
//! | [`sync`], [`wake`] | synchronisation between the driver thread and application threads |

pub(crate) mod bind;
pub(crate) mod driver;
pub(crate) mod endpoint;
pub(crate) mod engine;
pub(crate) mod events;
pub(crate) mod local;
pub(crate) mod options;
pub(crate) mod sync;
#[cfg(test)]
mod sync_tests;
pub(crate) mod wake;
#[cfg(test)]
mod wake_tests;

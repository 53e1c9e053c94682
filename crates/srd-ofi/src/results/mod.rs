//! Results of operations, and how an application reads them.
//!
//! | module | content |
//! |---|---|
//! | [`queue`] | queues of entries, with waiting |
//! | [`completion`], [`event`], [`counter`] | completion queues, event queues and counters |
//! | [`sink`], [`ledger`] | destination of a completion; operations without a result yet |
//! | [`failure`] | errors as libfabric numbers them |

pub mod completion;
pub mod counter;
pub mod event;
pub mod failure;
pub mod ledger;
pub mod queue;
pub mod sink;

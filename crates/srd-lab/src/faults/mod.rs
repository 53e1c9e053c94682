//! Faults of a fabric, and observation of it.
//!
//! | module | content |
//! |---|---|
//! | [`fault`], [`impair`] | faults of links and spines; a bad wire between two hosts |
//! | [`status`], [`counters`] | counters of every port, and of a host's kernel |
//! | [`probe`] | UDP probes between hosts |

pub mod counters;
pub mod fault;
pub mod impair;
pub mod probe;
pub mod status;

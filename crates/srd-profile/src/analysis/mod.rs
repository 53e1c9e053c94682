//! The analysis of the packets of one interface. Time is an argument.
//!
//! | module | content |
//! |---|---|
//! | [`profiler`] | from packets to the needs of the traffic |
//! | `ladder`, [`rates`] | rates and bursts, as requirements on a token bucket |
//! | [`flows`], [`tunnels`], [`connections`] | flows, flows inside of tunnels, connections |
//! | `distinct`, `place` | counts of distinct values; classification of addresses |

pub mod connections;
pub(crate) mod distinct;
pub mod flows;
pub(crate) mod ladder;
pub(crate) mod place;
pub mod profiler;
pub mod rates;
pub mod tunnels;

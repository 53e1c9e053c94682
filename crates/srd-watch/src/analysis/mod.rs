//! The analysis of one interface. Time is an argument.
//!
//! | module | content |
//! |---|---|
//! | [`watch`] | from arrivals to bursts |
//! | `bins`, `find` | arrivals in one bin; the search for bursts |
//! | `average`, [`timeline`] | rates over seconds and minutes; rates over time for a picture |
//! | [`model`], `meters` | the limits, with the buckets and queues of `srd-card` |
//! | [`sketch`] | the flows that carry the most bytes, in bounded memory |
//! | [`allowances`] | assignment of the driver's counters to bursts |
//! | [`burst`] | the report of a burst |

pub mod allowances;
pub(crate) mod average;
pub(crate) mod bins;
pub mod burst;
pub(crate) mod find;
pub mod meters;
pub mod model;
pub mod sketch;
pub mod timeline;
pub mod watch;

//! Runs of a scenario, and their results.
//!
//! | module | content |
//! |---|---|
//! | [`run`] | runs, on all cores |
//! | [`ideal`], [`completion`] | best possible completion times of flows and of schedules |
//! | [`report`] | a table, a CSV file and charts |
//! | [`process`] | CPU time and memory of a run |
//! | [`waste`] | packets that incasts send again, and what they take from a bystander |
//! | `files` | files that a scenario names |

pub mod completion;
pub(crate) mod files;
pub mod ideal;
pub mod process;
pub mod report;
pub mod run;
pub mod waste;

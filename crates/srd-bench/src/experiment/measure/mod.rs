//! Load, and the measurement of its results.
//!
//! | module | content |
//! |---|---|
//! | `result`, `distribution`, `counts` | figures, samples, and the summary of repetitions |
//! | `published` | published figures for the same subjects, beside those of a run |
//! | `requests`, `datagrams`, `frames`, `iperf` | load: GET and SET, paced flows, video, iperf3 |
//! | `programs` | required programs, and the output of a program |
//! | `cpu`, `pulse`, `process` | CPU time, delays by the machine, memory and threads |

pub mod counts;
pub(super) mod cpu;
pub(super) mod datagrams;
pub mod distribution;
pub(super) mod frames;
pub(super) mod iperf;
pub(super) mod process;
pub mod programs;
pub(super) mod published;
pub mod pulse;
pub(super) mod requests;
pub mod result;

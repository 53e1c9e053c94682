//! Experiments with load on shared links, one in each module; `elephants` and `changes` are load
//! beside a measurement.

pub(super) mod changes;
pub(super) mod copies;
pub(crate) mod elephants;
pub(super) mod fairness;
pub(super) mod incast;
pub(super) mod nfs;
pub(super) mod redis;
pub(super) mod video;
pub(super) mod video_srt;

//! The experiment `nconnect`: sixteen TCP connections between two hosts, as an NFS mount with
//! `nconnect=16` has.

use crate::experiment::Experiment;
use crate::experiment::paths::single_flow;

/// Number of connections of one mount.
const FLOWS: u32 = 16;

/// The experiment `nconnect`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "nconnect",
    summary: "Do 16 connections still gain from more paths, and do they share fairly?",
    about: "As single-flow, with 16 connections at once: what programs do today to use more than \
            one path. Hashing spreads them unevenly, so some get less than others: Jain's index \
            says how evenly, 1 being all equal.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |options| single_flow::needed(options),
    cases: |options| single_flow::cases(options, FLOWS),
};

//! The experiment `training-mpi`: Python ranks that an MPI launcher starts, over kernel TCP, ENA
//! Express, and SRD through libfabric.

use super::{RANKS, Started, Training};
use crate::experiment::clusters::fetched::JAX;
use crate::experiment::clusters::mpi::{self, Ranks, Setup};
use crate::experiment::{Experiment, Options, Stage, Variant};
use anyhow::Result;

const SOURCE: &str = include_str!("train_mpi.py");

/// The experiment `training-mpi`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "training-mpi",
    summary: "The same training with MPI: over TCP, Express, and SRD through libfabric.",
    about: "NumPy and mpi4py, a rank on each of four hosts, train a network of 267,000 parameters \
            data-parallel; in every step the MPI's all-reduce adds up the gradients (1.07 MB). \
            `plain` is the MPI's own way over TCP, `express` the same on the addresses behind `srd \
            up`, `srd` libfabric with our provider. Cases and checks are those of `training`. \
            Ranks spin while they wait.",
    repetitions: 3,
    variants: &[Variant::Plain, Variant::Express, Variant::Srd],
    programs: mpi::programs,
    cases: |options| super::cases(options, start),
};

fn start<'a>(stage: &'a Stage<'a>, training: &Training, options: &Options) -> Result<Started<'a>> {
    let python = JAX.python(&options.cache)?;
    let source = super::script(stage, "train_mpi.py", SOURCE)?;
    let results = super::results(stage)?;
    let words = [
        python.display().to_string(),
        source.display().to_string(),
        training.steps.to_string(),
        stage.directory.join("trained").display().to_string(),
    ];
    let nodes: Vec<_> = RANKS.iter().map(|host| (*host, 1)).collect();
    let yields = mpi::cores() < 4;
    let ranks = Ranks { setup: Setup::of(options), nodes, yields };
    let running = vec![ranks.start(stage, &ranks.setup.mpi()?, &words)?];
    let names = vec![(RANKS[0], mpi::LAUNCHER)];
    Ok(Started { running, results, names, _machines: None })
}

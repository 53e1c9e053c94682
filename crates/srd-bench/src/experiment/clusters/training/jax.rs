//! The experiment `training`: JAX with one process for each rank; the processes connect to a
//! coordinator.

use super::{RANKS, Started, Training};
use crate::experiment::clusters::fetched::JAX;
use crate::experiment::clusters::machines::{Machines, UNSHARE};
use crate::experiment::measure::programs;
use crate::experiment::{Experiment, Options, Stage, variant};
use anyhow::Result;

const SOURCE: &str = include_str!("train_jax.py");
const NAME: &str = "train";
const PORT: u16 = 29_500;
/// Environment of each rank: one thread, because four ranks share two cores, and few log messages.
const SETTINGS: [(&str, &str); 3] =
    [("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1"), ("TF_CPP_MIN_LOG_LEVEL", "2")];

/// The experiment `training`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "training",
    summary: "How long does a step of training take, and its tail, if gradients have all paths?",
    about: "JAX on CPUs, a process on each of four hosts, trains a network of 267,000 parameters \
            data-parallel; in every step Gloo adds up the gradients (1.07 MB) in a ring whose \
            neighbours are in different racks. A step's time is that of the slowest rank. In \
            `collisions` the two spines have just what the hosts need, and TCP's flows meet on \
            some links; in `dead spine` the busiest of four dies silently in mid-run. The run \
            counts only if all ranks saw the same losses in every step and have the same network \
            in the end, bit by bit.",
    repetitions: 3,
    variants: variant::USUAL,
    programs: |_| vec![UNSHARE],
    cases: |options| super::cases(options, start),
};

fn start<'a>(stage: &'a Stage<'a>, training: &Training, options: &Options) -> Result<Started<'a>> {
    let python = JAX.python(&options.cache)?;
    let machines = Machines::new(stage, &RANKS)?;
    let source = super::script(stage, "train_jax.py", SOURCE)?;
    let results = super::results(stage)?;
    let coordinator = format!("{}:{PORT}", stage.address(RANKS[0])?);
    let mut running = Vec::new();
    for (rank, (host, file)) in RANKS.iter().zip(&results).enumerate() {
        let mut command = machines.command(*host, &python)?;
        command.envs(SETTINGS).arg(&source).arg(&coordinator);
        command.args([rank.to_string(), RANKS.len().to_string(), training.steps.to_string()]);
        command.arg(file);
        running.push(programs::start(stage, *host, NAME, &mut command)?);
    }
    let names = RANKS.iter().map(|host| (*host, NAME)).collect();
    Ok(Started { running, results, names, _machines: Some(machines) })
}

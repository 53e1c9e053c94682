//! Runs jobs of the simulator, with progress on standard error.

use crate::output::tell;
use srd_sim::run::{self, Job, RunResult};
use srd_sim::scenario::ScenarioError;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Time without output, before the first progress line.
const SILENT: Duration = Duration::from_secs(3);
/// Interval between two progress lines while no job ends.
const EVERY: Duration = Duration::from_secs(10);

/// Runs the jobs on `threads` threads. If `speak` is set, the progress of long runs is shown on
/// standard error.
pub(super) fn run_all(
    jobs: &[Job],
    threads: usize,
    speak: bool,
) -> Vec<Result<RunResult, ScenarioError>> {
    if !speak {
        return run::run_all(jobs, threads, &|_, _| {});
    }
    let begun = Instant::now();
    let (ended, wait_ended) = mpsc::channel::<String>();
    thread::scope(|scope| {
        scope.spawn(move || report(begun, jobs.len(), &wait_ended));
        run::run_all(jobs, threads, &|_, result| {
            let line = match result {
                Ok(result) => format!(
                    "{}, seed {}: slowest {:.3} of its ideal, {:.1} s",
                    result.transport, result.seed, result.max_over_ideal, result.cost.wall_s
                ),
                Err(error) => error.to_string(),
            };
            let _ = ended.send(line);
        })
    })
}

fn report(begun: Instant, all: usize, ended: &mpsc::Receiver<String>) {
    let mut done = 0;
    let mut wait = SILENT;
    while done < all {
        match ended.recv_timeout(wait) {
            Ok(line) => {
                done += 1;
                if begun.elapsed() >= SILENT {
                    tell!("[{done}/{all}] {line}");
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let seconds = begun.elapsed().as_secs();
                tell!("[{done}/{all}] still running after {seconds} s");
                wait = EVERY;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

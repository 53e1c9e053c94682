//! Running jobs without the interpreter's lock, and stopping them when the user has enough.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use pyo3::prelude::*;
use srd_sim::run::{self, Job, RunResult};
use srd_sim::scenario::ScenarioError;

/// Between two questions whether a signal has come.
pub(crate) const ASK: Duration = Duration::from_millis(50);

/// Runs jobs and returns their results in order. `said` is called with the number of jobs that
/// are done, and of all.
///
/// # Errors
/// The exception of a signal, such as `KeyboardInterrupt`, or of `said`; a scenario that makes no
/// world; packets that do not add up.
pub(crate) fn run_all(
    py: Python<'_>,
    jobs: &[Job],
    threads: usize,
    said: Option<&Py<PyAny>>,
) -> PyResult<Vec<RunResult>> {
    let stopped = AtomicBool::new(false);
    let (results, signal) = py.detach(|| {
        let (ended, wait_ended) = mpsc::channel::<usize>();
        std::thread::scope(|scope| {
            let stopped = &stopped;
            let worker = scope.spawn(move || {
                let wanted = || !stopped.load(Ordering::Relaxed);
                // A listener that has gone needs no more progress.
                let progress = |done, _: &Result<_, _>| {
                    let _ = ended.send(done);
                };
                run::run_all_while(jobs, threads, &wanted, &progress)
            });
            let mut signal = None;
            loop {
                let news = match wait_ended.recv_timeout(ASK) {
                    Ok(done) => Some(done),
                    Err(RecvTimeoutError::Timeout) => None,
                    // The worker is done, and all its progress has been reported.
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                if let Err(error) = Python::attach(|py| heed(py, news, jobs.len(), said)) {
                    stopped.store(true, Ordering::Relaxed);
                    signal.get_or_insert(error);
                }
            }
            (worker.join(), signal)
        })
    });
    if let Some(signal) = signal {
        return Err(signal);
    }
    let results = results.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    results.into_iter().flatten().map(|result| result.map_err(explain)).collect()
}

/// Reports a job that is done, and raises the exception of a pending signal.
fn heed(py: Python<'_>, news: Option<usize>, all: usize, said: Option<&Py<PyAny>>) -> PyResult<()> {
    py.check_signals()?;
    if let (Some(done), Some(said)) = (news, said) {
        said.call1(py, (done, all))?;
    }
    Ok(())
}

/// A scenario that makes no world is the user's; packets that do not add up are ours.
pub(crate) fn explain(error: ScenarioError) -> PyErr {
    let ours = error.0.starts_with("packets are lost");
    if ours {
        crate::SimulatorError::new_err(error.0)
    } else {
        crate::ScenarioError::new_err(error.0)
    }
}

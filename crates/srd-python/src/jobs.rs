//! Runs jobs with the interpreter's lock released, and stops them after a signal such as Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use pyo3::prelude::*;
use srd_sim::run::{self, Job, RunResult};
use srd_sim::scenario::ScenarioError;

/// Interval between checks for signals.
pub(crate) const ASK: Duration = Duration::from_millis(50);

/// Runs jobs and returns their results in order. `said` is called once for each finished job, with
/// the number of finished jobs (1, 2, 3, ...) and the number of all jobs.
///
/// # Errors
/// A Python exception: of a signal, such as `KeyboardInterrupt`; of `said`; of a scenario that
/// describes no valid world; or of a simulation whose packet counts do not add up.
pub(crate) fn run_all(
    py: Python<'_>,
    jobs: &[Job],
    threads: usize,
    said: Option<&Py<PyAny>>,
) -> PyResult<Vec<RunResult>> {
    let stopped = AtomicBool::new(false);
    let (results, signal) = py.detach(|| {
        let (ended, wait_ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let stopped = &stopped;
            let worker = scope.spawn(move || {
                let wanted = || !stopped.load(Ordering::Relaxed);
                // If the receiver of progress has ended, progress is not needed any more. The
                // receiver counts: two threads may send their own numbers in the wrong order.
                let progress = |_: usize, _: &Result<_, _>| {
                    let _ = ended.send(());
                };
                run::run_all_while(jobs, threads, &wanted, &progress)
            });
            let (mut signal, mut done) = (None, 0);
            loop {
                let news = match wait_ended.recv_timeout(ASK) {
                    Ok(()) => {
                        done += 1;
                        Some(done)
                    }
                    Err(RecvTimeoutError::Timeout) => None,
                    // The worker has ended, and all of its progress was reported.
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

/// Reports a finished job, and raises the exception of a pending signal.
fn heed(py: Python<'_>, news: Option<usize>, all: usize, said: Option<&Py<PyAny>>) -> PyResult<()> {
    py.check_signals()?;
    if let (Some(done), Some(said)) = (news, said) {
        said.call1(py, (done, all))?;
    }
    Ok(())
}

/// Returns the exception for an error: a faulty scenario is an error of the user, and wrong packet
/// counts are an error of the simulator.
pub(crate) fn explain(error: ScenarioError) -> PyErr {
    let ours = error.0.starts_with("packets are lost");
    if ours {
        crate::SimulatorError::new_err(error.0)
    } else {
        crate::ScenarioError::new_err(error.0)
    }
}

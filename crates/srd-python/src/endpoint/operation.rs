//! An operation that an event loop waits for. It is polled when the notifier returns its number.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use srd_host::Process;

use super::peer::Peer;
use super::raise;

/// Result of an operation.
pub(crate) enum Outcome {
    Done,
    Peer(srd_net::Peer),
    /// Whether all datagrams were acknowledged.
    Clean(bool),
}

type Work = Pin<Box<dyn Future<Output = PyResult<Outcome>> + Send>>;

/// An operation in progress. Dropping it cancels it.
#[pyclass(frozen, module = "opensrd._native")]
pub(crate) struct Operation {
    number: u64,
    endpoint: u64,
    process: Process,
    waker: Waker,
    /// The future; `None` when the operation is done.
    work: Mutex<Option<Work>>,
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !self.process.is_current() {
            let work = self.work.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(work.take());
        }
    }
}

impl Operation {
    pub(crate) fn new(number: u64, endpoint: u64, waker: Waker, work: Work) -> Self {
        let process = Process::current();
        Self { number, endpoint, process, waker, work: Mutex::new(Some(work)) }
    }
}

#[pymethods]
impl Operation {
    /// Returns the number under which the endpoint reports that the operation can continue.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// Continues the operation. Returns whether it is done, and its result.
    fn poll(&self, py: Python<'_>) -> PyResult<(bool, Py<PyAny>)> {
        if !self.process.is_current() {
            return Err(raise::forked());
        }
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(future) = work.as_mut() else { return Err(raise::closed()) };
        match future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Pending => Ok((false, py.None())),
            Poll::Ready(outcome) => {
                *work = None;
                let value = match outcome? {
                    Outcome::Done => py.None(),
                    Outcome::Peer(peer) => {
                        Peer::new(peer, self.process, self.endpoint).into_py_any(py)?
                    }
                    Outcome::Clean(clean) => clean.into_py_any(py)?,
                };
                Ok((true, value))
            }
        }
    }
}

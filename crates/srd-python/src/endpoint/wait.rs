//! Waiting for a future on the interpreter's thread, with the interpreter's lock released and with
//! checks for Ctrl-C.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::jobs::ASK;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// Waker of each thread, so that a wait need not create one.
    static HERE: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

/// Returns the latest end of a wait that begins now; `None`: no limit.
pub(crate) fn until(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Returns the time to sleep before the next check for a signal; `None`: the wait has reached its
/// end.
pub(crate) fn slice(until: Option<Instant>) -> Option<Duration> {
    let left = until.map_or(ASK, |until| until.saturating_duration_since(Instant::now()));
    (left > Duration::ZERO).then_some(left.min(ASK))
}

/// Waits until the future is done. Returns its result; `None` after the time limit.
///
/// # Errors
/// The Python exception of a signal, if a signal has arrived.
pub(crate) fn wait_for<T: Send>(
    py: Python<'_>,
    future: impl Future<Output = T> + Send,
    until: Option<Instant>,
) -> PyResult<Option<T>> {
    let waker = HERE.with(Clone::clone);
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Ok(Some(value));
        }
        let Some(slice) = slice(until) else { return Ok(None) };
        py.detach(|| thread::park_timeout(slice));
        py.check_signals()?;
    }
}

//! `opensrd._native.Endpoint`: an endpoint on real sockets, for threads and for event loops.
//!
//! ```text
//! Python thread --send--> queue of srd_net --> the endpoint's thread --> sockets
//!               <--take-- inbox            <--
//! event loop    <--descriptor-- Notifier   <-- (wakers of what the loop waits for)
//! ```
//! The endpoint's thread never takes the interpreter's lock. A call that can end immediately keeps
//! the lock; a call that waits releases it. Bounds: `send_queue` datagrams to each peer, and
//! `receive_queue` received datagrams that the program has not taken. Beyond the second bound, a
//! sender gets the answer to send again later.

mod notify;
mod operation;
mod options;
mod peer;
mod raise;
mod report;
mod wait;

use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView};
use srd_host::Process;
use srd_net::Received;

use notify::Notifier;
pub(crate) use operation::Operation;
use operation::Outcome;
use options::{KeyText, Options};
pub(crate) use peer::{Message, Peer};

/// Number of endpoints that this process has opened; each endpoint gets the next number.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// An endpoint, with its thread.
#[pyclass(frozen, module = "opensrd._native")]
pub(crate) struct Endpoint {
    /// `None` only while the endpoint is dropped.
    inner: Option<Arc<srd_net::Endpoint>>,
    process: Process,
    number: u64,
    notifier: Arc<Notifier>,
    arrival: Waker,
    room: Waker,
    operations: AtomicU64,
    public_key: Option<[u8; 32]>,
}

/// In the child of a fork the endpoint's thread does not exist, and a lock may be held forever. So
/// the child leaks the memory of the endpoint, and takes no lock.
impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget(self.inner.take());
        }
    }
}

/// Returns a copy of the bytes of a Python object, which has to support the buffer protocol.
fn payload(data: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(Bytes::copy_from_slice(bytes.as_bytes()));
    }
    let bytes = PyMemoryView::from(data)?.call_method0("tobytes")?;
    let bytes: Cow<'_, [u8]> = bytes.extract()?;
    Ok(Bytes::copy_from_slice(&bytes))
}

impl Endpoint {
    fn inner(&self) -> PyResult<&Arc<srd_net::Endpoint>> {
        if !self.process.is_current() {
            return Err(raise::forked());
        }
        self.inner.as_ref().ok_or_else(raise::closed)
    }

    fn message(&self, py: Python<'_>, received: Received) -> PyResult<Message> {
        let peer = Peer::new(received.peer, self.process, self.number);
        Message::new(py, peer, &received.payload)
    }

    fn asked(
        &self,
        address: &(String, u16),
        peer_key: Option<&KeyText>,
    ) -> PyResult<impl Future<Output = PyResult<srd_net::Peer>> + Send + use<>> {
        let inner = Arc::clone(self.inner()?);
        let address = options::address(&address.0, address.1)?;
        if peer_key.is_some() && self.public_key.is_none() {
            return Err(PyValueError::new_err(
                "peer_key is for endpoints with a key pair, and this one has none: leave it out",
            ));
        }
        let key = peer_key.map(|key| options::key(key, "peer_key")).transpose()?;
        Ok(connect(inner, address, key))
    }

    fn operation(
        &self,
        work: impl Future<Output = PyResult<Outcome>> + Send + 'static,
    ) -> Operation {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        Operation::new(number, self.number, self.notifier.operation(number), Box::pin(work))
    }
}

async fn connect(
    endpoint: Arc<srd_net::Endpoint>,
    address: SocketAddr,
    key: Option<[u8; 32]>,
) -> PyResult<srd_net::Peer> {
    endpoint.connect_async(address, key).await.map_err(raise::connect)
}

async fn send(peer: srd_net::Peer, data: Bytes, acknowledged: bool) -> PyResult<()> {
    let sent = if acknowledged {
        peer.send_acknowledged_async(data).await
    } else {
        peer.send_async(data).await
    };
    sent.map_err(raise::send)
}

async fn flush(peer: srd_net::Peer) -> PyResult<()> {
    peer.flush_async().await.map_err(raise::flush)
}

/// Returns the latest end of a call with this timeout in seconds; `None`: no limit.
fn limit(timeout: Option<f64>) -> PyResult<Option<std::time::Instant>> {
    let timeout = timeout.map(|value| options::seconds("timeout", value)).transpose()?;
    Ok(wait::until(timeout))
}

#[pymethods]
impl Endpoint {
    #[new]
    fn new(py: Python<'_>, options: Options) -> PyResult<Self> {
        let checked = options.check()?;
        let notifier = Notifier::new()?;
        let bind = &checked.bind;
        let address = SocketAddr::new(bind.address, bind.base_port);
        let inner = py.detach(|| srd_net::Endpoint::bind(bind));
        Ok(Self {
            inner: Some(Arc::new(inner.map_err(|error| raise::bind(error, address))?)),
            process: Process::current(),
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            arrival: notifier.arrival(),
            room: notifier.room(),
            notifier,
            operations: AtomicU64::new(0),
            public_key: checked.public_key,
        })
    }

    #[getter]
    fn address(&self) -> PyResult<(String, u16)> {
        Ok(peer::pair(self.inner()?.local_address()))
    }

    #[getter]
    fn payload_bytes_max(&self) -> PyResult<usize> {
        Ok(self.inner()?.payload_bytes_max())
    }

    #[getter]
    fn public_key(&self) -> Option<String> {
        self.public_key.map(|key| key.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the descriptor that is readable while `take_pending` has an event to return.
    #[getter]
    fn descriptor(&self) -> i32 {
        self.notifier.descriptor()
    }

    /// Takes the pending events: whether receiving can continue, whether sending can continue, and
    /// the numbers of operations that can continue.
    fn take_pending(&self) -> PyResult<(bool, bool, Vec<u64>)> {
        self.inner()?;
        let pending = self.notifier.take_pending();
        Ok((pending.arrival, pending.room, pending.operations.into_iter().collect()))
    }

    /// Connects to an address. Returns the peer.
    fn connect(
        &self,
        py: Python<'_>,
        address: (String, u16),
        peer_key: Option<KeyText>,
    ) -> PyResult<Peer> {
        let asked = self.asked(&address, peer_key.as_ref())?;
        let peer = wait::wait_for(py, asked, None)?.ok_or_else(raise::closed)??;
        Ok(Peer::new(peer, self.process, self.number))
    }

    fn start_connect(
        &self,
        address: (String, u16),
        peer_key: Option<KeyText>,
    ) -> PyResult<Operation> {
        let asked = self.asked(&address, peer_key.as_ref())?;
        Ok(self.operation(async { asked.await.map(Outcome::Peer) }))
    }

    /// Takes a received datagram. Waits for at most `timeout` seconds; `None`: without limit.
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let inner = self.inner()?;
        let mut received = inner.try_recv().map_err(|_| raise::closed())?;
        if received.is_none() {
            let until = limit(timeout)?;
            while received.is_none() {
                let Some(slice) = wait::slice(until) else {
                    return Err(raise::timed_out("nothing arrived"));
                };
                received = py.detach(|| inner.recv_timeout(slice)).map_err(|_| raise::closed())?;
                // A received datagram must not be lost by the exception of a signal.
                if received.is_none() {
                    py.check_signals()?;
                }
            }
        }
        received.map_or_else(|| Err(raise::closed()), |received| self.message(py, received))
    }

    /// Takes a received datagram. Without one it returns `None`, and `take_pending` reports when a
    /// datagram has arrived.
    fn poll_recv(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let inner = self.inner()?;
        if let Some(received) = inner.try_recv().map_err(|_| raise::closed())? {
            return self.message(py, received).map(Some);
        }
        let mut context = Context::from_waker(&self.arrival);
        match inner.poll_recv(&mut context) {
            Poll::Pending => Ok(None),
            Poll::Ready(Ok(received)) => self.message(py, received).map(Some),
            Poll::Ready(Err(_)) => Err(raise::closed()),
        }
    }

    /// Queues a datagram. Waits for space in the queue for at most `timeout` seconds. If
    /// `acknowledged`, also waits until the peer has the datagram.
    fn send(
        &self,
        py: Python<'_>,
        peer: &Peer,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        acknowledged: bool,
    ) -> PyResult<()> {
        self.inner()?;
        let peer = peer.of(self.number)?;
        let work = send(peer.clone(), payload(data)?, acknowledged);
        let what = if acknowledged { "it was not acknowledged" } else { "the queue is full" };
        wait::wait_for(py, work, limit(timeout)?)?.unwrap_or_else(|| Err(raise::timed_out(what)))
    }

    /// Queues a datagram if there is space. Returns `False` if the queue is full; then
    /// `take_pending` reports when there is space.
    fn poll_send(&self, peer: &Peer, data: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.inner()?;
        let peer = peer.of(self.number)?;
        let mut context = Context::from_waker(&self.room);
        match peer.poll_send(payload(data)?, &mut context) {
            Poll::Pending => Ok(false),
            Poll::Ready(sent) => sent.map(|()| true).map_err(raise::send),
        }
    }

    /// Starts to send a datagram. The operation is done when the peer has the datagram.
    fn start_send(&self, peer: &Peer, data: &Bound<'_, PyAny>) -> PyResult<Operation> {
        self.inner()?;
        let work = send(peer.of(self.number)?.clone(), payload(data)?, true);
        Ok(self.operation(async { work.await.map(|()| Outcome::Done) }))
    }

    /// Waits until all datagrams that were sent to the peer are acknowledged.
    fn flush(&self, py: Python<'_>, peer: &Peer, timeout: Option<f64>) -> PyResult<()> {
        self.inner()?;
        let peer = peer.of(self.number)?;
        let flushed = wait::wait_for(py, flush(peer.clone()), limit(timeout)?)?;
        flushed.unwrap_or_else(|| {
            let outstanding = peer.outstanding();
            Err(raise::timed_out(&format!("{outstanding} datagrams are not acknowledged")))
        })
    }

    fn start_flush(&self, peer: &Peer) -> PyResult<Operation> {
        self.inner()?;
        let work = flush(peer.of(self.number)?.clone());
        Ok(self.operation(async { work.await.map(|()| Outcome::Done) }))
    }

    /// Closes the endpoint when all sent datagrams are acknowledged, or after `timeout` seconds.
    /// Returns whether all were acknowledged.
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = options::seconds("timeout", timeout)?;
        let inner = Arc::clone(self.inner()?);
        let closed = async move { inner.close_async(timeout).await };
        Ok(wait::wait_for(py, closed, None)?.unwrap_or(false))
    }

    fn start_close(&self, timeout: f64) -> PyResult<Operation> {
        let timeout = options::seconds("timeout", timeout)?;
        let inner = Arc::clone(self.inner()?);
        Ok(self.operation(async move { Ok(Outcome::Clean(inner.close_async(timeout).await)) }))
    }

    /// Returns counters of the endpoint and of its peers, as dicts.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let inner = self.inner()?;
        let report = py.detach(|| inner.report()).map_err(|_| raise::closed())?;
        report::counters(py, &report)
    }

    /// Returns the events since the last call, except arrivals: kind, address, and text.
    fn events(&self) -> PyResult<Vec<report::EventParts>> {
        Ok(self.inner()?.take_events().into_iter().map(report::event).collect())
    }
}

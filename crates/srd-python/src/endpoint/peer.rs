//! Remote endpoints and received datagrams, as Python objects.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use srd_host::Process;

use super::raise;

/// A remote endpoint that is a peer of an endpoint of this process.
#[pyclass(frozen, module = "opensrd", name = "Peer")]
pub(crate) struct Peer {
    /// The peer in `srd_net`. The child of a fork leaks it, because a lock may be held forever.
    inner: Option<srd_net::Peer>,
    process: Process,
    /// Number of the local endpoint, in this process, to which the peer belongs.
    endpoint: u64,
}

impl Drop for Peer {
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget(self.inner.take());
        }
    }
}

impl Peer {
    pub(crate) fn new(inner: srd_net::Peer, process: Process, endpoint: u64) -> Self {
        Self { inner: Some(inner), process, endpoint }
    }

    fn inner(&self) -> PyResult<&srd_net::Peer> {
        if !self.process.is_current() {
            return Err(raise::forked());
        }
        self.inner.as_ref().ok_or_else(raise::closed)
    }

    /// Returns the peer for a call of this endpoint. If the peer belongs to another endpoint,
    /// raises an exception.
    pub(crate) fn of(&self, endpoint: u64) -> PyResult<&srd_net::Peer> {
        if self.endpoint != endpoint {
            return Err(PyValueError::new_err(
                "this peer is of another endpoint: connect to it with this one",
            ));
        }
        self.inner()
    }

    fn socket_address(&self) -> PyResult<SocketAddr> {
        Ok(self.inner()?.address())
    }
}

/// Returns an address in the form of Python's `socket`.
pub(crate) fn pair(address: SocketAddr) -> (String, u16) {
    (address.ip().to_string(), address.port())
}

#[pymethods]
impl Peer {
    /// Returns IP address and well-known port.
    #[getter]
    fn address(&self) -> PyResult<(String, u16)> {
        self.socket_address().map(pair)
    }

    /// Returns the number of datagrams to the peer that are queued or in flight.
    #[getter]
    fn outstanding(&self) -> PyResult<u32> {
        Ok(self.inner()?.outstanding())
    }

    /// Returns the number of datagrams to the peer that have failed so far.
    #[getter]
    fn failures(&self) -> PyResult<u64> {
        Ok(self.inner()?.failures())
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<opensrd.Peer {}>", self.socket_address()?))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        let other = other.get();
        let same = self.endpoint == other.endpoint;
        Ok(same && self.socket_address()? == other.socket_address()?)
    }

    fn __hash__(&self) -> PyResult<u64> {
        let mut hasher = DefaultHasher::new();
        (self.endpoint, self.socket_address()?).hash(&mut hasher);
        Ok(hasher.finish())
    }
}

/// A received datagram.
#[pyclass(frozen, module = "opensrd", name = "Message")]
pub(crate) struct Message {
    /// The peer that sent the datagram.
    #[pyo3(get)]
    peer: Py<Peer>,
    /// Payload of the datagram.
    #[pyo3(get)]
    data: Py<PyBytes>,
}

impl Message {
    pub(crate) fn new(py: Python<'_>, peer: Peer, data: &[u8]) -> PyResult<Self> {
        Ok(Self { peer: Py::new(py, peer)?, data: PyBytes::new(py, data).unbind() })
    }
}

#[pymethods]
impl Message {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let from = self.peer.get().socket_address()?;
        Ok(format!("<opensrd.Message of {} bytes from {from}>", self.data.as_bytes(py).len()))
    }
}

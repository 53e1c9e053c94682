//! Remote endpoints and received datagrams, as Python objects.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use srd_host::Process;

use super::raise;

/// A remote endpoint, as a peer of one of ours.
#[pyclass(frozen, module = "opensrd", name = "Peer")]
pub(crate) struct Peer {
    /// Not dropped in the child of a fork, where a lock may be held for ever.
    inner: Option<srd_net::Peer>,
    process: Process,
    /// Endpoint of this process that has this peer.
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

    /// The peer, for a call of this endpoint.
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

/// An address as `socket` has it.
pub(crate) fn pair(address: SocketAddr) -> (String, u16) {
    (address.ip().to_string(), address.port())
}

#[pymethods]
impl Peer {
    /// IP address and well-known port.
    #[getter]
    fn address(&self) -> PyResult<(String, u16)> {
        self.socket_address().map(pair)
    }

    /// Datagrams that wait or are in flight to it.
    #[getter]
    fn outstanding(&self) -> PyResult<u32> {
        Ok(self.inner()?.outstanding())
    }

    /// Datagrams to it that have failed so far.
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

/// A datagram that arrived.
#[pyclass(frozen, module = "opensrd", name = "Message")]
pub(crate) struct Message {
    /// The peer that sent it.
    #[pyo3(get)]
    peer: Py<Peer>,
    /// Payload.
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

//! Conversion of the transport's errors to exceptions of `opensrd.errors`.

use pyo3::PyErr;
use srd_net::{BindError, ConnectError, FlushError, SendError};
use srd_proto::{AddPeerError, Status};

/// Exception classes, which are defined in Python.
mod errors {
    pyo3::import_exception!(opensrd.errors, EndpointClosed);
    pyo3::import_exception!(opensrd.errors, EndpointError);
    pyo3::import_exception!(opensrd.errors, PeerGone);
    pyo3::import_exception!(opensrd.errors, PeerRestarted);
    pyo3::import_exception!(opensrd.errors, PeerUnreachable);
    pyo3::import_exception!(opensrd.errors, Refused);
    pyo3::import_exception!(opensrd.errors, TimedOut);
    pyo3::import_exception!(opensrd.errors, TooBig);
}

pub(crate) fn closed() -> PyErr {
    errors::EndpointClosed::new_err("the endpoint is closed")
}

pub(crate) fn forked() -> PyErr {
    errors::EndpointError::new_err(
        "this endpoint was opened before a fork, and belongs to the parent process: open one in \
         the child, or start processes by `spawn`",
    )
}

pub(crate) fn timed_out(what: &str) -> PyErr {
    errors::TimedOut::new_err(format!("the time is over: {what}"))
}

pub(crate) fn bind(error: BindError, address: std::net::SocketAddr) -> PyErr {
    match error {
        BindError::Io(error) => match error.raw_os_error() {
            Some(number) => {
                let text = format!("cannot open an endpoint at {address}: {error}");
                pyo3::exceptions::PyOSError::new_err((number, text))
            }
            None => error.into(),
        },
        other => pyo3::exceptions::PyValueError::new_err(other.to_string()),
    }
}

pub(crate) fn connect(error: ConnectError) -> PyErr {
    match error {
        ConnectError::Refused(AddPeerError::KeyMissing) => pyo3::exceptions::PyValueError::new_err(
            "this endpoint has a key pair, and its peers are known by theirs: give peer_key, the \
                 `public_key` of the other end; or open both ends with one job_key; or both with \
                 encrypt=False on a network that you trust",
        ),
        ConnectError::Refused(refused) => errors::Refused::new_err(refused.to_string()),
        _ => closed(),
    }
}

pub(crate) fn send(error: SendError) -> PyErr {
    match error {
        SendError::TooLarge { max_bytes } => too_big(max_bytes),
        SendError::Failed(status) => failed(status),
        _ => closed(),
    }
}

fn too_big(max_bytes: usize) -> PyErr {
    let text = format!("a datagram carries at most {max_bytes} bytes: send parts of it");
    errors::TooBig::new_err((text, max_bytes))
}

/// Returns the exception for a failed flush.
pub(crate) fn flush(error: FlushError) -> PyErr {
    match error {
        FlushError::Failed(status) => failed(status),
        // The flush has no time limit, so any other error means that the endpoint has ended.
        _ => closed(),
    }
}

/// Returns the exception for a datagram that ended with this status.
fn failed(status: Status) -> PyErr {
    let refused = |text: &'static str| errors::Refused::new_err(text);
    match status {
        Status::LocalBadLength => {
            let text = "the network passes no datagram of this size: see payload_bytes_max and \
                        events(), which says what it passes";
            errors::TooBig::new_err((text, pyo3::Python::attach(|py| py.None())))
        }
        Status::RemoteAbort => errors::PeerRestarted::new_err(
            "the peer restarted: what was under way may or may not have arrived",
        ),
        Status::UnrespRemote => errors::PeerGone::new_err("the peer has stopped answering"),
        Status::UnreachRemote => errors::PeerUnreachable::new_err(
            "the peer never answered: is an endpoint open there, does a firewall let UDP through, \
             and do the keys of both ends fit?",
        ),
        Status::Flushed => {
            errors::PeerGone::new_err("the peer or this endpoint was closed before it was sent")
        }
        Status::BadDestQpn => refused("the other end is no endpoint of this kind"),
        Status::RemoteRnr => refused("the peer had no room for it, as often as it was asked"),
        _ => refused("the peer refused it"),
    }
}

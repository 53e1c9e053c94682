//! Connections with one request of a host about its pods.
//!
//! Such a connection is separate from the session of the host, so that the session can deliver the
//! part of the cloud for which the request waits. Bounds: the connections of one identity, and the
//! rate of requests of one host.

use std::sync::Arc;

use srd_enrol::{Fingerprint, PodAnswer, PodRequest, Refusal, RefusalKind};

use super::hub::Hub;
use super::session::{Stranger, check_version};

/// Answers the request of the host with this identity. `stranger` is released when the host is
/// known.
///
/// # Errors
/// If the controller does not know the host, or the host cannot have pods.
pub(super) async fn answer(
    hub: &Arc<Hub>,
    (identity, stranger): (Fingerprint, Stranger),
    version: u32,
    request: PodRequest,
) -> Result<PodAnswer, Refusal> {
    check_version(version)?;
    let name = hub.hosts().table().name_of(identity).map(str::to_owned);
    let Some(name) = name else {
        let what = "the controller does not have this host: enrol it again";
        return Err(Refusal::new(RefusalKind::HostUnknown, what));
    };
    drop(stranger);
    request.check()?;
    hub.admit_pod(identity)?;
    let hub = Arc::clone(hub);
    let answered = tokio::task::spawn_blocking(move || hub.pod(&name, request));
    let defect = |_| Refusal::new(RefusalKind::Unavailable, "the request has ended in a defect");
    answered.await.map_err(defect)
}

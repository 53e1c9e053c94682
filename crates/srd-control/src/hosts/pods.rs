//! Connections with one request of a host about its pods.
//!
//! Such a connection is separate from the session of the host, so that the session can deliver the
//! part of the cloud for which the request waits. Bounds: the connections of one identity, and the
//! rate of requests of one host.

use std::sync::Arc;

use srd_enrol::{Fingerprint, PodAnswer, PodRequest, Refusal, RefusalKind};

use super::hub::Hub;

/// Returns the name of the host with this identity.
///
/// # Errors
/// If the controller does not have the host.
pub(super) fn host(hub: &Hub, identity: Fingerprint) -> Result<String, Refusal> {
    hub.hosts().table().name_of(identity).map(str::to_owned).ok_or_else(|| {
        let what = "the controller does not have this host: enrol it again";
        Refusal::new(RefusalKind::HostUnknown, what)
    })
}

/// Answers the request of a host.
///
/// # Errors
/// If the request is not valid, or the host may not send it now.
pub(super) async fn answer(
    hub: &Arc<Hub>,
    (identity, name): (Fingerprint, String),
    request: PodRequest,
) -> Result<PodAnswer, Refusal> {
    request.check().map_err(|what| Refusal::new(RefusalKind::Invalid, what))?;
    hub.admit_pod(identity)?;
    let hub = Arc::clone(hub);
    let answered = tokio::task::spawn_blocking(move || hub.pod(&name, request));
    let defect = |_| Refusal::new(RefusalKind::Unavailable, "the request has ended in a defect");
    answered.await.map_err(defect)
}

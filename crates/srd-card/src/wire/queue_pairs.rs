//! The queue pairs that cards use at each other's endpoints.

use srd_proto::Qpn;

/// Queue pair that frames are sent to, by SRD or plainly.
pub const FRAME_QPN: Qpn = Qpn(1);
/// Queue pair that frames of flows which have just begun are sent from: they go first.
pub const FRESH_QPN: Qpn = Qpn(2);
/// Queue pair for offers.
pub const OFFER_QPN: Qpn = Qpn(3);
/// Queue pair that frames of clouds are sent to, by SRD or plainly.
pub const CLOUD_QPN: Qpn = Qpn(4);

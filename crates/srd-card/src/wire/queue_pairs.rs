//! Queue pairs that cards use at each other's endpoints.

use srd_proto::Qpn;

/// Queue pair to which frames are sent, over SRD or without it.
pub const FRAME_QPN: Qpn = Qpn(1);
/// Queue pair from which frames of new flows are sent, in the low-latency class.
pub const FRESH_QPN: Qpn = Qpn(2);
/// Queue pair from which and to which offers are sent.
pub const OFFER_QPN: Qpn = Qpn(3);
/// Queue pair to which frames of clouds are sent, over SRD or without it.
pub const CLOUD_QPN: Qpn = Qpn(4);

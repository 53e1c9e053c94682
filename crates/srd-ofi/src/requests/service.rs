//! The kinds of endpoints.

use std::ffi::c_int;

use crate::abi::bits::{FI_EP_DGRAM, FI_EP_RDM};

/// Service of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Reliable messages of any length, in order, with tags, and access to remote memory with
    /// atomic operations: `FI_EP_RDM` of the fabric `srd`.
    Messages,
    /// Datagrams of one packet, in any order, lost if no receive is posted: `FI_EP_DGRAM` of the
    /// fabric `srd`.
    Datagrams,
    /// The verbs, which are `FI_EP_RDM` of the fabric `srd-direct`: reliable messages of one
    /// packet, in any order, and access to remote memory.
    Direct,
}

impl Service {
    /// All services in the order in which they are listed: an application that names no service
    /// gets the first.
    pub const ALL: [Self; 3] = [Self::Messages, Self::Datagrams, Self::Direct];

    /// Returns the name of the fabric.
    #[must_use]
    pub fn fabric(self) -> &'static str {
        match self {
            Self::Messages | Self::Datagrams => "srd",
            Self::Direct => "srd-direct",
        }
    }

    /// Returns libfabric's number of the endpoint type.
    #[must_use]
    pub fn kind(self) -> c_int {
        match self {
            Self::Messages | Self::Direct => FI_EP_RDM,
            Self::Datagrams => FI_EP_DGRAM,
        }
    }

    /// Returns the service of a fabric for a type of endpoint.
    #[must_use]
    pub fn find(fabric: &str, kind: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.fabric() == fabric && service.kind() == kind)
    }

    /// Whether the addresses of the service identify runs of endpoints, not only socket addresses.
    #[must_use]
    pub fn knows_runs(self) -> bool {
        self == Self::Messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_fabric_and_type() {
        for service in Service::ALL {
            assert_eq!(Service::find(service.fabric(), service.kind()), Some(service));
        }
        assert_eq!(Service::find("srd-direct", FI_EP_DGRAM), None);
        assert_eq!(Service::find("srd", 1), None);
    }
}

//! The kinds of endpoints that there are.

use std::ffi::c_int;

use crate::abi::bits::{FI_EP_DGRAM, FI_EP_RDM};

/// Service of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Reliable messages of any length, in order, with tags, remote memory and atomics: `FI_EP_RDM`
    /// of the fabric `srd`.
    Messages,
    /// Datagrams of one packet, in any order, lost where no receive waits: `FI_EP_DGRAM` of the
    /// fabric `srd`.
    Datagrams,
    /// The verbs: reliable messages of one packet, in any order, and remote memory: `FI_EP_RDM` of
    /// the fabric `srd-direct`.
    Direct,
}

impl Service {
    /// All, as they are listed: an application that names none gets the first.
    pub const ALL: [Self; 3] = [Self::Messages, Self::Datagrams, Self::Direct];

    /// The fabric.
    #[must_use]
    pub fn fabric(self) -> &'static str {
        match self {
            Self::Messages | Self::Datagrams => "srd",
            Self::Direct => "srd-direct",
        }
    }

    /// The type of endpoint.
    #[must_use]
    pub fn kind(self) -> c_int {
        match self {
            Self::Messages | Self::Direct => FI_EP_RDM,
            Self::Datagrams => FI_EP_DGRAM,
        }
    }

    /// The service of a fabric for a type of endpoint.
    #[must_use]
    pub fn find(fabric: &str, kind: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.fabric() == fabric && service.kind() == kind)
    }

    /// Whether its addresses name runs of endpoints, not only places.
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

//! Records of the store.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use srd_enrol::{Fingerprint, Host, Peer};

use crate::store::KeyChange;

/// Prefix of the keys of all records.
pub(crate) const PREFIX: &str = "hosts/";
/// Key of the private key of the controller.
pub(super) const IDENTITY: &str = "hosts/identity";
/// Key of [`Meta`].
pub(super) const META: &str = "hosts/meta";
/// Prefix of the keys of hosts.
pub(super) const HOST: &str = "hosts/host/";
/// Prefix of the keys of tokens.
pub(super) const TOKEN: &str = "hosts/token/";

/// Numbers of the overlay.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Meta {
    /// Generation of the last change of a host.
    pub(super) generation: u64,
    /// Block from which overlay addresses are assigned.
    pub(super) overlay: Option<IpNet>,
    /// Address that was assigned last.
    pub(super) last: Option<IpAddr>,
}

/// A host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct HostRecord {
    /// Fingerprint of the identity with which the host has enrolled.
    pub(super) identity: Fingerprint,
    /// Description by the host itself.
    pub(super) host: Host,
    /// Next public key of the host, which it has not used yet.
    pub(super) next_key: Option<String>,
    /// Whether the operator has requested another key, and the host has not drawn it yet.
    pub(super) must_rotate: bool,
    /// Last next identity of the controller that the host has stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_controller: Option<Fingerprint>,
    /// Whether the host has that identity only: it has enrolled with a token that names it, and has
    /// not stored the others since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_only_next: bool,
    /// Overlay address.
    pub(super) address: IpAddr,
    /// Generation of the last change that peers see.
    pub(super) generation: u64,
    /// Time of the enrolment, in seconds since 1970.
    pub(super) enrolled_at: u64,
}

impl HostRecord {
    /// Returns the host as its peers see it.
    pub(super) fn peer(&self, name: &str) -> Peer {
        Peer {
            name: name.to_owned(),
            public_key: self.host.public_key.clone(),
            endpoints: self.host.endpoints.clone(),
            address: self.address,
        }
    }

    /// Whether this is the public key of the host or its next one.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.host.public_key == key || self.next_key.as_deref() == Some(key)
    }
}

/// An enrolment token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TokenRecord {
    /// Hash of the secret.
    pub(super) hash: String,
    /// Time of the end of its life, in seconds since 1970.
    pub(super) expires_at: u64,
    /// Number of hosts that may still enrol.
    pub(super) uses: u32,
    /// Identity of the controller that the token names; `None`: a token of an earlier build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) controller: Option<Fingerprint>,
}

/// Private keys of the controller.
#[derive(Serialize, Deserialize)]
pub(super) struct IdentityRecord {
    /// Text of the identity in use.
    pub(super) key: String,
    /// Text of the identity that replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

/// Returns the change that writes a record.
pub(super) fn put(key: impl Into<String>, record: &impl Serialize) -> KeyChange {
    // Texts, numbers and addresses can be written as JSON.
    (key.into(), Some(serde_json::to_string(record).unwrap_or_default()))
}

/// Reads a record.
pub(super) fn read<T: DeserializeOwned>(value: &str) -> Result<T, String> {
    // The text of the parser's error may contain values, which could be secrets.
    serde_json::from_str(value).map_err(|_| "the value is no record of this kind".to_owned())
}

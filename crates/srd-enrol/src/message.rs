//! Messages between a host and its controller.
//!
//! Bounds: the constants of this module. [`Host::check`] and [`check_name`] enforce them at the
//! controller. A host checks each peer as it checks a peer in its configuration file.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::cloud::CloudUpdate;
use crate::pod::{PodAnswer, PodRequest};
use crate::tls::Fingerprint;

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Largest number of characters of a host's name.
pub const NAME_CHARACTERS_MAX: usize = 64;
/// Largest number of addresses of one host.
pub const ENDPOINTS_MAX: usize = 4;
/// Largest number of vCPUs that a host offers.
pub const VCPUS_MAX: u32 = 1 << 20;
/// Largest number of instance types that a host names.
pub const TYPES_MAX: usize = 64;
/// Largest number of characters of the name of a zone or of an instance type.
pub const WORD_CHARACTERS_MAX: usize = 40;
/// Largest number of characters of the error with which a host refuses its part of the cloud.
pub const ERROR_CHARACTERS_MAX: usize = 1000;
/// Number of characters of a public key: 32 bytes in base64.
const KEY_CHARACTERS: usize = 44;

/// A text that logs must not contain.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A host, as it describes itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Public key of its transport, in base64.
    pub public_key: String,
    /// Addresses and ports at which its peers reach it, one for each network card.
    pub endpoints: Vec<SocketAddr>,
    /// Number of its processors.
    pub processors: u32,
    /// Size of its memory in bytes.
    pub memory_bytes: u64,
    /// Instances that it accepts; `None`: it accepts no instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
}

/// Instances that a host accepts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capacity {
    /// Availability zone in which the host is.
    pub zone: String,
    /// Largest sum of the vCPUs of its instances.
    pub vcpus: u32,
    /// Instance types that it accepts. Empty: all types.
    pub types: Vec<String>,
    /// Whether it accepts instances of its pods.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pods: bool,
}

/// A peer, as the controller describes it to a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Name of the peer.
    pub name: String,
    /// Public key of its transport, in base64.
    pub public_key: String,
    /// Addresses and ports at which it is reached, one for each network card.
    pub endpoints: Vec<SocketAddr>,
    /// Its overlay address.
    pub address: IpAddr,
}

/// The identities of a controller, which all controllers of one state have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ControllerIdentities {
    /// Fingerprint of the identity in use.
    pub present: Fingerprint,
    /// Fingerprint of the identity that replaces it; `None`: the identity is not being changed.
    pub next: Option<Fingerprint>,
}

impl ControllerIdentities {
    /// Fingerprints of the identities that a host accepts.
    pub fn accepted(&self) -> Vec<Fingerprint> {
        self.next.into_iter().chain([self.present]).collect()
    }
}

/// Messages of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum FromHost {
    /// The first message of a new host.
    Enrol {
        /// [`VERSION`] of the host.
        version: u32,
        /// Identifier of the enrolment token.
        token: String,
        /// Secret of the enrolment token.
        secret: Secret,
        /// Name that the host requests.
        name: String,
        /// Description of the host.
        host: Host,
    },
    /// The first message of a host that has enrolled.
    Follow {
        /// [`VERSION`] of the host.
        version: u32,
        /// Generation of the peers that the host has; 0: it has no peers.
        generation: u64,
        /// Description of the host.
        host: Host,
        /// Identities of the controller that the host has stored; `None`: a host of an earlier
        /// build, which does not accept [`FromController::Identities`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identities: Option<ControllerIdentities>,
    },
    /// The host uses the peers of this generation.
    Applied {
        /// The generation.
        generation: u64,
    },
    /// The card of the host uses the part of the cloud of this generation, or has refused it.
    CloudApplied {
        /// The generation.
        generation: u64,
        /// Reason of the refusal. The former generation stays in use.
        error: Option<String>,
    },
    /// The host offers this key as its next one.
    NextKey {
        /// The public key, in base64.
        public_key: String,
    },
    /// The host has stored these identities of its controller, and accepts no others.
    IdentitiesStored(ControllerIdentities),
    /// The controller must answer this message by [`FromController::Pong`].
    Ping,
    /// A request about pods of the host: the only message of a connection.
    Pod {
        /// [`VERSION`] of the host.
        version: u32,
        /// The request.
        request: PodRequest,
    },
}

/// Messages of a controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum FromController {
    /// The answer to the first message of a host.
    Welcome {
        /// Name of the host.
        name: String,
        /// Its overlay address, with the length of the overlay's prefix.
        address: IpNet,
    },
    /// All peers of the host.
    Snapshot {
        /// Generation of the peers.
        generation: u64,
        /// The peers.
        peers: Vec<Peer>,
    },
    /// The changes since the last snapshot or delta. A removal comes before all changes.
    Delta {
        /// Generation after the changes.
        generation: u64,
        /// New peers, and peers that have changed.
        changed: Vec<Peer>,
        /// Names of peers that are gone.
        removed: Vec<String>,
    },
    /// A section of the part of the cloud that the host needs. Only a host with a [`Capacity`]
    /// receives this message.
    Cloud(CloudUpdate),
    /// The host must draw another key, and send it by [`FromHost::NextKey`].
    Rotate,
    /// The controller has stored the next key of the host.
    KeyStored {
        /// The public key, in base64.
        public_key: String,
    },
    /// The identities of the controller from now on. The host stores them, and answers by
    /// [`FromHost::IdentitiesStored`].
    Identities(ControllerIdentities),
    /// The controller has refused a message, and closes the connection.
    Refused(Refusal),
    /// The answer to [`FromHost::Ping`].
    Pong,
    /// The answer to [`FromHost::Pod`]. The controller closes the connection.
    Pod {
        /// The answer.
        answer: PodAnswer,
    },
}

/// Reason why a controller has refused a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Kind of the reason.
    pub reason: RefusalKind,
    /// Text for the operator.
    pub message: String,
}

impl Refusal {
    /// A refusal with a text for the operator.
    pub fn new(reason: RefusalKind, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// Kinds of reasons of refusals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The versions of host and controller differ.
    Version,
    /// The controller has no such token.
    TokenUnknown,
    /// The token has expired.
    TokenExpired,
    /// The token was used as often as it may be.
    TokenUsed,
    /// Another host has the name.
    NameTaken,
    /// Another host has the key.
    KeyTaken,
    /// Another host has an address.
    EndpointTaken,
    /// The host has never enrolled, or was removed.
    HostUnknown,
    /// The key is not that of this host.
    OtherKey,
    /// A value of the message is not valid.
    Invalid,
    /// The overlay has no more addresses, or the controller has as many hosts as it can have.
    Full,
    /// A newer connection has the same identity.
    Superseded,
    /// The controller cannot store the change.
    Unavailable,
}

impl RefusalKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Version,
        Self::TokenUnknown,
        Self::TokenExpired,
        Self::TokenUsed,
        Self::NameTaken,
        Self::KeyTaken,
        Self::EndpointTaken,
        Self::HostUnknown,
        Self::OtherKey,
        Self::Invalid,
        Self::Full,
        Self::Superseded,
        Self::Unavailable,
    ];

    /// Whether the host may succeed with the same message later.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Unavailable)
    }
}

/// Checks a name of a host: at most [`NAME_CHARACTERS_MAX`] letters, digits, `-`, `_` and `.`, and
/// not `all`, which means all peers in commands.
///
/// # Errors
/// A text with the form of names.
pub fn check_name(name: &str) -> Result<(), Refusal> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let length = 1..=NAME_CHARACTERS_MAX;
    if length.contains(&name.len()) && name.chars().all(is_good) && name != "all" {
        return Ok(());
    }
    let what = format!(
        "a name of a host has 1 to {NAME_CHARACTERS_MAX} letters, digits, '-', '_' and '.', and is \
         not `all`"
    );
    Err(Refusal::new(RefusalKind::Invalid, what))
}

/// Checks the form of a public key.
///
/// # Errors
/// A text for the operator.
pub fn check_key(key: &str) -> Result<(), Refusal> {
    use base64::Engine as _;
    let decoded = base64::engine::general_purpose::STANDARD.decode(key);
    let is_good = decoded.is_ok_and(|bytes| bytes.len() == 32 && bytes != [0; 32]);
    if is_good && key.len() == KEY_CHARACTERS {
        return Ok(());
    }
    Err(Refusal::new(RefusalKind::Invalid, "the public key of the host is not valid"))
}

impl Host {
    /// Checks the values of this description.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn check(&self) -> Result<(), Refusal> {
        check_key(&self.public_key)?;
        let refused = |what: String| Err(Refusal::new(RefusalKind::Invalid, what));
        if self.endpoints.is_empty() || self.endpoints.len() > ENDPOINTS_MAX {
            return refused(format!("a host has 1 to {ENDPOINTS_MAX} endpoints"));
        }
        for (at, endpoint) in self.endpoints.iter().enumerate() {
            let ip = endpoint.ip();
            let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
            if ip.is_unspecified() || ip.is_multicast() || is_broadcast || endpoint.port() == 0 {
                return refused(format!("no peer can reach a host at {endpoint}"));
            }
            let has_scope =
                matches!(endpoint, SocketAddr::V6(at) if at.scope_id() != 0 || at.flowinfo() != 0);
            if ip.to_canonical() != ip || has_scope {
                return refused(format!("{endpoint}: write the address alone, IPv4 as IPv4"));
            }
            if self.endpoints[..at].contains(endpoint) {
                return refused(format!("the endpoint {endpoint} is given twice"));
            }
        }
        self.capacity.as_ref().map_or(Ok(()), Capacity::check)
    }
}

impl Capacity {
    /// Checks the values of this description.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn check(&self) -> Result<(), Refusal> {
        let is_word = |word: &str| {
            let is_good = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
            (1..=WORD_CHARACTERS_MAX).contains(&word.len()) && word.chars().all(is_good)
        };
        let refused = |what: String| Err(Refusal::new(RefusalKind::Invalid, what));
        if !is_word(&self.zone) {
            return refused("the zone has another form than us-east-1a".to_owned());
        }
        if !(1..=VCPUS_MAX).contains(&self.vcpus) {
            return refused(format!("a host offers 1 to {VCPUS_MAX} vCPUs"));
        }
        if self.types.len() > TYPES_MAX || !self.types.iter().all(|name| is_word(name)) {
            return refused(format!("a host names at most {TYPES_MAX} types, as c7i.large"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(endpoints: &[&str]) -> Host {
        Host {
            public_key: "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=".to_owned(),
            endpoints: endpoints.iter().map(|text| text.parse().unwrap()).collect(),
            processors: 2,
            memory_bytes: 1 << 30,
            capacity: None,
        }
    }

    #[test]
    fn capacities_outside_of_the_bounds_are_refused() {
        let zone = "us-east-1a".to_owned();
        let types = vec!["u-3tb1.56xlarge".to_owned(); TYPES_MAX];
        let good = Capacity { zone, vcpus: VCPUS_MAX, types, pods: true };
        let with = |capacity: &Capacity| Host {
            capacity: Some(capacity.clone()),
            ..host(&["192.0.2.1:7471"])
        };
        with(&good).check().unwrap();
        let many = vec!["c7i.large".to_owned(); TYPES_MAX + 1];
        for bad in [
            Capacity { zone: String::new(), ..good.clone() },
            Capacity { zone: "a\n".to_owned(), ..good.clone() },
            Capacity { vcpus: 0, ..good.clone() },
            Capacity { vcpus: VCPUS_MAX + 1, ..good.clone() },
            Capacity { types: many, ..good.clone() },
            Capacity { types: vec!["x".repeat(WORD_CHARACTERS_MAX + 1)], ..good.clone() },
        ] {
            assert_eq!(with(&bad).check().unwrap_err().reason, RefusalKind::Invalid);
        }
        // A host of an earlier version sends no capacity.
        let text = serde_json::to_string(&host(&["192.0.2.1:7471"])).unwrap();
        assert!(!text.contains("capacity"));
        assert_eq!(serde_json::from_str::<Host>(&text).unwrap().capacity, None);
    }

    #[test]
    fn a_host_of_an_earlier_build_sends_no_identities() {
        let host = host(&["192.0.2.1:7471"]);
        let message = FromHost::Follow { version: 1, generation: 7, host, identities: None };
        let text = serde_json::to_string(&message).unwrap();
        assert!(!text.contains("identities"), "{text}");
        assert_eq!(serde_json::from_str::<FromHost>(&text).unwrap(), message);
    }

    #[test]
    fn names_keys_and_endpoints_outside_of_the_bounds_are_refused() {
        let long = "x".repeat(NAME_CHARACTERS_MAX);
        for good in ["a", "web-1.example", &long] {
            check_name(good).unwrap();
        }
        for bad in ["", "all", "a b", "ä", "a/b", &format!("{long}x")] {
            assert_eq!(check_name(bad).unwrap_err().reason, RefusalKind::Invalid, "{bad}");
        }
        host(&["192.0.2.1:7471"]).check().unwrap();
        let many: Vec<String> = (1..=9).map(|n| format!("192.0.2.{n}:7471")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        host(&many[..ENDPOINTS_MAX]).check().unwrap();
        let twice = ["192.0.2.1:7471", "192.0.2.1:7471"];
        for bad in [&many[..], &[], &twice, &["0.0.0.0:7471"], &["[::]:1"], &["192.0.2.1:0"]] {
            host(bad).check().unwrap_err();
        }
        // Another form of the endpoint of another host took that host out of the mesh.
        for other_form in ["[::ffff:192.0.2.1]:7471", "[fe80::1%1]:7471"] {
            host(&[other_form]).check().unwrap_err();
        }
        for bad in ["", "short", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="] {
            Host { public_key: bad.to_owned(), ..host(&["192.0.2.1:7471"]) }.check().unwrap_err();
        }
    }

    #[test]
    fn a_message_in_a_log_does_not_contain_the_secret_of_a_token() {
        let message = FromHost::Enrol {
            version: VERSION,
            token: "id".to_owned(),
            secret: Secret("hidden".to_owned()),
            name: "a".to_owned(),
            host: host(&["192.0.2.1:7471"]),
        };
        assert!(!format!("{message:?}").contains("hidden"));
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<FromHost>(&text).unwrap(), message);
    }
}

//! The connection of this host to its controller, for people and machines.

use serde::{Deserialize, Serialize};

/// Whether a host is connected to its controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControllerState {
    /// The controller has admitted this host, and answers.
    Connected,
    /// The first attempt since the start of the daemon is not over.
    #[default]
    Connecting,
    /// There is no connection. The daemon uses the peers that it has, and tries again.
    Disconnected,
}

impl std::fmt::Display for ControllerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connected => "connected",
            Self::Connecting => "connecting",
            Self::Disconnected => "disconnected",
        })
    }
}

/// The connection of this host to its controller.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ControllerSnapshot {
    /// Host and port of the controller, as in the configuration.
    pub address: String,
    /// Fingerprint of the controller at which this host has enrolled. A controller with another
    /// fingerprint is refused.
    pub fingerprint: String,
    /// Whether this host is connected.
    pub state: ControllerState,
    /// Seconds since the state began.
    pub since_s: f64,
    /// Seconds since the last message of the controller; `None` before the first message since the
    /// start of the daemon.
    pub last_contact_s: Option<f64>,
    /// Generation of the peers that this host has from the controller; 0: they have not arrived
    /// yet, or the controller sends all of them again.
    pub generation: u64,
    /// Reason why the host is not connected, as one word: `unreachable`, `other-controller` (the
    /// controller there has another fingerprint), `refused`, `removed` (the controller has
    /// removed this host), `state-directory`, `cloud` (the controller has sent a part of the cloud
    /// that is not accepted); `None` if it is connected, or at the first attempt.
    pub problem: Option<String>,
    /// The reason as a sentence for people, with advice; `None` if `problem` is `None`.
    pub problem_text: Option<String>,
    /// Seconds since this is the reason; `None` if `problem` is `None`.
    pub problem_since_s: Option<f64>,
}

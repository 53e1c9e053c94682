//! Errors of the plugin, with the codes of the specification (*Error*), and codes from 100 that the
//! specification leaves to plugins.

use serde_json::{Value, json};

/// Code of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Code {
    /// The version of the configuration is not supported.
    Version = 1,
    /// A field of the configuration is not supported.
    UnsupportedField = 2,
    /// The container, or its namespace, is unknown.
    UnknownContainer = 3,
    /// A variable of the environment is missing or wrong.
    Environment = 4,
    /// The input or a file cannot be read or written.
    Io = 5,
    /// The input is no JSON.
    Decode = 6,
    /// The configuration is wrong.
    Config = 7,
    /// The request may succeed later.
    TryAgain = 11,
    /// The plugin cannot serve `ADD` requests at present.
    Unavailable = 50,
    /// The plugin cannot serve `ADD` requests at present, because the daemon that carries the
    /// packets of pods does not run.
    Disconnected = 51,
    /// The container has an interface of this network with this name already.
    Exists = 100,
    /// The EC2 API refuses a request.
    Refused = 101,
    /// The interface did not appear in the namespace.
    NoInterface = 102,
    /// The interface differs from the result of `ADD`.
    Differs = 103,
}

/// An error with a message that states what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Code of the error.
    pub code: Code,
    /// Message for the user.
    pub message: String,
    /// Further facts; may be empty.
    pub details: String,
}

impl Failure {
    /// An error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// Returns the error as the JSON object that a plugin prints. `version`: the version of the
    /// configuration.
    pub fn json(&self, version: &str) -> Value {
        let mut error = json!({
            "cniVersion": version,
            "code": self.code as u32,
            "msg": self.message,
        });
        if !self.details.is_empty() {
            error["details"] = self.details.as_str().into();
        }
        error
    }
}

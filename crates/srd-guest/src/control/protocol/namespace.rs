//! The name of an instance's network namespace. `ip netns exec` uses this name as the name of a
//! file. So a text from another process is accepted only if it consists of the card's prefix and
//! the name of an instance.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Prefix of the names of namespaces that the card creates.
pub(crate) const PREFIX: &str = "srd-i-";

/// The name of an instance's namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamespaceName(String);

/// Error for a text that is not the name of an instance's namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoNamespace(String);

impl fmt::Display for NoNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(f, "{text:?} is no name of an instance's namespace")
    }
}

impl std::error::Error for NoNamespace {}

impl NamespaceName {
    /// Returns the name of the namespace of the instance with this name; `None` if an instance
    /// cannot have this name.
    pub(crate) fn of_instance(name: &str) -> Option<Self> {
        is_name(name).then(|| Self(format!("{PREFIX}{name}")))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NamespaceName {
    type Error = NoNamespace;

    fn try_from(text: String) -> Result<Self, NoNamespace> {
        let is_ours = text.strip_prefix(PREFIX).is_some_and(is_name);
        if is_ours { Ok(Self(text)) } else { Err(NoNamespace(text)) }
    }
}

impl From<NamespaceName> for String {
    fn from(name: NamespaceName) -> Self {
        name.0
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a text may be the name of an instance, and so part of a namespace's name.
pub(crate) fn is_name(text: &str) -> bool {
    let fits = (1..=40).contains(&text.len()) && !text.starts_with('-');
    fits && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::Answer;

    #[test]
    fn only_the_name_of_an_instance_behind_our_prefix_is_one() {
        for text in ["srd-i-web", "srd-i-a_b-C9"] {
            assert_eq!(NamespaceName::try_from(text.to_owned()).unwrap().as_str(), text);
        }
        let long = format!("srd-i-{}", "x".repeat(41));
        for text in
            ["", "web", "srd-i-", "srd-i--x", "../../tmp/x", "srd-i-../x", "srd-i-a b", &long]
        {
            assert!(NamespaceName::try_from(text.to_owned()).is_err(), "{text}");
        }
        assert_eq!(NamespaceName::of_instance("web").unwrap().as_str(), "srd-i-web");
        assert_eq!(NamespaceName::of_instance("../x"), None);
    }

    /// `srd run` passes the name to `ip netns exec`, which it runs as root.
    #[test]
    fn regression_an_answer_with_a_path_in_the_place_of_a_namespace_is_not_understood() {
        let answer = |namespace: &str| {
            format!(
                r#"{{"answer":"attached","name":"x","id":"i-1","instance_type":"c7i.large",
                "namespace":{namespace},"interfaces":[],"tracked":0,"untracked":0,
                "credits_bits":[0,0],"bandwidth_bps":[0,0],"packets_per_second":0}}"#
            )
        };
        let read = |namespace| serde_json::from_str::<Answer>(&answer(namespace));
        read(r#""srd-i-x""#).unwrap();
        read("null").unwrap();
        let error = read(r#""../../tmp/x""#).unwrap_err().to_string();
        assert!(error.contains("no name of an instance's namespace"), "{error}");
    }
}

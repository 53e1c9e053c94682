//! Requests of a host about its pods, and their answers.
//!
//! A pod is an instance whose network namespace a container runtime of the host has made. Its host
//! requests the instance, and the controller places it on this host. A host can request and end
//! instances of its own pods only.
//!
//! Each request has a connection of its own: the first message of the host is
//! `FromHost::Pod`, and the controller closes the connection after its
//! answer.
//!
//! Bounds: the constants of this module, which [`PodRequest::check`] enforces at the controller.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Largest number of security groups of a pod.
pub const GROUPS_MAX: usize = 16;
/// Largest number of characters of a text of a request: the limit of the value of a tag in EC2.
pub const TEXT_CHARACTERS_MAX: usize = 256;
/// Largest number of instances in an answer.
pub const INSTANCES_MAX: usize = 8192;

/// A request of a host about its pods.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum PodRequest {
    /// Starts the instance of a pod on this host. Answer: [`PodAnswer::Launched`].
    Launch(PodLaunch),
    /// Terminates the instance of a pod of this host. Answer: [`PodAnswer::Terminated`], also if
    /// there is no such instance.
    Terminate {
        /// Identifier of the instance.
        instance: String,
    },
    /// Lists instances of pods of this host that are not terminated. Answer:
    /// [`PodAnswer::Instances`].
    Instances {
        /// Tags that the instances have: pairs of a key and a value.
        tags: Vec<(String, String)>,
    },
    /// Requests the number of free addresses of a subnet. Answer: [`PodAnswer::FreeAddresses`].
    FreeAddresses {
        /// Identifier of the subnet.
        subnet: String,
    },
}

/// The instance of a pod, with one interface.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodLaunch {
    /// Client token: a repeated request starts no second instance.
    pub token: String,
    /// Identifier of the subnet.
    pub subnet: String,
    /// Identifiers of the security groups. Empty: the default group of the VPC.
    pub groups: Vec<String>,
    /// Primary address; `None`: a free one of the subnet.
    pub address: Option<Ipv4Addr>,
    /// Whether the interface also gets an IPv6 address.
    pub ipv6: bool,
    /// Instance type.
    pub instance_type: String,
    /// Tags of the instance and of its interface: pairs of a key and a value. The tag
    /// [`POD_TAG`] contains the name with which the host has announced the pod.
    pub tags: Vec<(String, String)>,
}

/// Key of the tag of an instance that names its pod.
pub const POD_TAG: &str = "srd:pod";
/// Key of the tag of the instance of a pod that names its host. The controller sets it.
pub const HOST_TAG: &str = "srd:host";
/// Largest number of tags of a request.
pub const TAGS_MAX: usize = 16;

/// The answer to a request of a host about its pods.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum PodAnswer {
    /// The instance runs.
    Launched {
        /// Identifier of the instance.
        instance: String,
        /// Identifier of its interface.
        interface: String,
        /// Primary address of the interface.
        address: Ipv4Addr,
        /// MAC address of the interface.
        mac: String,
    },
    /// The instance is terminated, or does not exist.
    Terminated,
    /// Instances, each with the name of its pod.
    Instances {
        /// Pairs of the identifier of an instance and the name of its pod.
        instances: Vec<(String, String)>,
    },
    /// Number of free addresses of a subnet.
    FreeAddresses {
        /// The number.
        count: u64,
    },
    /// The request is refused, and has changed nothing unless the code is that of an internal
    /// error.
    Refused {
        /// Code of the error, as the EC2 API has it.
        code: String,
        /// Message for the user.
        message: String,
    },
}

impl PodRequest {
    /// Checks the sizes of the values.
    ///
    /// # Errors
    /// A text for the user.
    pub fn check(&self) -> Result<(), String> {
        let mut texts: Vec<&str> = Vec::new();
        let tags = match self {
            Self::Launch(launch) => {
                let PodLaunch { token, subnet, groups, instance_type, tags, .. } = launch;
                if groups.len() > GROUPS_MAX {
                    return Err(format!("a pod has at most {GROUPS_MAX} security groups"));
                }
                texts.extend([token.as_str(), subnet, instance_type]);
                texts.extend(groups.iter().map(String::as_str));
                if !tags.iter().any(|(key, _)| key == POD_TAG) {
                    return Err(format!("the tag `{POD_TAG}` is missing"));
                }
                tags.as_slice()
            }
            Self::Instances { tags } => tags.as_slice(),
            Self::Terminate { instance: id } | Self::FreeAddresses { subnet: id } => {
                texts.push(id);
                &[]
            }
        };
        if tags.len() > TAGS_MAX {
            return Err(format!("a request has at most {TAGS_MAX} tags"));
        }
        texts.extend(tags.iter().flat_map(|(key, value)| [key.as_str(), value]));
        if texts.iter().any(|text| text.chars().count() > TEXT_CHARACTERS_MAX) {
            return Err(format!("a text has at most {TEXT_CHARACTERS_MAX} characters"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{HOST_BYTES_MAX, encode};

    fn launch() -> PodLaunch {
        let long = || "é".repeat(TEXT_CHARACTERS_MAX);
        let tag = |number: usize| (format!("key{number}"), String::new());
        PodLaunch {
            token: "x".repeat(64),
            subnet: "subnet-0123456789abcdef0".to_owned(),
            groups: vec!["sg-0123456789abcdef0".to_owned(); GROUPS_MAX],
            address: Some([10, 0, 1, 9].into()),
            ipv6: true,
            instance_type: "c7i.large".to_owned(),
            tags: [(POD_TAG.to_owned(), long()), ("Name".to_owned(), long())]
                .into_iter()
                .chain((2..TAGS_MAX).map(tag))
                .collect(),
        }
    }

    #[test]
    fn requests_outside_of_the_bounds_are_refused() {
        let check = |launch: PodLaunch| PodRequest::Launch(launch).check();
        check(launch()).unwrap();
        let good = launch();
        let with_tag = |key: &str, value: String| {
            let mut tags = good.tags.clone();
            tags[1] = (key.to_owned(), value);
            PodLaunch { tags, ..good.clone() }
        };
        for bad in [
            PodLaunch { groups: vec!["sg-1".to_owned(); GROUPS_MAX + 1], ..good.clone() },
            PodLaunch { tags: Vec::new(), ..good.clone() },
            PodLaunch { subnet: "x".repeat(TEXT_CHARACTERS_MAX + 1), ..good.clone() },
            with_tag("Name", "x".repeat(TEXT_CHARACTERS_MAX + 1)),
            PodLaunch { tags: [&good.tags[..], &good.tags[..1]].concat(), ..good.clone() },
        ] {
            check(bad).unwrap_err();
        }
        let long = "x".repeat(TEXT_CHARACTERS_MAX + 1);
        PodRequest::Terminate { instance: long.clone() }.check().unwrap_err();
        PodRequest::FreeAddresses { subnet: long.clone() }.check().unwrap_err();
        PodRequest::Instances { tags: vec![(long, String::new())] }.check().unwrap_err();
    }

    #[test]
    fn a_request_of_a_usual_size_fits_into_a_message_and_is_read_again() {
        let request = PodRequest::Launch(launch());
        // The message has two further members.
        encode(&request, HOST_BYTES_MAX - 100).unwrap();
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<PodRequest>(&text).unwrap(), request);
        let wrong = text.replace("\"ipv6\"", "\"ipv7\"");
        assert!(serde_json::from_str::<PodRequest>(&wrong).is_err());
    }
}

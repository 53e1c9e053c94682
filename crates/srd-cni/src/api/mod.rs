//! The client of the EC2 API: the few requests that the plugin needs.
//!
//! Each request may be sent twice: reads change nothing, a launch has a client token, and a
//! termination of a terminated instance changes nothing.
//!
//! | module | content |
//! |---|---|
//! | [`key`] | the access key |
//! | [`sign`], [`time`] | signed requests |
//! | [`http`] | requests over TCP and TLS |
//! | [`xml`] | answers |
//! | [`node`] | the same requests through the daemon of this machine |

pub mod http;
pub mod key;
pub mod node;
pub mod sign;
pub mod time;
pub mod xml;

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use srd_control::wire::form;

use crate::config::ApiAccess;
use crate::settings::Settings;
use key::Access;
use xml::Element;

/// Key of the tag of an instance that names its pod.
pub const POD: &str = srd_enrol::pod::POD_TAG;
/// Key of the tag with the name of the network of a pod.
pub const NETWORK: &str = "srd:cni-network";
/// Key of the tag with the name of the machine of a pod.
pub const NODE: &str = "srd:cni-node";
/// Key of the tag with the identifier of the container.
const CONTAINER: &str = "srd:cni-container";
/// Image of pods. A pod has no image of EC2, and the API needs the identifier of one.
const IMAGE: &str = "ami-00000000";
/// Version of the EC2 API.
const API_VERSION: &str = "2016-11-15";
/// Number of attempts of a request to which no answer comes.
pub const ATTEMPTS: u32 = 2;
/// Largest number of pages of an answer.
pub const PAGES_MAX: usize = 64;
/// Longest value of a tag, in characters: the limit of EC2.
const TAG_CHARS_MAX: usize = 256;

/// Reason why a request has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ApiError {
    /// The API gave no usable answer, so it is unknown whether the request had an effect.
    Silent(String),
    /// The daemon of this machine, which carries the packets of its pods, does not run, so the
    /// request had no effect.
    Down(String),
    /// The request cannot be sent, because a setting is wrong.
    Settings(String),
    /// The API refuses the request.
    Refused {
        /// Code of the error.
        code: String,
        /// Message of the API.
        message: String,
    },
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(what) | Self::Down(what) | Self::Settings(what) => f.write_str(what),
            Self::Refused { code, message } => write!(f, "{code}: {message}"),
        }
    }
}

/// A request to start the instance of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Name of the pod, as its announcement has it.
    pub pod: &'a str,
    /// Client token of the request.
    pub token: &'a str,
    /// Name of the network.
    pub network: &'a str,
    /// Name of this machine.
    pub node: &'a str,
    /// Identifier of the container.
    pub container: &'a str,
    /// Settings of the interface.
    pub settings: &'a Settings,
}

/// An instance that was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launched {
    /// Identifier of the instance.
    pub instance: String,
    /// Identifier of its interface.
    pub interface: String,
    /// Primary address of the interface.
    pub address: Ipv4Addr,
    /// MAC address of the interface.
    pub mac: String,
}

/// Condition of the instances that [`Cloud::instances`] returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Select<'a> {
    /// Instances of one pod.
    Pod(&'a str),
    /// Instances of all pods of one network on one machine. The first string is the name of the
    /// network, the second string is the name of the machine.
    Network(&'a str, &'a str),
}

impl<'a> Select<'a> {
    /// The tags of such instances.
    fn tags(self) -> Vec<(&'static str, &'a str)> {
        match self {
            Self::Pod(pod) => vec![(POD, pod)],
            Self::Network(network, node) => vec![(NETWORK, network), (NODE, node)],
        }
    }
}

/// The cloud, as far as the plugin needs it.
pub trait Cloud {
    /// Starts the instance of a pod.
    ///
    /// # Errors
    /// The request has failed.
    fn launch(&self, launch: &Launch<'_>) -> Result<Launched, ApiError>;

    /// Terminates an instance with its interface. A missing instance is no error.
    ///
    /// # Errors
    /// The request has failed.
    fn terminate(&self, instance: &str) -> Result<(), ApiError>;

    /// Returns instances that are not terminated, each with the name of its pod.
    ///
    /// # Errors
    /// The request has failed.
    fn instances(&self, select: Select<'_>) -> Result<Vec<(String, String)>, ApiError>;

    /// Returns the number of free addresses of a subnet.
    ///
    /// # Errors
    /// The request has failed.
    fn free_addresses(&self, subnet: &str) -> Result<u64, ApiError>;
}

/// A client of the EC2 API.
#[derive(Clone, Debug)]
pub struct Client {
    key_file: PathBuf,
    ca_file: Option<PathBuf>,
    endpoint: Option<String>,
    region: Option<String>,
}

/// Parameters of a request.
type Parameters = Vec<(String, String)>;

impl Client {
    /// A client with the settings of a configuration. The file of the access key is read for each
    /// request.
    pub fn new(access: ApiAccess) -> Self {
        let ApiAccess { endpoint, region, key_file, ca_file } = access;
        Self { key_file, ca_file, endpoint, region }
    }

    fn call(&self, action: &str, parameters: &[(String, String)]) -> Result<Element, ApiError> {
        let access = Access::read(&self.key_file).map_err(ApiError::Settings)?;
        let shown = self.key_file.display();
        let need = |own: &Option<String>, of_key: &Option<String>, name: &str, variable: &str| {
            let value = own.clone().or_else(|| of_key.clone());
            value.ok_or_else(|| {
                let what = format!("no {name}: set it in the configuration, or {variable} in");
                ApiError::Settings(format!("{what} {shown}"))
            })
        };
        let url = need(&self.endpoint, &access.endpoint, "endpoint", "AWS_ENDPOINT_URL")?;
        let region = need(&self.region, &access.region, "region", "AWS_DEFAULT_REGION")?;
        let endpoint = http::Endpoint::parse(&url, self.ca_file.as_deref());
        let endpoint = endpoint.map_err(ApiError::Settings)?;
        let mut body = format!("Action={action}&Version={API_VERSION}");
        for (name, value) in parameters {
            body.push_str(&format!("&{name}={}", form::encode(value)));
        }
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let now = time::now();
            let signed = sign::headers(&access, &region, &endpoint.host, body.as_bytes(), &now);
            let signed = signed.map_err(ApiError::Settings)?;
            match endpoint.post(&signed, body.as_bytes()) {
                Ok(http::Answer { status, body }) if status < 500 => {
                    return answer(action, status, &body);
                }
                Ok(http::Answer { status, .. }) => last = format!("status {status}"),
                Err(error) => last = error,
            }
        }
        Err(ApiError::Silent(format!("the EC2 API at {url} gives no answer: {last}")))
    }
}

/// Returns the root of an answer, or the error that the answer contains.
fn answer(action: &str, status: u16, body: &[u8]) -> Result<Element, ApiError> {
    let wrong = |what: &str| ApiError::Silent(format!("the answer to {action} {what}"));
    let text = std::str::from_utf8(body).map_err(|_| wrong("is no text"))?;
    let root = xml::parse(text).map_err(|what| wrong(&format!("(status {status}): {what}")))?;
    if status == 200 {
        return Ok(root);
    }
    match root.at(&["Errors", "Error"]) {
        Some(error) => Err(ApiError::Refused {
            code: error.text_at(&["Code"]).unwrap_or_default().to_owned(),
            message: error.text_at(&["Message"]).unwrap_or_default().to_owned(),
        }),
        None => Err(wrong(&format!("has the status {status} and names no error"))),
    }
}

fn add(parameters: &mut Parameters, name: impl Into<String>, value: impl Into<String>) {
    parameters.push((name.into(), value.into()));
}

/// Returns the tags of the instance of a pod and of its interface.
fn tags(launch: &Launch<'_>) -> [(&'static str, String); 5] {
    let Launch { pod, network, node, container, settings, .. } = *launch;
    let name = settings.name.as_deref().unwrap_or(container);
    let tags =
        [("Name", name), (POD, pod), (NETWORK, network), (NODE, node), (CONTAINER, container)];
    tags.map(|(key, value)| (key, value.chars().take(TAG_CHARS_MAX).collect()))
}

/// Returns the parameters of `RunInstances`.
fn launch_parameters(launch: &Launch<'_>) -> Parameters {
    let Launch { token, settings, .. } = *launch;
    let mut all = Parameters::new();
    let fixed = [("MinCount", "1"), ("MaxCount", "1"), ("ImageId", IMAGE), ("ClientToken", token)];
    fixed.into_iter().for_each(|(name, value)| add(&mut all, name, value));
    add(&mut all, "InstanceType", &settings.instance_type);
    let device = |name: &str| format!("NetworkInterface.1.{name}");
    let fixed = [("DeviceIndex", "0"), ("DeleteOnTermination", "true")];
    fixed.into_iter().for_each(|(name, value)| add(&mut all, device(name), value));
    add(&mut all, device("SubnetId"), &settings.subnet);
    for (group, number) in settings.groups.iter().zip(1..) {
        add(&mut all, device(&format!("SecurityGroupId.{number}")), group);
    }
    if let Some(address) = settings.address {
        add(&mut all, device("PrivateIpAddress"), address.to_string());
    }
    if settings.ipv6 {
        add(&mut all, device("Ipv6AddressCount"), "1");
    }
    let tags = tags(launch);
    for (kind, at) in ["instance", "network-interface"].into_iter().zip(1..) {
        let of = format!("TagSpecification.{at}");
        add(&mut all, format!("{of}.ResourceType"), kind);
        for ((key, value), number) in tags.iter().zip(1..) {
            add(&mut all, format!("{of}.Tag.{number}.Key"), *key);
            add(&mut all, format!("{of}.Tag.{number}.Value"), value);
        }
    }
    all
}

fn launched(root: &Element) -> Option<Launched> {
    let instance = root.at(&["instancesSet", "item"])?;
    let interface = instance.at(&["networkInterfaceSet", "item"])?;
    Some(Launched {
        instance: instance.text_at(&["instanceId"])?.to_owned(),
        interface: interface.text_at(&["networkInterfaceId"])?.to_owned(),
        address: interface.text_at(&["privateIpAddress"])?.parse().ok()?,
        mac: interface.text_at(&["macAddress"])?.to_owned(),
    })
}

/// Returns the instances of an answer to `DescribeInstances`, each with the name of its pod.
fn described(root: &Element) -> Vec<(String, String)> {
    let reservations = root.all(&["reservationSet", "item"]).into_iter();
    let instances = reservations.flat_map(|of| of.all(&["instancesSet", "item"]));
    let pod = |instance: &Element| {
        let tags = instance.all(&["tagSet", "item"]);
        let tag = tags.into_iter().find(|tag| tag.text_at(&["key"]) == Some(POD));
        tag.and_then(|tag| tag.text_at(&["value"])).unwrap_or_default().to_owned()
    };
    let id = |of: &Element| of.text_at(&["instanceId"]).map(str::to_owned);
    instances.filter_map(|of| Some((id(of)?, pod(of)))).collect()
}

impl Cloud for Client {
    fn launch(&self, launch: &Launch<'_>) -> Result<Launched, ApiError> {
        let root = self.call("RunInstances", &launch_parameters(launch))?;
        let missing = "the answer to RunInstances names no instance with an interface";
        launched(&root).ok_or_else(|| ApiError::Silent(missing.to_owned()))
    }

    fn terminate(&self, instance: &str) -> Result<(), ApiError> {
        let parameters = vec![("InstanceId.1".to_owned(), instance.to_owned())];
        match self.call("TerminateInstances", &parameters) {
            Err(ApiError::Refused { code, .. }) if code == "InvalidInstanceID.NotFound" => Ok(()),
            result => result.map(drop),
        }
    }

    fn instances(&self, select: Select<'_>) -> Result<Vec<(String, String)>, ApiError> {
        let filters = select.tags();
        let (mut parameters, count) = (Parameters::new(), filters.len());
        for ((key, value), number) in filters.into_iter().zip(1..) {
            add(&mut parameters, format!("Filter.{number}.Name"), format!("tag:{key}"));
            // The three characters have a meaning in filters.
            let value = value.replace('\\', "\\\\").replace('*', "\\*").replace('?', "\\?");
            add(&mut parameters, format!("Filter.{number}.Value.1"), value);
        }
        let state = format!("Filter.{}", count + 1);
        add(&mut parameters, format!("{state}.Name"), "instance-state-name");
        for (name, number) in ["pending", "running", "stopping", "stopped"].into_iter().zip(1..) {
            add(&mut parameters, format!("{state}.Value.{number}"), name);
        }
        let (mut all, count) = (Vec::new(), parameters.len());
        for _ in 0..PAGES_MAX {
            let root = self.call("DescribeInstances", &parameters)?;
            all.extend(described(&root));
            let Some(next) = root.text_at(&["nextToken"]).filter(|next| !next.is_empty()) else {
                return Ok(all);
            };
            parameters.truncate(count);
            add(&mut parameters, "NextToken", next);
        }
        Err(ApiError::Silent(format!("the answer has more than {PAGES_MAX} pages")))
    }

    fn free_addresses(&self, subnet: &str) -> Result<u64, ApiError> {
        let parameters = vec![("SubnetId.1".to_owned(), subnet.to_owned())];
        let root = self.call("DescribeSubnets", &parameters)?;
        let path = ["subnetSet", "item", "availableIpAddressCount"];
        let count = root.text_at(&path).and_then(|count| count.parse().ok());
        count.ok_or_else(|| ApiError::Silent("the answer names no free addresses".to_owned()))
    }
}

#[cfg(test)]
mod tests;

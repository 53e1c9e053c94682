//! The network configuration of a request, which is JSON (specification, *Network configuration*).

use std::fmt;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::environment::{Attachment, Command};
use crate::error::{Code, Failure};

/// Largest size of a network configuration in bytes. The list of attachments of a `GC` request is
/// a part of it.
pub const INPUT_BYTES_MAX: u64 = 4 << 20;
/// Supported versions of the specification, the oldest first.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Instance type of pods, unless the configuration names another.
pub const TYPE_DEFAULT: &str = "c7i.large";
/// Directory of the records, unless the configuration names another.
pub const STATE_DEFAULT: &str = "/var/lib/srd-cni";
/// Address of the resolver of every VPC.
const RESOLVER: &str = "169.254.169.253";
/// Key with which containerd passes the annotations of a pod, if the configuration has this
/// capability.
pub const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";
/// Longest value of a key in an error message, in characters.
const SHOWN_MAX: usize = 80;
/// Prefix of the keys that a runtime generates for a request.
const GENERATED: &str = "cni.dev/";
/// Keys with the valid attachments of a `GC` request. The second key is the one that the
/// specification named first; libcni from version 1.2.3 on sends both.
const VALID: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// Keys of the specification, and those of the plugin.
const KEYS: [&str; 24] = [
    "cniVersion",
    "cniVersions",
    "name",
    "type",
    "args",
    "ipMasq",
    "ipam",
    "dns",
    "capabilities",
    "runtimeConfig",
    "prevResult",
    "disableCheck",
    "disableGC",
    "node",
    "endpoint",
    "region",
    "keyFile",
    "caFile",
    "subnet",
    "securityGroups",
    "instanceType",
    "ipv6",
    "defaultRoute",
    "stateDir",
];

/// A supported version of the specification.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(usize);

impl Version {
    /// Whether the version is this one or later.
    pub fn is_at_least(self, version: &str) -> bool {
        VERSIONS.iter().position(|of| *of == version).is_some_and(|at| self.0 >= at)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSIONS.get(self.0).copied().unwrap_or_default())
    }
}

/// The way to the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// Through the daemon `srd up` of this machine, which has enrolled at the control plane: the
    /// path of its control socket.
    Node(PathBuf),
    /// By the EC2 API.
    Api(ApiAccess),
}

/// Settings of requests to the EC2 API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiAccess {
    /// Address of the EC2 API; `None`: the one of the key file.
    pub endpoint: Option<String>,
    /// Region of the subnet; `None`: the one of the key file.
    pub region: Option<String>,
    /// File with the access key.
    pub key_file: PathBuf,
    /// File with the certificates that the server of an `https` endpoint may have, or their
    /// issuers, in PEM.
    pub ca_file: Option<PathBuf>,
}

/// A network configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Version of the configuration and of the result.
    pub version: Version,
    /// Name of the network.
    pub name: String,
    /// The way to the control plane.
    pub access: Access,
    /// Subnet of the interfaces.
    pub subnet: Option<String>,
    /// Security groups of the interfaces; if empty, the default group of the VPC.
    pub groups: Vec<String>,
    /// Instance type of the pods, which determines their limits.
    pub instance_type: String,
    /// Whether an interface also gets an IPv6 address.
    pub ipv6: bool,
    /// Whether the default routes of a pod lead to the interface.
    pub default_route: bool,
    /// DNS settings of the result.
    pub dns: Value,
    /// Directory of the records.
    pub state_directory: PathBuf,
    /// Settings of the runtime for one request.
    pub runtime: Map<String, Value>,
    /// Result of `ADD`, if the runtime passes it.
    pub previous: Option<Value>,
    /// Attachments that the runtime still has, for `GC`.
    pub valid: Option<Vec<Attachment>>,
}

/// Returns the version that a configuration names, for an answer; the latest version if the
/// configuration names none.
pub fn version_of(text: &[u8]) -> String {
    let value: Value = serde_json::from_slice(text).unwrap_or_default();
    let latest = VERSIONS[VERSIONS.len() - 1];
    value["cniVersion"].as_str().unwrap_or(latest).to_owned()
}

fn wrong(what: impl Into<String>) -> Failure {
    Failure::new(Code::Config, what)
}

fn unsupported(key: &str, value: &Value, why: &str) -> Failure {
    let shown: String = value.to_string().chars().take(SHOWN_MAX).collect();
    let message = format!("the key `{key}` with the value {shown} is not supported: {why}");
    Failure::new(Code::UnsupportedField, message)
}

/// Access to the keys of a configuration, with errors that name the key.
struct Keys(Map<String, Value>);

impl Keys {
    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key).filter(|value| !value.is_null())
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, Failure> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(wrong(format!("`{key}` has to be a text that is not empty"))),
        }
    }

    fn path(&mut self, key: &str) -> Result<Option<PathBuf>, Failure> {
        match self.text(key)?.map(PathBuf::from) {
            Some(path) if path.is_relative() => {
                Err(wrong(format!("`{key}` has to be an absolute path")))
            }
            path => Ok(path),
        }
    }

    fn flag(&mut self, key: &str, default: bool) -> Result<bool, Failure> {
        match self.take(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(wrong(format!("`{key}` has to be true or false"))),
        }
    }

    fn texts(&mut self, key: &str) -> Result<Vec<String>, Failure> {
        let failed = || wrong(format!("`{key}` has to be a list of texts"));
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(failed)?;
        let texts = list.iter().map(|of| of.as_str().map(str::to_owned));
        texts.collect::<Option<_>>().ok_or_else(failed)
    }

    fn object(&mut self, key: &str) -> Result<Option<Map<String, Value>>, Failure> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(_) => Err(wrong(format!("`{key}` has to be an object"))),
        }
    }
}

/// Reads the keys that describe the way to the control plane.
fn access(keys: &mut Keys) -> Result<Access, Failure> {
    let node = keys.path("node")?;
    let key_file = keys.path("keyFile")?;
    let api = [("endpoint", keys.text("endpoint")?), ("region", keys.text("region")?)];
    let ca_file = keys.path("caFile")?;
    match (node, key_file) {
        (Some(socket), None) => {
            let of_api = api.iter().find(|(_, value)| value.is_some()).map(|(key, _)| *key);
            match of_api.or(ca_file.map(|_| "caFile")) {
                Some(key) => Err(wrong(format!("`{key}` has no use beside `node`: remove it"))),
                None => Ok(Access::Node(socket)),
            }
        }
        (None, Some(key_file)) => {
            let [(_, endpoint), (_, region)] = api;
            Ok(Access::Api(ApiAccess { endpoint, region, key_file, ca_file }))
        }
        (Some(_), Some(_)) => {
            let what = "`node` and `keyFile` are two ways to the control plane: remove one";
            Err(wrong(what))
        }
        (None, None) => {
            let what = "the key `node` or `keyFile` is missing: the control socket of `srd up`, or \
                        the file of an access key";
            Err(wrong(what))
        }
    }
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// With [`Code::Decode`] if the text is no JSON object, [`Code::Version`] if its version is not
    /// supported, [`Code::UnsupportedField`] for an unknown key, and [`Code::Config`] for a wrong
    /// value.
    pub fn parse(text: &[u8]) -> Result<Self, Failure> {
        if u64::try_from(text.len()).is_ok_and(|length| length > INPUT_BYTES_MAX) {
            let message = format!("the configuration has more than {INPUT_BYTES_MAX} bytes");
            return Err(Failure::new(Code::Decode, message));
        }
        let value: Value = serde_json::from_slice(text).map_err(|error| {
            Failure::new(Code::Decode, format!("the configuration is no JSON: {error}"))
        })?;
        let Value::Object(keys) = value else {
            return Err(Failure::new(Code::Decode, "the configuration is no JSON object"));
        };
        let version = version(keys.get("cniVersion"))?;
        let is_known = |key: &str| KEYS.contains(&key) || key.starts_with(GENERATED);
        if let Some((key, value)) = keys.iter().find(|(key, _)| !is_known(key)) {
            let why = "remove it, or correct its name; docs/cni.md lists the keys";
            return Err(unsupported(key, value, why));
        }
        Self::of(version, Keys(keys))
    }

    /// Checks that the version of the configuration has a command.
    ///
    /// # Errors
    /// With [`Code::Version`], if the version is older than the command.
    pub fn check(&self, command: &Command) -> Result<(), Failure> {
        let since = match command {
            Command::Status | Command::Gc => "1.1.0",
            Command::Check(..) => "0.4.0",
            _ => return Ok(()),
        };
        if self.version.is_at_least(since) {
            return Ok(());
        }
        let message = format!("this command needs a cniVersion of {since} or later");
        Err(Failure::new(Code::Version, message))
    }

    fn of(version: Version, mut keys: Keys) -> Result<Self, Failure> {
        if let Some(ipam) = keys.object("ipam")?.filter(|ipam| !ipam.is_empty()) {
            let why = "the subnet gives addresses; remove it";
            return Err(unsupported("ipam", &Value::Object(ipam), why));
        }
        if keys.flag("ipMasq", false)? {
            let why = "the VPC has NAT gateways; remove it";
            return Err(unsupported("ipMasq", &Value::Bool(true), why));
        }
        let missing = |key: &str| wrong(format!("the key `{key}` is missing"));
        let name = keys.text("name")?.ok_or_else(|| missing("name"))?;
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
        if !name.bytes().all(is_word) || name.len() > 128 {
            let form = "up to 128 letters, digits, '_', '.' and '-'";
            return Err(wrong(format!("the name of a network cannot be {name:?}: {form}")));
        }
        let dns = keys.object("dns")?.map(Value::Object);
        let valid =
            VALID.into_iter().find_map(|key| keys.take(key).map(|of| attachments(key, &of)));
        Ok(Self {
            version,
            name,
            access: access(&mut keys)?,
            subnet: keys.text("subnet")?,
            groups: keys.texts("securityGroups")?,
            instance_type: keys.text("instanceType")?.unwrap_or_else(|| TYPE_DEFAULT.to_owned()),
            ipv6: keys.flag("ipv6", false)?,
            default_route: keys.flag("defaultRoute", true)?,
            dns: dns.unwrap_or_else(|| json!({"nameservers": [RESOLVER]})),
            state_directory: keys.path("stateDir")?.unwrap_or_else(|| STATE_DEFAULT.into()),
            runtime: keys.object("runtimeConfig")?.unwrap_or_default(),
            previous: keys.take("prevResult"),
            valid: valid.transpose()?,
        })
    }
}

fn version(named: Option<&Value>) -> Result<Version, Failure> {
    let found = named.and_then(Value::as_str);
    let at = found.and_then(|text| VERSIONS.iter().position(|version| *version == text));
    at.map(Version).ok_or_else(|| {
        let named = named.map_or_else(|| "missing".to_owned(), Value::to_string);
        let supported = VERSIONS.join(", ");
        let message = format!("cniVersion is {named}; the plugin supports {supported}");
        Failure::new(Code::Version, message)
    })
}

fn attachments(key: &str, list: &Value) -> Result<Vec<Attachment>, Failure> {
    let failed = || wrong(format!("`{key}` has to be a list of attachments"));
    let one = |of: &Value| {
        let text = |key: &str| of[key].as_str().map(str::to_owned);
        Some(Attachment { container: text("containerID")?, ifname: text("ifname")? })
    };
    let list = list.as_array().ok_or_else(failed)?;
    list.iter().map(one).collect::<Option<_>>().ok_or_else(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(more: &Value) -> Vec<u8> {
        let mut value = json!({"cniVersion": "1.1.0", "name": "cloud", "type": "srd-cni",
                               "keyFile": "/etc/srd/cni.env", "subnet": "subnet-1"});
        for (key, of) in more.as_object().unwrap() {
            value[key] = of.clone();
        }
        value.to_string().into_bytes()
    }

    fn failure(more: &Value) -> Failure {
        Config::parse(&with(more)).unwrap_err()
    }

    #[test]
    fn a_short_configuration_has_defaults() {
        let config = Config::parse(&with(&json!({}))).unwrap();
        assert_eq!((config.name.as_str(), config.subnet.as_deref()), ("cloud", Some("subnet-1")));
        assert_eq!(config.instance_type, "c7i.large");
        assert!(config.default_route && !config.ipv6 && config.groups.is_empty());
        assert_eq!(config.dns, json!({"nameservers": ["169.254.169.253"]}));
        assert_eq!(config.state_directory, PathBuf::from("/var/lib/srd-cni"));
        let own = json!({"dns": {}, "ipam": {}, "ipMasq": false});
        assert_eq!(Config::parse(&with(&own)).unwrap().dns, json!({}));
    }

    #[test]
    fn each_fault_has_the_code_of_the_specification() {
        let code = |text: &[u8]| Config::parse(text).unwrap_err().code;
        for text in [&b""[..], b"{", b"[]", b"7", b"\xff"] {
            assert_eq!(code(text), Code::Decode, "{text:?}");
        }
        let long = vec![b' '; usize::try_from(INPUT_BYTES_MAX).unwrap() + 1];
        assert_eq!(code(&long), Code::Decode);
        for version in [json!("9.9.9"), json!(null), json!(1), json!("0.2.0")] {
            let failure = failure(&json!({"cniVersion": version}));
            assert_eq!(failure.code, Code::Version);
            assert!(failure.message.contains("1.0.0, 1.1.0"), "{failure:?}");
        }
        for (key, value) in [
            ("subnets", json!("subnet-1")),
            ("ipam", json!({"type": "host-local"})),
            ("ipMasq", json!(true)),
        ] {
            let failure = failure(&json!({ key: value }));
            assert_eq!(failure.code, Code::UnsupportedField);
            let has = |text: &str| failure.message.contains(text);
            assert!(has(key) && has(&value.to_string()), "{failure:?}");
        }
        for (key, value) in [
            ("name", json!(null)),
            ("name", json!("a/b")),
            ("name", json!("")),
            ("name", json!("x".repeat(129))),
            ("keyFile", json!(null)),
            ("keyFile", json!("cni.env")),
            ("node", json!("/run/srd0.sock")),
            ("subnet", json!(7)),
            ("securityGroups", json!("sg-1")),
            ("securityGroups", json!([1])),
            ("ipv6", json!("yes")),
            ("dns", json!([])),
            ("runtimeConfig", json!([])),
            ("cni.dev/valid-attachments", json!([{"containerID": "a"}])),
        ] {
            assert_eq!(failure(&json!({ key: value })).code, Code::Config, "{key}");
        }
    }

    /// libcni sends the valid attachments under two keys, of which one was refused, so that each
    /// `GC` request of a runtime failed.
    #[test]
    fn regression_a_gc_request_of_libcni_names_the_attachments_twice() {
        let list = json!([{"containerID": "a", "ifname": "eth0"}]);
        let valid = Some(vec![Attachment { container: "a".into(), ifname: "eth0".into() }]);
        let [now, earlier] = VALID;
        for keys in
            [json!({ now: list }), json!({ earlier: list }), json!({now: list, earlier: list})]
        {
            assert_eq!(Config::parse(&with(&keys)).unwrap().valid, valid, "{keys}");
        }
        // A runtime without a list sends null, and a later version may send further keys.
        for keys in [json!({now: null, earlier: null}), json!({"cni.dev/later": 7})] {
            assert_eq!(Config::parse(&with(&keys)).unwrap().valid, None, "{keys}");
        }
        assert!(failure(&json!({ earlier: 7 })).message.contains(earlier));
    }

    #[test]
    fn a_node_needs_no_key_and_has_no_settings_of_the_api() {
        let node = json!({"node": "/run/srd0.sock", "keyFile": null});
        let config = Config::parse(&with(&node)).unwrap();
        assert_eq!(config.access, Access::Node("/run/srd0.sock".into()));
        for (key, value) in [
            ("node", json!("srd0.sock")),
            ("endpoint", json!("http://127.0.0.1:1")),
            ("region", json!("us-east-1")),
            ("caFile", json!("/ca.pem")),
        ] {
            let mut wrong = node.clone();
            wrong[key] = value;
            let failure = failure(&wrong);
            assert!(failure.code == Code::Config && failure.message.contains(key), "{failure:?}");
        }
    }

    #[test]
    fn versions_are_ordered() {
        let version = |text: &str| version(Some(&json!(text))).unwrap();
        assert!(version("1.1.0").is_at_least("0.4.0") && version("0.4.0").is_at_least("0.4.0"));
        assert!(!version("0.3.1").is_at_least("0.4.0") && !version("1.0.0").is_at_least("1.1.0"));
        assert_eq!(version("0.3.1").to_string(), "0.3.1");
        assert_eq!(version_of(b"{\"cniVersion\":\"0.4.0\"}"), "0.4.0");
        assert_eq!(version_of(b"{"), "1.1.0");
    }
}

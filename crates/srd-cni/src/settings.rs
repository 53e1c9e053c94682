//! Settings of one pod. The configuration has the defaults of the network. Annotations of the pod
//! replace them if the administrator lets the runtime pass annotations, and `CNI_ARGS` and the
//! addresses of the runtime replace both.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Map, Value};

use crate::config::{ANNOTATIONS, Config};
use crate::environment::Environment;
use crate::error::{Code, Failure};

/// Prefix of the annotations that the plugin uses.
pub const PREFIX: &str = "srd-cni/";
/// Largest number of security groups of an interface: the limit of EC2.
pub const GROUPS_MAX: usize = 16;
/// Capabilities that the plugin uses.
const CAPABILITIES: [&str; 2] = ["ips", ANNOTATIONS];

/// Settings of the interface of one pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Subnet of the interface.
    pub subnet: String,
    /// Security groups of the interface; if empty, the default group of the VPC.
    pub groups: Vec<String>,
    /// Primary IPv4 address; `None`: a free address of the subnet.
    pub address: Option<Ipv4Addr>,
    /// Instance type of the pod.
    pub instance_type: String,
    /// Whether the interface also gets an IPv6 address.
    pub ipv6: bool,
    /// Name of the pod, for people; `None` if the runtime passes no name.
    pub name: Option<String>,
}

impl Settings {
    /// Returns the settings of a request.
    ///
    /// # Errors
    /// With [`Code::Config`], if no source names a subnet, or a value is wrong; with
    /// [`Code::UnsupportedField`], if the runtime passes a capability that the plugin does not use.
    pub fn of(config: &Config, environment: &Environment) -> Result<Self, Failure> {
        check_capabilities(&config.runtime)?;
        let annotations = annotations(config.runtime.get(ANNOTATIONS))?;
        let setting = |annotation: &str, arg: &str| {
            let of_pod = annotations.get(annotation);
            environment.args.get(arg).or(of_pod).filter(|value| !value.is_empty()).cloned()
        };
        let subnet = setting("subnet", "SRD_SUBNET").or_else(|| config.subnet.clone());
        let subnet = subnet.ok_or_else(|| {
            wrong("no subnet: set \"subnet\" in the configuration, or SRD_SUBNET in CNI_ARGS")
        })?;
        let groups = match setting("security-groups", "SRD_SECURITY_GROUPS") {
            Some(list) => list.split(',').map(|group| group.trim().to_owned()).collect(),
            None => config.groups.clone(),
        };
        if groups.len() > GROUPS_MAX {
            return Err(wrong(format!("an interface has at most {GROUPS_MAX} security groups")));
        }
        let address = match runtime_address(config.runtime.get("ips"))? {
            Some(address) => Some(address),
            None => match setting("address", "SRD_ADDRESS") {
                Some(text) => Some(ipv4(&text)?),
                None => None,
            },
        };
        let instance_type = setting("instance-type", "SRD_INSTANCE_TYPE");
        Ok(Self {
            subnet,
            groups,
            address,
            instance_type: instance_type.unwrap_or_else(|| config.instance_type.clone()),
            ipv6: config.ipv6,
            name: environment.args.get("K8S_POD_NAME").cloned(),
        })
    }
}

fn wrong(what: impl Into<String>) -> Failure {
    Failure::new(Code::Config, what)
}

/// Refuses a capability whose value would have no effect. An empty value is no request.
fn check_capabilities(passed: &Map<String, Value>) -> Result<(), Failure> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(keys) => keys.is_empty(),
        _ => false,
    };
    let is_used = |key: &str| CAPABILITIES.contains(&key);
    match passed.iter().find(|(key, value)| !is_used(key) && !is_empty(value)) {
        Some((key, _)) => {
            let what = format!("the capability `{key}` is not supported: remove it");
            Err(Failure::new(Code::UnsupportedField, what))
        }
        None => Ok(()),
    }
}

/// Returns the annotations of a pod that are for the plugin, without their prefix.
fn annotations(passed: Option<&Value>) -> Result<BTreeMap<String, String>, Failure> {
    let mut own = BTreeMap::new();
    for (key, value) in passed.and_then(Value::as_object).into_iter().flatten() {
        let (Some(key), Some(value)) = (key.strip_prefix(PREFIX), value.as_str()) else { continue };
        if !["subnet", "security-groups", "address", "instance-type"].contains(&key) {
            let keys = "subnet, security-groups, address and instance-type";
            return Err(wrong(format!(
                "there is no annotation {PREFIX}{key}; the annotations are {PREFIX}..., with {keys}"
            )));
        }
        own.insert(key.to_owned(), value.to_owned());
    }
    Ok(own)
}

/// Returns the address of the capability `ips`, which may have the length of its subnet.
fn runtime_address(ips: Option<&Value>) -> Result<Option<Ipv4Addr>, Failure> {
    let Some(list) = ips.and_then(Value::as_array).filter(|list| !list.is_empty()) else {
        return Ok(None);
    };
    match &list[..] {
        [Value::String(text)] => {
            let address = text.split('/').next().unwrap_or_default();
            ipv4(address).map(Some)
        }
        _ => Err(wrong("the capability \"ips\" has to name one IPv4 address")),
    }
}

fn ipv4(text: &str) -> Result<Ipv4Addr, Failure> {
    text.parse().map_err(|_| wrong(format!("{text:?} is no IPv4 address")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings(config: &Value, args: &str) -> Result<Settings, Failure> {
        let mut value = json!({"cniVersion": "1.1.0", "name": "cloud", "type": "srd-cni",
                               "keyFile": "/k"});
        for (key, of) in config.as_object().unwrap() {
            value[key] = of.clone();
        }
        let config = Config::parse(value.to_string().as_bytes()).unwrap();
        let variable = |name: &str| match name {
            "CNI_COMMAND" => Some("STATUS".to_owned()),
            "CNI_ARGS" => Some(args.to_owned()),
            _ => None,
        };
        Settings::of(&config, &Environment::read(&variable).unwrap())
    }

    #[test]
    fn args_come_before_annotations_and_annotations_before_the_configuration() {
        let annotations = json!({ ANNOTATIONS: {
            "srd-cni/subnet": "subnet-b", "srd-cni/security-groups": "sg-1, sg-2", "other/x": "y",
        }});
        let config = json!({"subnet": "subnet-a", "securityGroups": ["sg-0"],
                            "instanceType": "c7i.xlarge", "runtimeConfig": annotations});
        let found = settings(&config, "").unwrap();
        assert_eq!((found.subnet.as_str(), found.groups.len()), ("subnet-b", 2));
        assert_eq!(
            (found.groups[1].as_str(), found.instance_type.as_str()),
            ("sg-2", "c7i.xlarge")
        );
        let found = settings(&config, "SRD_SUBNET=subnet-c;SRD_ADDRESS=10.0.1.9").unwrap();
        assert_eq!(found.subnet, "subnet-c");
        assert_eq!(found.address, Some(Ipv4Addr::new(10, 0, 1, 9)));
        let ips = json!({"subnet": "subnet-a", "runtimeConfig": {"ips": ["10.0.1.7/24"]}});
        let found = settings(&ips, "SRD_ADDRESS=10.0.1.9;K8S_POD_NAME=web").unwrap();
        assert_eq!(found.address, Some(Ipv4Addr::new(10, 0, 1, 7)));
        assert_eq!(found.name.as_deref(), Some("web"));
    }

    #[test]
    fn a_capability_without_effect_is_refused() {
        let with = |runtime: Value| json!({"subnet": "subnet-a", "runtimeConfig": runtime});
        for empty in [json!(null), json!([]), json!({})] {
            settings(&with(json!({ "portMappings": empty })), "").unwrap();
        }
        for (key, value) in
            [("portMappings", json!([{"hostPort": 80}])), ("mac", json!("0a:00:00:00:00:01"))]
        {
            let failure = settings(&with(json!({ key: value })), "").unwrap_err();
            assert_eq!(failure.code, Code::UnsupportedField);
            assert!(failure.message.contains(key), "{failure:?}");
        }
    }

    #[test]
    fn wrong_settings_are_named() {
        let message = |config: &Value, args: &str| {
            let failure = settings(config, args).unwrap_err();
            assert_eq!(failure.code, Code::Config);
            failure.message
        };
        assert!(message(&json!({}), "").contains("no subnet"));
        let subnet = json!({"subnet": "subnet-a"});
        assert!(message(&subnet, "SRD_ADDRESS=ten").contains("\"ten\" is no IPv4 address"));
        let groups =
            |count: usize| format!("SRD_SECURITY_GROUPS={}", vec!["sg-1"; count].join(","));
        assert_eq!(settings(&subnet, &groups(GROUPS_MAX)).unwrap().groups.len(), GROUPS_MAX);
        assert!(message(&subnet, &groups(GROUPS_MAX + 1)).contains("at most 16"));
        let with = |runtime: Value| json!({"subnet": "subnet-a", "runtimeConfig": runtime});
        let many = with(json!({"ips": ["10.0.1.7/24", "10.0.1.8/24"]}));
        assert!(message(&many, "").contains("one IPv4 address"));
        let unknown = with(json!({ ANNOTATIONS: {"srd-cni/subnets": "x"} }));
        assert!(message(&unknown, "").contains("no annotation srd-cni/subnets"));
    }
}

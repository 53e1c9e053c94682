//! The variables of the environment of a request (specification, *Parameters*).

use std::collections::BTreeMap;
use std::path::PathBuf;

use srd_guest::pods::is_device;

use crate::error::{Code, Failure};

/// Longest identifier of a container, in bytes.
pub const CONTAINER_BYTES_MAX: usize = 256;
/// Largest size of `CNI_ARGS` in bytes.
pub const ARGS_BYTES_MAX: usize = 16 << 10;
/// Keys of `CNI_ARGS` that the plugin uses.
const OWN: [&str; 4] = ["SRD_SUBNET", "SRD_SECURITY_GROUPS", "SRD_ADDRESS", "SRD_INSTANCE_TYPE"];

/// A command of the specification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Attach a container, with the path of its network namespace.
    Add(Attachment, PathBuf),
    /// Detach a container, whose namespace may be gone.
    Del(Attachment),
    /// Check the attachment of a container, with the path of its network namespace.
    Check(Attachment, PathBuf),
    /// Report whether `ADD` would succeed.
    Status,
    /// Remove attachments that the runtime does not have any more.
    Gc,
    /// Report the supported versions.
    Version,
}

/// A container and the name of its interface.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Attachment {
    /// Identifier of the container.
    pub container: String,
    /// Name of the interface in the container.
    pub ifname: String,
}

/// The variables of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Environment {
    /// The command.
    pub command: Command,
    /// Entries of `CNI_ARGS`.
    pub args: BTreeMap<String, String>,
}

fn wrong(what: impl Into<String>) -> Failure {
    Failure::new(Code::Environment, what)
}

impl Environment {
    /// Reads the variables of a request.
    ///
    /// # Errors
    /// A variable that the command needs is missing, or has a value that it cannot have.
    pub fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let need = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.ok_or_else(|| wrong(format!("the environment variable {name} is missing")))
        };
        let name = need("CNI_COMMAND")?;
        let attachment = || Attachment::new(need("CNI_CONTAINERID")?, need("CNI_IFNAME")?);
        let netns = || need("CNI_NETNS").map(PathBuf::from);
        let command = match name.as_str() {
            "ADD" => Command::Add(attachment()?, absolute(netns()?)?),
            "DEL" => Command::Del(attachment()?),
            "CHECK" => Command::Check(attachment()?, absolute(netns()?)?),
            "STATUS" => Command::Status,
            "GC" => Command::Gc,
            "VERSION" => Command::Version,
            _ => {
                let commands = "ADD, DEL, CHECK, STATUS, GC and VERSION";
                return Err(wrong(format!(
                    "CNI_COMMAND is {name:?}, which is not one of {commands}"
                )));
            }
        };
        let args = args(&variable("CNI_ARGS").unwrap_or_default())?;
        Ok(Self { command, args })
    }
}

impl Attachment {
    /// Checks the identifier of a container and the name of an interface.
    ///
    /// # Errors
    /// With [`Code::Environment`], if one of them has a form that the specification excludes.
    pub fn new(container: String, ifname: String) -> Result<Self, Failure> {
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
        let begins = container.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        if !begins || container.len() > CONTAINER_BYTES_MAX || !container.bytes().all(is_word) {
            let form = "it begins with a letter or digit, and has letters, digits, '_', '.', '-'";
            // Debug form: the text comes from a runtime, and is quoted and escaped.
            return Err(wrong(format!("CNI_CONTAINERID cannot be {container:?}: {form}")));
        }
        if !is_device(&ifname) {
            let form = "up to 15 letters, digits, '_', '.', '-', and not `lo`";
            // Debug form: the text comes from a runtime, and is quoted and escaped.
            return Err(wrong(format!("CNI_IFNAME cannot be {ifname:?}: {form}")));
        }
        Ok(Self { container, ifname })
    }
}

fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    match path.is_absolute() {
        true => Ok(path),
        // Debug form: the text comes from a runtime, and is quoted and escaped.
        false => Err(wrong(format!("CNI_NETNS has to be an absolute path: {path:?}"))),
    }
}

/// Reads `CNI_ARGS`: `KEY=VALUE;KEY=VALUE`. Keys of other programs need `IgnoreUnknown`, except
/// those of Kubernetes.
fn args(text: &str) -> Result<BTreeMap<String, String>, Failure> {
    if text.len() > ARGS_BYTES_MAX {
        return Err(wrong(format!("CNI_ARGS has more than {ARGS_BYTES_MAX} bytes")));
    }
    let mut args = BTreeMap::new();
    for part in text.split(';').filter(|part| !part.is_empty()) {
        let Some((key, value)) = part.split_once('=') else {
            // Debug form: the text comes from a runtime, and is quoted and escaped.
            return Err(wrong(format!("CNI_ARGS has {part:?} in place of KEY=VALUE")));
        };
        args.insert(key.to_owned(), value.to_owned());
    }
    let ignores = args.get("IgnoreUnknown").is_some_and(|v| ["1", "true"].contains(&v.as_str()));
    let known = |key: &str| OWN.contains(&key) || key.starts_with("K8S_") || key == "IgnoreUnknown";
    match args.keys().find(|key| !known(key)).filter(|_| !ignores) {
        Some(key) => Err(wrong(format!(
            // Debug form: the text comes from a runtime, and is quoted and escaped.
            "CNI_ARGS has the unknown key {key:?}; the keys are {}, and IgnoreUnknown=1 permits \
             others",
            OWN.join(", ")
        ))),
        None => Ok(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, Failure> {
        let of = |name: &str| {
            let found = variables.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Environment::read(&of)
    }

    const ADD: [(&str, &str); 4] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c-1"),
        ("CNI_NETNS", "/run/netns/x"),
        ("CNI_IFNAME", "eth0"),
    ];

    #[test]
    fn a_command_needs_its_variables() {
        let netns = PathBuf::from("/run/netns/x");
        let attachment = Attachment::new("c-1".into(), "eth0".into()).unwrap();
        assert_eq!(read(&ADD).unwrap().command, Command::Add(attachment.clone(), netns));
        for left_out in ADD {
            let some: Vec<_> = ADD.into_iter().filter(|of| *of != left_out).collect();
            let failure = read(&some).unwrap_err();
            assert_eq!(failure.code, Code::Environment);
            assert!(failure.message.contains(left_out.0), "{failure:?}");
        }
        let del = [("CNI_COMMAND", "DEL"), ADD[1], ADD[3]];
        assert_eq!(read(&del).unwrap().command, Command::Del(attachment));
        for command in ["STATUS", "GC", "VERSION"] {
            read(&[("CNI_COMMAND", command)]).unwrap();
        }
        let unknown = read(&[("CNI_COMMAND", "add")]).unwrap_err();
        assert!(unknown.message.contains("ADD, DEL, CHECK"), "{unknown:?}");
    }

    #[test]
    fn names_that_the_specification_excludes_are_refused() {
        let long = "x".repeat(CONTAINER_BYTES_MAX + 1);
        for container in ["-a", "a/b", "a b", ".", &long] {
            let some = [ADD[0], ("CNI_CONTAINERID", container), ADD[2], ADD[3]];
            assert_eq!(read(&some).unwrap_err().code, Code::Environment, "{container}");
        }
        Attachment::new("x".repeat(CONTAINER_BYTES_MAX), "eth0".into()).unwrap();
        for ifname in [".", "..", "a/b", "a:b", "a b", "0123456789abcdef", "lo"] {
            let some = [ADD[0], ADD[1], ADD[2], ("CNI_IFNAME", ifname)];
            assert_eq!(read(&some).unwrap_err().code, Code::Environment, "{ifname}");
        }
        let some = [ADD[0], ADD[1], ("CNI_NETNS", "run/netns/x"), ADD[3]];
        assert!(read(&some).unwrap_err().message.contains("absolute"));
    }

    #[test]
    fn unknown_args_need_permission() {
        let with = |args: &str| read(&[ADD[0], ADD[1], ADD[2], ADD[3], ("CNI_ARGS", args)]);
        let args = with("IgnoreUnknown=1;K8S_POD_NAME=web;OTHER=2;SRD_SUBNET=subnet-1").unwrap();
        assert_eq!(args.args["K8S_POD_NAME"], "web");
        assert_eq!(args.args["SRD_SUBNET"], "subnet-1");
        with("K8S_POD_NAME=web;K8S_POD_UID=7").unwrap();
        assert!(with("OTHER=2").unwrap_err().message.contains("SRD_SUBNET"));
        assert!(with("SRD_SUBNET").unwrap_err().message.contains("KEY=VALUE"));
        let key = "K8S_A=";
        with(&format!("{key}{}", "x".repeat(ARGS_BYTES_MAX - key.len()))).unwrap();
        let long = format!("{key}{}", "x".repeat(ARGS_BYTES_MAX));
        assert!(with(&long).unwrap_err().message.contains("more than"));
    }
}

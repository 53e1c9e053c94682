//! Text of a `vpc.toml` for tests: a cloud with one subnet, in which instances exchange packets.
//! The tests of several crates include this file by its path.

use std::fmt::Write;

/// An instance with one interface.
pub(crate) struct Instance<'a> {
    /// Name of the instance.
    pub(crate) name: &'a str,
    /// Name of the instance's interface.
    pub(crate) interface: &'a str,
    /// Type of the instance.
    pub(crate) kind: &'a str,
    /// Host of the instance; empty: the file names no host.
    pub(crate) host: &'a str,
    /// Last byte of the interface's address in 10.0.1.0/24.
    pub(crate) last: u8,
    /// Further lines of the interface.
    pub(crate) lines: &'a str,
}

/// Returns the text of a cloud. Its VPC, subnet, network ACL and security group have the name
/// `name`. The ACL admits all packets; `ingress` is the list of the group's inbound rules, and the
/// group admits all outbound packets.
pub(crate) fn cloud(name: &str, ingress: &str, instances: &[Instance<'_>]) -> String {
    let mut text = format!(
        r#"[vpc.{name}]
cidr = ["10.0.0.0/16"]
[acl.{name}]
vpc = "{name}"
ingress = ["100 allow all from 0.0.0.0/0"]
egress = ["100 allow all to 0.0.0.0/0"]
[subnet.{name}]
vpc = "{name}"
cidr = "10.0.1.0/24"
acl = "{name}"
[group.{name}]
vpc = "{name}"
ingress = [{ingress}]
egress = ["all to 0.0.0.0/0"]
"#
    );
    for Instance { name: instance, interface, kind, host, last, lines } in instances {
        let host = if host.is_empty() { String::new() } else { format!("host = \"{host}\"\n") };
        let _ = write!(
            text,
            "[instance.{instance}]\ntype = \"{kind}\"\n{host}[interface.{interface}]\n\
             subnet = \"{name}\"\naddress = [\"10.0.1.{last}\"]\ngroups = [\"{name}\"]\n\
             instance = \"{instance}\"\n{lines}\n"
        );
    }
    text
}

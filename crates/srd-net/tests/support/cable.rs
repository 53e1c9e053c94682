//! Cables between network namespaces: veth pairs with addresses, which pass packets when a test
//! gets them. The integration tests of several crates include this file by its path.
#![allow(dead_code, clippy::unwrap_used)] // each test program uses only a part

use std::process::Command;

#[path = "operational.rs"]
pub(crate) mod operational;

/// One end of a cable.
pub(crate) struct End<'a> {
    /// Network namespace.
    pub(crate) namespace: &'a str,
    /// Name of the interface in the namespace.
    pub(crate) interface: &'a str,
    /// Addresses of the interface, each with its prefix length.
    pub(crate) addresses: &'a [&'a str],
}

/// Connects two namespaces, and returns when the cable passes packets. `options`: options of
/// `ip link add` for both interfaces, such as `mtu 9000`.
pub(crate) fn plug(ends: &[End<'_>; 2], options: &str) {
    let [a, b] = ends.each_ref().map(|end| {
        format!("name {} netns {} {options}", end.interface, end.namespace).trim().to_owned()
    });
    ip(&format!("link add {a} type veth peer {b}"));
    for End { namespace, interface, addresses } in ends {
        for address in *addresses {
            // IPv6 addresses are usable at once only without duplicate address detection.
            let nodad = if address.contains(':') { " nodad" } else { "" };
            ip(&format!("-n {namespace} addr add {address} dev {interface}{nodad}"));
        }
        ip(&format!("-n {namespace} link set {interface} up"));
    }
    ends.iter().for_each(|end| operational::wait(end.namespace, end.interface));
}

/// Two new namespaces with a cable between their interfaces `v0`. The namespaces are removed when
/// this is dropped.
pub(crate) struct Cable {
    pub(crate) ends: [String; 2],
}

impl Cable {
    /// Creates namespaces whose names begin with `name`. The interfaces have the addresses 1 and 2
    /// of `net`, the first three bytes of an IPv4 network. `options`: see [`plug`].
    pub(crate) fn new(name: &str, net: &str, options: &str) -> Self {
        let id = std::process::id();
        let cable = Self { ends: ["a", "b"].map(|end| format!("{name}-{id}-{end}")) };
        for end in &cable.ends {
            ip(&format!("netns add {end}"));
            ip(&format!("-n {end} link set lo up"));
        }
        let addresses = [1, 2].map(|last| format!("{net}.{last}/24"));
        let [a, b] = addresses.each_ref().map(|address| [address.as_str()]);
        let [first, second] = cable.ends.each_ref().map(String::as_str);
        let end = |namespace, addresses| End { namespace, interface: "v0", addresses };
        plug(&[end(first, &a), end(second, &b)], options);
        cable
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for end in &self.ends {
            let _ = Command::new("ip").args(["netns", "del", end]).status();
        }
    }
}

/// Runs `ip`, which must succeed.
fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

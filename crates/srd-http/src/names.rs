//! Names of this machine: its host name, its full name if it is known, and the names from the
//! operator.
//!
//! The full name is found like `hostname -f`, but without a query to the network: from the names
//! that `/etc/hosts` lists together with the host name, and from the host name in the domain of
//! `/etc/resolv.conf`. Only complete names match: `node7.evil.example` is no name of node7.

use std::fs;

/// Largest number of characters of a host name in DNS.
const NAME_CHARS_MAX: usize = 255;
/// Largest number of characters of a label, which is a part of a name between dots.
const LABEL_CHARS_MAX: usize = 63;
/// Largest number of names that are read from the files of this machine.
const NAMES_MAX: usize = 32;

/// Returns a host name in the form in which names are compared: without a final dot, in lower case.
/// Returns `None` if the text is not a host name.
pub fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let is_character = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=LABEL_CHARS_MAX).contains(&label.len()) && label.chars().all(is_character)
    };
    let is_name = name.len() <= NAME_CHARS_MAX && name.split('.').all(is_label);
    is_name.then(|| name.to_ascii_lowercase())
}

/// Returns the names of this machine: its host name, and the full names in its files.
pub(super) fn of_this_machine() -> Vec<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let own = read("/proc/sys/kernel/hostname");
    from_files(own.trim(), &read("/etc/hosts"), &read("/etc/resolv.conf"))
}

fn from_files(own: &str, hosts: &str, resolv_conf: &str) -> Vec<String> {
    let Some(own) = host_name(own) else { return Vec::new() };
    let mut names = vec![own.clone()];
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let others: Vec<String> = line.split_whitespace().skip(1).filter_map(host_name).collect();
        if others.contains(&own) {
            names.extend(others);
        }
    }
    if !own.contains('.') {
        names.extend(domain(resolv_conf).and_then(|domain| host_name(&format!("{own}.{domain}"))));
    }
    names.truncate(NAMES_MAX);
    names
}

/// Returns the domain of this machine. The last line with a domain is used, as in resolv.conf(5).
fn domain(resolv_conf: &str) -> Option<&str> {
    let mut found = None;
    for line in resolv_conf.lines() {
        let mut words = line.split_whitespace();
        if matches!(words.next(), Some("domain" | "search")) {
            found = words.next().or(found);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_name_comes_from_the_files_of_this_machine() {
        let hosts = "127.0.0.1 localhost\n127.0.1.1\tNode7.rack.example node7 # this one\n\
                     10.0.0.8 node8.rack.example node8\n# 10.0.0.9 x.evil.example node7\n";
        let names = from_files("node7", hosts, "nameserver 10.0.0.2\n");
        assert_eq!(names, ["node7", "node7.rack.example", "node7"]);
        let names = from_files("node7", "", "search eu.internal other.example\n");
        assert_eq!(names, ["node7", "node7.eu.internal"]);
        let names = from_files("node7.rack.example", "", "domain elsewhere.example\n");
        assert_eq!(names, ["node7.rack.example"]);
        assert!(from_files("", hosts, "").is_empty());
        let many = "10.0.0.1 node7 a\n".repeat(100);
        assert_eq!(from_files("node7", &many, "").len(), NAMES_MAX);
    }

    #[test]
    fn a_name_has_labels_and_nothing_else() {
        assert_eq!(host_name("Node7.Rack.example.").as_deref(), Some("node7.rack.example"));
        let long = "a.".repeat(200);
        for text in ["", ".", "a..b", "*.example", "a:80", "http://a", "a b", "::1", &long] {
            assert_eq!(host_name(text), None, "{text}");
        }
    }
}

//! Warnings about names of hosts that do not match, and about a mount namespace in which no other
//! program sees the instances. Such settings are permitted, but usually a mistake.

use std::collections::BTreeSet;

use srd_vpc::object::World;

use crate::state::{Options, Service};

impl Service {
    /// Returns permitted settings that are usually a mistake, as one sentence each, with a remedy.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let hidden = self.guests.by_name.values().any(|running| running.namespace.is_some())
            && are_hidden(&mounts);
        let hidden = hidden.then(|| {
            String::from(
                "namespaces of instances are seen in this card's mount namespace only, so that \
                 `ip netns exec` elsewhere does not find them. A card that `ip netns exec` starts \
                 is in one of its own: start it with `nsenter --net=/run/netns/NAME`",
            )
        });
        // Those about the hosts of the file are found by the first worker.
        let of_hosts = match self.gateways.are_first() {
            true => of(&self.options, &self.vpc.undivided()),
            false => Vec::new(),
        };
        of_hosts.into_iter().chain(hidden).collect()
    }
}

/// Whether mounts below `/run/netns` are invisible outside of this mount namespace, which receives
/// mounts from another one (`master`) and propagates none.
fn are_hidden(mountinfo: &str) -> bool {
    let mounts = mountinfo.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(4);
        let at = fields.next()?;
        let is_above = std::path::Path::new("/run/netns").starts_with(at);
        is_above.then(|| (at.len(), fields.skip(1).take_while(|field| *field != "-")))
    });
    // Of several mounts at one path, the last one is on top.
    let holds = mounts.max_by_key(|(length, _)| *length);
    holds.is_some_and(|(_, mut fields)| fields.any(|field| field.starts_with("master:")))
}

pub(crate) fn of(options: &Options, world: &World) -> Vec<String> {
    if options.is_of_controller {
        return Vec::new();
    }
    let named: BTreeSet<&str> =
        world.instances.values().filter_map(|instance| instance.host.as_deref()).collect();
    let here = options.host.as_str();
    let others: Vec<&str> = named.iter().copied().filter(|name| *name != here).collect();
    let mut found = Vec::new();
    if !others.is_empty() && !named.contains(here) {
        found.push(format!(
            "no instance of the file is on this host, `{here}`; the file names {}: {} says which \
             of them this is",
            others.join(", "),
            if options.config.is_some() { "`host` in [cloud]" } else { "--host" }
        ));
    }
    match &options.transport {
        None if named.contains(here) && !others.is_empty() => found.push(format!(
            "instances on {} are not reached: [interface] is needed in the settings, and for each \
             of these hosts a [[peer]] with its name as `host`",
            others.join(", ")
        )),
        None => {}
        Some(transport) => {
            let has = |name: &str| transport.hosts.contains_key(name);
            let missing: Vec<&str> = others.iter().copied().filter(|name| !has(name)).collect();
            if !missing.is_empty() {
                found.push(format!(
                    "instances on {} are not reached: no [[peer]] names it",
                    missing.join(", ")
                ));
            }
            let unnamed = transport.hosts.keys().filter(|name| !named.contains(name.as_str()));
            found.extend(unnamed.map(|name| {
                format!("the file has no instance on `{name}`, which a [[peer]] names")
            }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use srd_daemon::config::Config;

    const FILE: &str = "../../docs/vpc/two-hosts.toml";

    fn options(host: &str, peers: &[&str]) -> Options {
        let mut text = format!(
            "[interface]\nmode = \"cloud\"\nlisten = \"10.77.77.1:7471\"\n\
             protection = \"plain\"\n[cloud]\nvpc = \"{FILE}\"\nhost = \"{host}\"\n"
        );
        for (name, n) in peers.iter().zip(2..) {
            text += &format!("[[peer]]\nhost = \"{name}\"\nendpoint = \"10.77.77.{n}:7471\"\n");
        }
        let config = Config::parse(&text, Path::new("srd0.toml")).unwrap();
        Options::of(config).unwrap()
    }

    fn warned(host: &str, peers: &[&str]) -> Vec<String> {
        let options = options(host, peers);
        let vpc = options.vpc().unwrap();
        of(&options, &vpc.world())
    }

    #[test]
    fn namespaces_that_nobody_else_sees_are_told_from_others() {
        let line = |at: &str, optional: &str| {
            format!("21 42 254:0 / {at} rw,relatime {optional}- ext4 /dev/vda rw\n")
        };
        let machine = line("/", "shared:1 ") + &line("/run/netns", "shared:2 ");
        assert!(!are_hidden(&machine));
        // `ip netns exec` makes all mounts slaves, and `ip netns add` makes the directory shared
        // again.
        let inside = line("/", "master:1 ") + &line("/run/netns", "shared:3 master:2 ");
        assert!(are_hidden(&inside));
        assert!(are_hidden(&line("/", "master:1 ")), "no mount of its own");
        // In a container.
        assert!(!are_hidden(&line("/", "")) && !are_hidden(""));
    }

    #[test]
    fn names_of_hosts_that_fit_together_are_not_warned_of() {
        assert_eq!(warned("alpha", &["beta"]), Vec::<String>::new());
    }

    #[test]
    fn names_of_hosts_that_do_not_fit_together_are() {
        let all = warned("alpah", &["beta"]).join("\n");
        assert!(all.contains("no instance of the file is on this host, `alpah`"), "{all}");
        assert!(all.contains("alpha, beta: `host` in [cloud] says which"), "{all}");
        let options = Options { config: None, ..options("alpah", &["beta"]) };
        let all = of(&options, &options.vpc().unwrap().world()).join("\n");
        assert!(all.contains("alpha, beta: --host says which"), "{all}");
        assert!(all.contains("on alpha are not reached: no [[peer]]"), "{all}");
        let all = warned("alpha", &["betta"]).join("\n");
        assert!(all.contains("on beta are not reached: no [[peer]]"), "{all}");
        assert!(all.contains("no instance on `betta`"), "{all}");
        let all = warned("alpha", &[]).join("\n");
        let remedy = "on beta are not reached: [interface] is needed";
        assert!(all.contains(remedy), "{all}");
    }
}

//! Namespaces of instances after changes by other programs: namespaces whose name is gone, and
//! devices that have lost addresses or routes. The status names these losses, and applying rules
//! repairs them.
//!
//! At other times nothing is repaired, because root of an instance may change the instance's
//! network, as on EC2. A device that is down stays down.

use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::control::protocol::NamespaceName;
use crate::machine::namespace::{self, Device, Inside, Owned};

/// Maximum number of bytes that are read of a table in `/proc`. Root of an instance may add many
/// routes.
const TABLE_BYTES_MAX: u64 = 1 << 22;
/// The remedy for a lost name, address or route.
const REMEDY: &str = "`srd card apply FILE` puts it back";

/// Device and inode of a namespace.
pub(super) type Identity = (u64, u64);

/// Returns the identity of a namespace from an open file of it.
pub(super) fn identity(file: &File) -> Option<Identity> {
    file.metadata().ok().map(|facts| (facts.dev(), facts.ino()))
}

/// Whether a name refers to the namespace of the instance, to no namespace, or to another
/// namespace.
enum Named {
    It,
    Nothing,
    Other,
}

fn named(name: &NamespaceName, of: Identity) -> Named {
    let path = namespace::path_of(name);
    match fs::metadata(&path) {
        Ok(facts) if (facts.dev(), facts.ino()) == of => Named::It,
        Ok(facts) if is_mounted(&path, &facts) => Named::Other,
        Ok(_) | Err(_) => Named::Nothing,
    }
}

/// Whether a namespace is mounted at the file with these facts. The file exists a moment before,
/// and stays if the program that creates the name is killed.
fn is_mounted(path: &Path, facts: &fs::Metadata) -> bool {
    let above = path.parent().and_then(|above| fs::metadata(above).ok());
    above.is_none_or(|above| above.dev() != facts.dev())
}

/// Addresses and routes that a device has lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    addresses: Vec<(IpAddr, u8)>,
    /// Whether the default routes of IPv4 and of IPv6 are missing.
    routes: [bool; 2],
}

impl Lost {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    fn in_words(&self) -> String {
        let addresses =
            self.addresses.iter().map(|(address, length)| format!("{address}/{length}"));
        let routes = ["the default route", "the default route of IPv6"];
        let routes = routes.into_iter().zip(self.routes).filter(|(_, is_lost)| *is_lost);
        let all: Vec<String> = addresses.chain(routes.map(|(words, _)| words.to_owned())).collect();
        all.join(", ")
    }
}

/// The kernel's tables of addresses and routes of a namespace, as text.
struct Tables {
    /// The kernel's table of local IPv4 addresses.
    trie: String,
    routes: String,
    addresses6: String,
    routes6: String,
}

impl Tables {
    /// Reads the tables in the namespace of this thread.
    fn read() -> Self {
        let read = |name: &str| {
            let mut text = String::new();
            let file = File::open(format!("/proc/thread-self/net/{name}"));
            let read = file.map(|file| file.take(TABLE_BYTES_MAX).read_to_string(&mut text));
            read.map(|_| text).unwrap_or_default()
        };
        let [trie, routes] = ["fib_trie", "route"].map(read);
        let [addresses6, routes6] = ["if_inet6", "ipv6_route"].map(read);
        Self { trie, routes, addresses6, routes6 }
    }

    fn has_address(&self, address: IpAddr, device: &str) -> bool {
        match address {
            IpAddr::V4(address) => {
                let mut lines = self.trie.lines().map(str::trim_start).peekable();
                let leaf = format!("|-- {address}");
                while let Some(line) = lines.next() {
                    if line == leaf && lines.peek().is_some_and(|next| *next == "/32 host LOCAL") {
                        return true;
                    }
                }
                false
            }
            IpAddr::V6(address) => {
                let wanted = format!("{:032x}", address.to_bits());
                self.addresses6.lines().any(|line| {
                    let mut words = line.split_whitespace();
                    words.next() == Some(&*wanted) && words.last() == Some(device)
                })
            }
        }
    }

    /// Whether a default route through any device exists.
    fn has_default(&self, v6: bool) -> bool {
        let zero = format!("{:032x}", Ipv6Addr::UNSPECIFIED.to_bits());
        let lines = if v6 { self.routes6.lines() } else { self.routes.lines() };
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|words| match v6 {
            // The kernel's own route for unreachable destinations leads to the loopback device.
            true => words.starts_with(&[&zero, "00"]) && words.last() != Some(&"lo"),
            false => words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000"),
        })
    }

    fn lost(&self, device: &Device) -> Lost {
        let all = device.addresses.iter();
        let lost = all.clone().filter(|(address, _)| !self.has_address(*address, &device.name));
        let has = |v6: bool| all.clone().any(|(address, _)| address.is_ipv6() == v6);
        let is_lost = |v6: bool| device.is_primary && has(v6) && !self.has_default(v6);
        Lost { addresses: lost.copied().collect(), routes: [false, true].map(is_lost) }
    }
}

/// Returns the addresses and routes that devices have lost. Devices that are down are omitted.
fn lost(inside: &Inside, devices: &[Device]) -> Result<Vec<(Device, Lost)>> {
    inside.within(|| {
        let up = devices.iter().filter(|of| srd_net::link::is_up(&of.name).unwrap_or(false));
        let tables = Tables::read();
        let all = up.map(|device| (device.clone(), tables.lost(device)));
        all.filter(|(_, lost)| !lost.is_nothing()).collect()
    })
}

/// Returns a warning with a remedy for each loss: the name of the namespace leads nowhere or to
/// another namespace, or a device has lost addresses or routes.
pub(super) fn look(name: &NamespaceName, of: Identity, devices: &[Device]) -> Vec<String> {
    match named(name, of) {
        Named::Nothing => vec![format!(
            "another program has deleted the namespace {name} (`ip netns del` does that): its \
             programs go on, and nothing can be started in it: {REMEDY}"
        )],
        Named::Other => vec![format!(
            "the name {name} leads to another namespace than the instance's: delete it with \
             `ip netns del {name}`, and then {REMEDY}"
        )],
        Named::It => {
            let lost = lost(&Inside::of(name.clone()), devices).unwrap_or_default();
            let words = |(device, lost): &(Device, Lost)| {
                format!(
                    "{} in the namespace {name} has lost {} (`ip link set {} down` does that): \
                     {REMEDY}",
                    device.name,
                    lost.in_words(),
                    device.name
                )
            };
            lost.iter().map(words).collect()
        }
    }
}

/// Restores the lost name of a namespace, and lost addresses and routes of its devices. Returns a
/// description of the repairs; `None` if nothing was lost.
pub(super) fn restore(owned: &Owned, of: Identity, devices: &[Device]) -> Result<Option<String>> {
    let name = owned.name();
    let is_named = match named(name, of) {
        Named::It => true,
        Named::Nothing => {
            if namespace::path_of(name).exists() {
                // A file without a namespace, of a program that was killed.
                namespace::ip(&["netns", "del", name.as_str()])?;
            }
            owned.name_again()?;
            false
        }
        Named::Other => bail!(
            "the name {name} leads to another namespace than the instance's: delete it with \
             `ip netns del {name}`, and apply the file again"
        ),
    };
    let mut words: Vec<String> =
        (!is_named).then(|| String::from("its name")).into_iter().collect();
    // The losses are determined before the routing tables of interfaces are restored, because the
    // kernel lists the IPv6 routes of all tables together.
    let all_lost = lost(owned.inside(), devices)?;
    let several = devices.len() > 1;
    for (number, device) in devices.iter().enumerate() {
        if several {
            owned.inside().restore_tables(number, device)?;
        }
    }
    for (device, lost) in all_lost {
        owned.inside().restore(&device.name, &lost.addresses, lost.routes)?;
        words.push(format!("{} of {}", lost.in_words(), device.name));
    }
    Ok((!words.is_empty()).then(|| words.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_default_route_that_a_table_does_not_have_are_lost() {
        let tables = Tables {
            trie: "Main:\n  +-- 0.0.0.0/0\n     |-- 10.0.1.0\n        /24 link UNICAST\n\
                   Local:\n     |-- 10.0.1.10\n        /32 host LOCAL\n"
                .into(),
            routes: "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n\
                     ens5\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
                .into(),
            addresses6: "fd000000000000000000000000000010 02 40 00 82     ens5\n".into(),
            routes6: "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                      00000000000000000000000000000000 ffffffff 00000001 00000000 \
                      00200200       lo\n"
                .into(),
        };
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        let device = |all: &[&str], is_primary| Device {
            name: "ens5".into(),
            addresses: all.iter().map(|text| (address(text), 24)).collect(),
            is_primary,
        };
        let all = ["10.0.1.10", "10.0.1.1", "10.0.1.0", "fd00::10", "fd00::11"];
        let lost = tables.lost(&device(&all, true));
        let gone = ["10.0.1.1", "10.0.1.0", "fd00::11"].map(|text| (address(text), 24));
        assert_eq!(lost, Lost { addresses: gone.to_vec(), routes: [true, true] });
        assert!(lost.in_words().ends_with("the default route, the default route of IPv6"));
        assert!(tables.lost(&device(&["10.0.1.10", "fd00::10"], false)).is_nothing());
        let routes = format!("{}tun0\t00000000\t00000000\t1\t0\t0\t0\t00000000\n", tables.routes);
        let tables = Tables { routes, ..tables };
        assert!(tables.lost(&device(&["10.0.1.10"], true)).is_nothing(), "a route of its own");
    }
}

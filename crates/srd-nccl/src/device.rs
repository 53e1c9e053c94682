//! Selection of the network interfaces that are NCCL's devices.
//!
//! NCCL distributes its traffic over all devices, and assumes that every pair of devices is
//! connected. Bridges of containers and virtual machines have the same address on every host, and
//! connect no hosts. So without `SRD_NCCL_IFACE` the devices are the hardware interfaces. Without
//! a hardware interface, the device is the interface of the default route. Without a default
//! route, it is the first interface. Loopback is used only if there is no other interface.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use srd_net::{Link, LocalAddress};

use crate::settings::Settings;

/// Largest number of devices; if a machine has more, the first devices are used.
pub const DEVICES_MAX: usize = 64;
/// Assumed speed in megabits per second of a link that reports no speed; NCCL's socket transport
/// assumes the same.
const RATE_MBPS: u32 = 10_000;
/// Addresses that belong to no host: the route to them is the default route, if there is one.
const ELSEWHERE: [&str; 2] = ["203.0.113.1:9", "[2001:db8::1]:9"];

/// An interface, with one of its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Name of the interface.
    pub interface: String,
    /// Address of the interface.
    pub ip: IpAddr,
}

/// Queries to the system for the selection of devices.
pub trait System {
    /// Whether an interface is a hardware interface.
    fn is_hardware(&self, interface: &str) -> bool;
    /// Returns the interface of the route to an address.
    fn interface_to(&self, address: SocketAddr) -> Option<String>;
}

/// The system of this machine, which answers from `/sys` and the routing table.
#[derive(Clone, Copy, Debug)]
pub struct LocalSystem;

impl System for LocalSystem {
    fn is_hardware(&self, interface: &str) -> bool {
        sysfs(interface, "device").exists()
    }

    fn interface_to(&self, address: SocketAddr) -> Option<String> {
        Link::towards(address).ok()?.interface
    }
}

/// Returns the devices, selected from all addresses of this machine.
///
/// # Errors
/// A [`Fault`](crate::Fault), if there is no device, or an interface in the settings does not
/// exist.
pub fn choose(
    locals: &[LocalAddress],
    settings: &Settings,
    system: &impl System,
) -> Result<Vec<Device>, String> {
    let usable: Vec<_> = locals.iter().filter(|local| !is_link_local(local.ip)).collect();
    let mut devices: Vec<Device> = Vec::new();
    if let Some(names) = &settings.interfaces {
        for name in names {
            let mut of_it = usable.iter().filter(|l| l.interface == *name || is_at(l, name));
            let found = best(&mut of_it).ok_or_else(|| {
                format!(
                    "SRD_NCCL_IFACE: {name:?} is not there, is down, or has no usable address: \
                     see `ip addr`"
                )
            })?;
            devices.push(found);
        }
    } else {
        let mut names: Vec<&str> = Vec::new();
        for local in usable.iter().filter(|local| !local.loopback) {
            if !names.contains(&local.interface.as_str()) {
                names.push(&local.interface);
            }
        }
        let names = preferred(names, system);
        let of = |name: &&str| best(&mut usable.iter().filter(|l| l.interface == *name));
        devices.extend(names.iter().filter_map(of));
        if devices.is_empty() {
            devices.extend(best(&mut usable.iter()));
        }
    }
    devices.truncate(DEVICES_MAX);
    if devices.is_empty() {
        return Err("this machine has no address: see `ip addr`".into());
    }
    Ok(devices)
}

fn preferred<'a>(names: Vec<&'a str>, system: &impl System) -> Vec<&'a str> {
    let hardware: Vec<&str> = names.iter().copied().filter(|n| system.is_hardware(n)).collect();
    if !hardware.is_empty() {
        return hardware;
    }
    let default = ELSEWHERE
        .iter()
        .filter_map(|elsewhere| system.interface_to(elsewhere.parse().ok()?))
        .find_map(|interface| names.iter().copied().find(|name| *name == interface));
    default.or(names.first().copied()).into_iter().collect()
}

/// Returns a device at the first of these addresses; IPv4 addresses come before IPv6 addresses.
fn best(of: &mut dyn Iterator<Item = &&LocalAddress>) -> Option<Device> {
    let best = of.min_by_key(|local| local.ip.is_ipv6())?;
    Some(Device { interface: best.interface.clone(), ip: best.ip })
}

fn is_at(local: &LocalAddress, ip: &str) -> bool {
    ip.parse() == Ok(local.ip)
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn sysfs(interface: &str, file: &str) -> PathBuf {
    Path::new("/sys/class/net").join(interface).join(file)
}

impl Device {
    /// Returns the link rate in megabits per second: the setting, the speed that the interface
    /// reports, or the default.
    #[must_use]
    pub fn rate_mbps(&self, settings: &Settings) -> u32 {
        let known = || {
            let bps = Link::towards(SocketAddr::new(self.ip, 9)).ok()?.rate_bps?;
            u32::try_from(bps / 1_000_000).ok()
        };
        settings.link_rate_mbps.or_else(known).unwrap_or(RATE_MBPS)
    }

    /// Returns the path of the interface's PCI device in `/sys`, if there is one.
    #[must_use]
    pub fn pci_path(&self) -> Option<PathBuf> {
        std::fs::canonicalize(sysfs(&self.interface, "device")).ok()
    }

    /// Returns a number that identifies the network port: its hardware address. An interface
    /// without a hardware address gets the number `at`, its index in the list.
    #[must_use]
    pub fn guid(&self, at: usize) -> u64 {
        let text = std::fs::read_to_string(sysfs(&self.interface, "address")).unwrap_or_default();
        let digits: String = text.trim().split(':').collect();
        match u64::from_str_radix(&digits, 16) {
            Ok(address) if address != 0 => address,
            _ => at as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::read;

    struct Machine {
        hardware: &'static [&'static str],
        route: Option<&'static str>,
    }

    impl System for Machine {
        fn is_hardware(&self, interface: &str) -> bool {
            self.hardware.contains(&interface)
        }

        fn interface_to(&self, _: SocketAddr) -> Option<String> {
            self.route.map(Into::into)
        }
    }

    fn addresses(given: &[(&str, &str)]) -> Vec<LocalAddress> {
        let address = |(interface, ip): &(&str, &str)| LocalAddress {
            interface: (*interface).into(),
            ip: ip.parse().unwrap(),
            loopback: *interface == "lo",
        };
        given.iter().map(address).collect()
    }

    const SERVER: [(&str, &str); 7] = [
        ("lo", "127.0.0.1"),
        ("docker0", "172.17.0.1"),
        ("eth0", "fe80::1"),
        ("eth0", "2001:db8:1::1"),
        ("eth0", "10.0.0.1"),
        ("eth1", "2001:db8:2::1"),
        ("wg0", "10.9.0.1"),
    ];

    fn chosen(given: &[(&str, &str)], names: &str, machine: &Machine) -> Vec<String> {
        let settings = read(&[("SRD_NCCL_IFACE", names)]).unwrap();
        let devices = choose(&addresses(given), &settings, machine).unwrap();
        devices.iter().map(|device| format!("{} {}", device.interface, device.ip)).collect()
    }

    #[test]
    fn hardware_comes_first_then_the_default_route_then_what_there_is() {
        let machine = Machine { hardware: &["eth0", "eth1"], route: Some("wg0") };
        assert_eq!(chosen(&SERVER, "", &machine), ["eth0 10.0.0.1", "eth1 2001:db8:2::1"]);
        let machine = Machine { hardware: &[], route: Some("wg0") };
        assert_eq!(chosen(&SERVER, "", &machine), ["wg0 10.9.0.1"]);
        let machine = Machine { hardware: &[], route: None };
        assert_eq!(chosen(&SERVER, "", &machine), ["docker0 172.17.0.1"]);
        assert_eq!(chosen(&SERVER[..1], "", &machine), ["lo 127.0.0.1"]);
    }

    #[test]
    fn names_and_addresses_are_taken_as_they_are_given() {
        let machine = Machine { hardware: &["eth0"], route: None };
        let both = ["eth0 2001:db8:1::1", "lo 127.0.0.1"];
        assert_eq!(chosen(&SERVER, "2001:db8:1::1, lo", &machine), both);
        let settings = read(&[("SRD_NCCL_IFACE", "eth0,eth7")]).unwrap();
        let refusal = choose(&addresses(&SERVER), &settings, &machine).unwrap_err();
        assert!(refusal.contains("eth7"), "{refusal}");
    }

    #[test]
    fn a_machine_without_addresses_is_refused_and_one_with_many_shows_the_first() {
        let machine = Machine { hardware: &[], route: None };
        assert!(choose(&[], &read(&[]).unwrap(), &machine).is_err());
        let ips: Vec<String> = (0..DEVICES_MAX + 1).map(|at| format!("10.1.0.{at}")).collect();
        let many: Vec<_> = ips.iter().map(|ip| ("eth0", ip.as_str())).collect();
        let names = ips.join(",");
        assert_eq!(chosen(&many, &names, &machine).len(), DEVICES_MAX);
    }
}

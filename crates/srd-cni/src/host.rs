//! Namespaces of this machine: announcements of pods to the card, and the devices in pods.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use srd_guest::pods::{self, Pod, PodInterface};

/// Pause between two looks for a device.
const PAUSE: Duration = Duration::from_millis(10);

/// The device of an interface in a pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Addresses with the prefix lengths of their subnets.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Whether the device is up.
    pub is_up: bool,
    /// Whether a default route leads to the device.
    pub has_default: bool,
    /// MAC address of the elastic network interface. [`Host::interface`] returns an empty text,
    /// because the device is a TUN device without a MAC address.
    pub mac: String,
}

/// The machine with the pods.
pub trait Host {
    /// Checks that a namespace can get a device with this name.
    ///
    /// # Errors
    /// A text for the user.
    fn check(&self, netns: &Path, device: &str) -> Result<(), String>;

    /// Announces the pod with this name to the card.
    ///
    /// # Errors
    /// A text for the user.
    fn announce(&self, pod: &str, netns: &Path, interface: &PodInterface) -> Result<(), String>;

    /// Withdraws the announcement of a pod, if there is one.
    ///
    /// # Errors
    /// A text for the user.
    fn withdraw(&self, pod: &str) -> Result<(), String>;

    /// Returns the device with this name; `None` if it does not exist.
    ///
    /// # Errors
    /// A text for the user: the namespace is gone, or `ip` does not work.
    fn interface(&self, netns: &Path, device: &str) -> Result<Option<Interface>, String>;

    /// Sets a device of an announced pod down, if it exists. The announcement identifies the
    /// namespace: its path may belong to another container later, as `/proc/PID/ns/net` does after
    /// the end of a process.
    ///
    /// # Errors
    /// A text for the user: the pod is not announced, or its namespace is gone.
    fn set_down(&self, pod: &str, device: &str) -> Result<(), String>;

    /// Looks for a device until `is_there` accepts the result, at most for this time. Returns
    /// whether it was accepted, and the last result.
    ///
    /// # Errors
    /// The errors of [`Host::interface`].
    fn wait(
        &self,
        (netns, device): (&Path, &str),
        wait_max: Duration,
        is_there: &dyn Fn(Option<&Interface>) -> bool,
    ) -> Result<(bool, Option<Interface>), String> {
        let until = Instant::now() + wait_max;
        loop {
            let found = self.interface(netns, device)?;
            if is_there(found.as_ref()) {
                return Ok((true, found));
            }
            if Instant::now() >= until {
                return Ok((false, found));
            }
            thread::sleep(PAUSE);
        }
    }
}

/// This machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Directory of the announcements.
    directory: PathBuf,
}

impl Machine {
    /// This machine, whose cards read announcements in a directory.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }
}

/// A pod whose device has this name.
fn pod(netns: &Path, device: &str) -> Result<Pod, String> {
    let interface = PodInterface { device: device.to_owned(), default_route: true };
    Pod::new(netns, interface).map_err(|error| format!("{error:#}"))
}

/// Runs `ip` in a pod, and returns its output.
fn ip(pod: &Pod, words: &[&str]) -> Result<Vec<u8>, String> {
    let run = || Command::new("ip").args(words).output();
    let output = pod.within(run).map_err(|error| format!("{error:#}"))?;
    let output = output.map_err(|e| format!("cannot start ip ({e}): install iproute2"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("ip {}: {}", words.join(" "), said.trim()))
        }
    }
}

fn json(pod: &Pod, words: &[&str]) -> Result<Value, String> {
    let output = ip(pod, words)?;
    // Without results, some versions of `ip` print nothing.
    let text = if output.iter().all(u8::is_ascii_whitespace) { b"[]".to_vec() } else { output };
    serde_json::from_slice(&text).map_err(|error| format!("ip {}: {error}", words.join(" ")))
}

/// Returns the properties of a device in the output of `ip -j addr show`. Link-local addresses,
/// which the kernel assigns, are left out.
fn read(shown: &Value, device: &str) -> Option<Interface> {
    let all = shown.as_array()?;
    let of = all.iter().find(|of| of["ifname"].as_str() == Some(device))?;
    let addresses = of["addr_info"].as_array().into_iter().flatten();
    let address = |info: &Value| {
        let length = u8::try_from(info["prefixlen"].as_u64()?).ok()?;
        Some((info["local"].as_str()?.parse().ok()?, length))
    };
    let addresses = addresses.filter_map(address);
    let flags = of["flags"].as_array().into_iter().flatten();
    Some(Interface {
        addresses: addresses.filter(|(of, _)| !is_link_local(*of)).collect(),
        mtu: of["mtu"].as_u64().and_then(|mtu| u32::try_from(mtu).ok()).unwrap_or_default(),
        is_up: flags.filter_map(Value::as_str).any(|flag| flag == "UP"),
        has_default: false,
        mac: String::new(),
    })
}

/// Whether an address is assigned by the kernel and not by the VPC.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(of) if of.segments()[0] & 0xffc0 == 0xfe80)
}

impl Host for Machine {
    fn check(&self, netns: &Path, device: &str) -> Result<(), String> {
        match pod(netns, device)?.has_device().map_err(|error| format!("{error:#}"))? {
            true => Err(format!("{} has a device {device} already", netns.display())),
            false => Ok(()),
        }
    }

    fn announce(&self, pod: &str, netns: &Path, interface: &PodInterface) -> Result<(), String> {
        let announced = Pod::new(netns, interface.clone());
        let announced = announced.and_then(|of| of.announce(&self.directory, pod));
        announced.map_err(|error| format!("{error:#}"))
    }

    fn withdraw(&self, pod: &str) -> Result<(), String> {
        pods::withdraw(&self.directory, pod).map_err(|error| format!("{error:#}"))
    }

    fn interface(&self, netns: &Path, device: &str) -> Result<Option<Interface>, String> {
        let pod = pod(netns, device)?;
        if !pod.has_device().map_err(|error| format!("{error:#}"))? {
            return Ok(None);
        }
        let Some(mut interface) =
            read(&json(&pod, &["-j", "addr", "show", "dev", device])?, device)
        else {
            return Ok(None);
        };
        let routes = json(&pod, &["-j", "-4", "route", "show", "default"])?;
        let mut routes = routes.as_array().into_iter().flatten();
        interface.has_default = routes.any(|route| route["dev"].as_str() == Some(device));
        Ok(Some(interface))
    }

    fn set_down(&self, pod: &str, device: &str) -> Result<(), String> {
        let pod = pods::read(&self.directory, pod).map_err(|error| format!("{error:#}"))?;
        match pod.has_device().map_err(|error| format!("{error:#}"))? {
            true => ip(&pod, &["link", "set", "dev", device, "down"]).map(drop),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_output_of_ip_is_read() {
        let shown = json!([
            {"ifname": "lo", "flags": ["LOOPBACK", "UP"], "mtu": 65536, "addr_info": []},
            {"ifname": "eth0", "flags": ["POINTOPOINT", "UP", "LOWER_UP"], "mtu": 9001,
             "addr_info": [
                {"family": "inet", "local": "10.0.1.9", "prefixlen": 24, "scope": "global"},
                {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
                {"family": "inet6", "local": "fd00::9", "prefixlen": 64, "scope": "global"},
            ]},
        ]);
        let found = read(&shown, "eth0").unwrap();
        let addresses = ["10.0.1.9", "fd00::9"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(found.addresses, [(addresses[0], 24), (addresses[1], 64)]);
        assert!(found.is_up && found.mtu == 9001 && !found.has_default);
        assert_eq!(read(&shown, "eth1"), None);
        assert_eq!(read(&json!({}), "eth0"), None);
    }

    #[test]
    fn what_is_no_namespace_of_a_pod_is_refused() {
        let machine = Machine::new(Path::new("/run/srd-card/pods"));
        for netns in ["/proc/self/ns/net", "/proc/self/ns/mnt", "/etc/passwd", "/missing"] {
            let netns = Path::new(netns);
            let interface = PodInterface { device: "eth0".to_owned(), default_route: true };
            machine.check(netns, "eth0").unwrap_err();
            machine.announce("cni-x", netns, &interface).unwrap_err();
            machine.interface(netns, "eth0").unwrap_err();
        }
        machine.set_down("cni-x", "eth0").unwrap_err();
    }
}

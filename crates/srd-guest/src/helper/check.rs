//! Checks of a request to the helper, before any work begins. If a guest has taken control of the
//! card, it can send any request.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::publics::Publics;
use super::{MADE_AT_ONCE, NAMED_MAX, Request, Spec};
use crate::control::protocol::is_name;
use crate::machine::namespace::{DEVICES_MAX, Device};
use crate::machine::place::NetworkRequest;
use crate::machine::pods;

/// Maximum length of a device's name in bytes, as in the kernel.
const DEVICE_BYTES_MAX: usize = 15;
/// Maximum number of queues of a device, as in the kernel.
const QUEUES_MAX: u16 = 256;
/// Maximum number of entries of a ring.
const RING_MAX: u32 = 1 << 20;
/// Maximum number of addresses of a device.
const ADDRESSES_MAX: usize = 1024;
/// Maximum length of a file's name in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Common part of the names of flow log files.
const LOG: &str = "vpcflowlogs_";
/// Endings of the names of flow log files that the card may open.
const LOG_ENDINGS: [&str; 3] = ["log", "log.gz", "log.parquet.part"];

impl Request {
    /// Returns an error if the request is not permitted. `permitted`: the addresses that may be
    /// routed.
    pub(super) fn check(&self, spec: &Spec, permitted: &Publics) -> Result<()> {
        match self {
            Self::Make(all) => {
                if all.len() > MADE_AT_ONCE {
                    bail!("more than {MADE_AT_ONCE} instances in one request");
                }
                all.iter().try_for_each(wanted)
            }
            Self::Device { number, device: of, queues, ring, .. } => {
                if *number >= DEVICES_MAX {
                    bail!("the number of a device is {number}");
                }
                device(of, *queues, *ring)
            }
            Self::Queues { device, more, .. } => {
                named_by_guest(device)?;
                count("queues", *more, QUEUES_MAX)
            }
            Self::Ring { device, entries, .. } => {
                named_by_guest(device)?;
                count("entries of a ring", *entries, RING_MAX)
            }
            Self::Look(all) | Self::Restore(all) => {
                count("namespaces", all.len(), NAMED_MAX)?;
                for (_, devices) in all {
                    count("devices", devices.len(), DEVICES_MAX)?;
                    devices.iter().try_for_each(|one| device(one, 0, 0))?;
                }
                Ok(())
            }
            Self::Drops(all) => {
                let devices = all.iter().map(|(_, devices)| devices.len().max(1)).sum();
                count("devices", devices, NAMED_MAX)
            }
            Self::Edge(_) | Self::Route { .. } if !spec.internet => {
                bail!("this card has no internet's side")
            }
            Self::Edge(publics) => {
                count("addresses", publics.len(), NAMED_MAX)?;
                permitted.check(publics)
            }
            Self::Route { add, remove } => {
                count("addresses", add.len() + remove.len(), NAMED_MAX)?;
                // Only routes into the device of the internet's side are removed.
                permitted.check(add)
            }
            Self::Resolvers(all) => count("namespaces", all.len(), NAMED_MAX),
            Self::End(all) | Self::Sweep(all) => count("namespaces", all.len(), NAMED_MAX),
            Self::Vhost { path, .. } | Self::VhostGone(path) => vhost_user(path, spec),
            Self::Log { stem, ending, .. } => {
                if !stem.contains(LOG) || !LOG_ENDINGS.contains(&ending.as_str()) {
                    // Debug form: a log must not get control characters of such a name.
                    bail!("{stem:?} is no name of a file of a flow log");
                }
                file_name(stem)
            }
            Self::LogEnded { name, .. } => {
                if !name.contains(LOG) || !name.ends_with(".part") {
                    bail!("{name:?} is no name of a part of a file of a flow log");
                }
                file_name(name)
            }
            Self::Vpc(path) if !path.is_absolute() => bail!("{} is no path", path.display()),
            Self::Vpc(path) if path.to_string_lossy().contains(LOG) => {
                bail!("{} is a file of a flow log", path.display())
            }
            Self::Remove { .. }
            | Self::Vpc(_)
            | Self::Reload
            | Self::Another
            | Self::Output
            | Self::Renew
            | Self::Listens => Ok(()),
        }
    }
}

fn count<T: PartialOrd + std::fmt::Display>(what: &str, count: T, most: T) -> Result<()> {
    if count > most {
        bail!("{count} {what} in one request: {most} at most");
    }
    Ok(())
}

fn wanted(of: &NetworkRequest) -> Result<()> {
    if !is_name(&of.name) {
        // Debug form: a name from the card may have control characters, which a log must not get.
        bail!("{:?} is no name of an instance", of.name);
    }
    match &of.pod {
        // Debug form: a name may have control characters, which a log must not get.
        Some(pod) if !is_name(pod) => bail!("{pod:?} is no name of a pod"),
        Some(_) => {}
        None => of.devices.iter().try_for_each(|one| numbered(&one.name))?,
    }
    count("devices", of.devices.len(), DEVICES_MAX)?;
    of.devices.iter().try_for_each(|one| device(one, of.queues, of.tx_ring))
}

/// Checks the name of a device that the card has chosen. In a pod, its runtime chooses the name.
fn numbered(name: &str) -> Result<()> {
    let number = name.strip_prefix("ens").and_then(|number| number.parse::<u8>().ok());
    if number.is_none_or(|number| format!("ens{number}") != name) {
        bail!("{name:?} is no name of an instance's device");
    }
    Ok(())
}

fn device(of: &Device, queues: u16, ring: u32) -> Result<()> {
    if !pods::is_device(&of.name) {
        // Debug form: a name from the card may have control characters, which a log must not get.
        bail!("{:?} is no name of an instance's device", of.name);
    }
    count("queues", queues, QUEUES_MAX)?;
    count("entries of a ring", ring, RING_MAX)?;
    count("addresses", of.addresses.len(), ADDRESSES_MAX)?;
    let fits =
        |(address, length): &(IpAddr, u8)| *length <= if address.is_ipv4() { 32 } else { 128 };
    of.addresses.iter().all(fits).then_some(()).context("a subnet with too long a prefix")
}

/// Checks the name of a device before it becomes an argument of `ip`. Root of an instance may have
/// chosen the name.
fn named_by_guest(name: &str) -> Result<()> {
    let fits = (1..=DEVICE_BYTES_MAX).contains(&name.len());
    let is_word = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    if !fits || !is_word || name.starts_with('-') {
        bail!("{name:?} is no name of a device");
    }
    Ok(())
}

/// Checks that a path is a vhost-user socket of the settings, or such a path followed by the name
/// of the device of a further interface.
fn vhost_user(path: &Path, spec: &Spec) -> Result<()> {
    let is_other = |of: &Path| {
        let of = of.as_os_str().as_encoded_bytes();
        let rest = path.as_os_str().as_encoded_bytes().strip_prefix(of);
        let number = rest.and_then(|rest| rest.strip_prefix(b".ens"));
        number.is_some_and(|number| number.len() <= 3 && number.iter().all(u8::is_ascii_digit))
    };
    if spec.vhost_user.contains(path) || spec.vhost_user.iter().any(|of| is_other(of)) {
        return Ok(());
    }
    bail!("{} is no socket of this card's settings", path.display())
}

fn file_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.bytes().all(is_plain) {
        bail!("{name:?} is no name of a file of a flow log");
    }
    Ok(())
}

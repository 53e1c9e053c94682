//! The commands of the specification.
//!
//! `ADD` writes a record, announces the pod, launches the instance, and waits for the device. If a
//! step fails, all earlier steps are undone. `DEL` and `GC` terminate the instance, withdraw the
//! announcement, and remove the record, in this order; if the API gives no answer, the record stays
//! and is marked, and a later command finishes the work. A command has the lock of an attachment
//! while it changes it.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use srd_guest::pods::PodInterface;

use crate::answer::{added, addresses_of, after, has_default_route};
use crate::api::{ApiError, Cloud, Launch, Launched, Select};
use crate::config::Config;
use crate::environment::{Attachment, Environment};
use crate::error::{Code, Failure};
use crate::host::{Host, Interface};
use crate::record::{self, ReadError, Record, Records};
use crate::settings::Settings;

/// Longest wait for the device of a launched instance.
pub const DEVICE_WAIT_MAX: Duration = Duration::from_secs(20);
/// Longest wait for the end of the device of a terminated instance.
const END_WAIT_MAX: Duration = Duration::from_secs(3);
/// Largest number of marked records that `ADD` and `DEL` finish in addition to their own work.
pub const FINISHED_MAX: usize = 4;
/// Codes of errors of the API that another configuration avoids.
const WRONG_CONFIG: [&str; 9] = [
    "InvalidSubnetID.NotFound",
    "InvalidSubnetID.Malformed",
    "InvalidGroup.NotFound",
    "InvalidGroupId.Malformed",
    "InvalidParameterValue",
    "InvalidParameterCombination",
    "SecurityGroupsPerInterfaceLimitExceeded",
    "InvalidSecurityGroupID.NotFound",
    // The host of the pod can never run it.
    "Unsupported",
];
/// Codes of errors of the API that may not come back later.
const TRY_AGAIN: [&str; 7] = [
    "InsufficientFreeAddressesInSubnet",
    "InsufficientInstanceCapacity",
    "InternalError",
    "ResourceLimitExceeded",
    "InvalidIPAddress.InUse",
    "RequestLimitExceeded",
    "Unavailable",
];

/// The plugin with a configuration.
#[derive(Clone, Copy)]
pub struct Plugin<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// Records of attachments.
    pub records: &'a Records,
    /// The cloud.
    pub cloud: &'a dyn Cloud,
    /// The machine.
    pub host: &'a dyn Host,
}

/// Whether a request to launch the instance of a pod may have reached the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LaunchState {
    NotSent,
    Sent,
}

impl std::fmt::Debug for Plugin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Returns the error of a command for an error of the API.
fn refused(what: &str, error: &ApiError) -> Failure {
    let code = match error {
        ApiError::Silent(_) | ApiError::Down(_) => Code::TryAgain,
        ApiError::Settings(_) => Code::Config,
        ApiError::Refused { code, .. } if WRONG_CONFIG.contains(&code.as_str()) => Code::Config,
        ApiError::Refused { code, .. } if TRY_AGAIN.contains(&code.as_str()) => Code::TryAgain,
        ApiError::Refused { .. } => Code::Refused,
    };
    Failure::new(code, format!("{what}: {error}"))
}

fn damaged(error: &ReadError, key: &str) -> Failure {
    let what = match error {
        ReadError::Io(what) => what.clone(),
        ReadError::Damaged => format!("the record {key} is damaged: DEL removes it"),
    };
    Failure::new(Code::Io, what)
}

impl Plugin<'_> {
    /// Attaches a container, and returns the result, and the token of the attachment for
    /// [`Plugin::undo`].
    ///
    /// # Errors
    /// If any step fails. All earlier steps are undone then.
    pub fn add(
        &self,
        attachment: &Attachment,
        netns: &Path,
        environment: &Environment,
    ) -> Result<(Value, String), Failure> {
        let settings = Settings::of(self.config, environment)?;
        let _lock = self.records.lock(false)?;
        let key = record::key(&self.config.name, attachment);
        let _own = self.records.lock_key(&key)?;
        match self.records.get(&key) {
            Ok(None) => {}
            Ok(Some(record)) if record.is_detached => self.detach(&key, Some(&record))?,
            Ok(Some(record)) => return Err(record.exists()),
            Err(error) => return Err(damaged(&error, &key)),
        }
        self.finish_some(&key);
        let Attachment { container, ifname } = attachment.clone();
        let checked = self.host.check(netns, &ifname);
        checked.map_err(|what| Failure::new(Code::UnknownContainer, what))?;
        let record = Record {
            network: self.config.name.clone(),
            container,
            ifname,
            netns: netns.to_owned(),
            token: record::random()?,
            instance: None,
            interface: None,
            is_detached: false,
        };
        self.records.create(&key, &record)?;
        match self.attach(&key, &record, &settings) {
            Ok(interface) => {
                let own = added(self.config, &record.ifname, netns, &interface);
                let result = match &self.config.previous {
                    Some(previous) => after(previous, own),
                    None => own,
                };
                Ok((result, record.token))
            }
            Err((mut failure, launch)) => {
                let undone = match launch {
                    LaunchState::NotSent => self.forget(&key),
                    LaunchState::Sent => {
                        let known = self.records.get(&key).ok().flatten();
                        self.detach_or_mark(&key, known.as_ref())
                    }
                };
                if let Err(undone) = undone {
                    failure.details = format!("not undone: {}", undone.message);
                }
                Err(failure)
            }
        }
    }

    /// Announces the pod of a record, launches its instance, and waits for the device.
    fn attach(
        &self,
        key: &str,
        record: &Record,
        settings: &Settings,
    ) -> Result<Interface, (Failure, LaunchState)> {
        let (device, default_route) = (record.ifname.clone(), self.config.default_route);
        let announced =
            self.host.announce(key, &record.netns, &PodInterface { device, default_route });
        let not_sent = |failure| (failure, LaunchState::NotSent);
        announced.map_err(|what| not_sent(Failure::new(Code::Io, what)))?;
        let node = self.records.node().map_err(not_sent)?;
        let launch = Launch {
            pod: key,
            token: &record.token,
            network: &record.network,
            node: &node,
            container: &record.container,
            settings,
        };
        let launched = self.cloud.launch(&launch);
        let Launched { instance, interface, address, mac } = launched.map_err(|error| {
            let state = match error {
                ApiError::Settings(_) | ApiError::Down(_) => LaunchState::NotSent,
                _ => LaunchState::Sent,
            };
            (refused("the pod's instance was not started", &error), state)
        })?;
        let sent = |failure| (failure, LaunchState::Sent);
        let (known, eni) = (Some(instance.clone()), Some(interface));
        let known = Record { instance: known, interface: eni, ..record.clone() };
        self.records.put(key, &known).map_err(sent)?;
        let is_there = |of: Option<&Interface>| {
            let has = |of: &Interface| of.addresses.iter().any(|(own, _)| *own == address);
            of.is_some_and(|of| of.is_up && has(of))
        };
        let place = (record.netns.as_path(), record.ifname.as_str());
        match self.host.wait(place, DEVICE_WAIT_MAX, &is_there) {
            Ok((true, Some(interface))) => Ok(Interface { mac, ..interface }),
            Ok(_) => {
                let message = format!(
                    "the instance {instance} was started, but its interface did not appear in \
                     {}: is the card of this machine the one that runs the instances of the \
                     control plane? Its log names the reason",
                    record.netns.display()
                );
                Err(sent(Failure::new(Code::NoInterface, message)))
            }
            Err(what) => Err(sent(Failure::new(Code::UnknownContainer, what))),
        }
    }

    /// Removes the announcement and the record of a pod without an instance.
    fn forget(&self, key: &str) -> Result<(), Failure> {
        self.host.withdraw(key).map_err(|what| Failure::new(Code::Io, what))?;
        self.records.remove(key)
    }

    /// Detaches a container. An attachment that does not exist is no error.
    ///
    /// # Errors
    /// If a file of the plugin cannot be read or written.
    pub fn del(&self, attachment: &Attachment) -> Result<(), Failure> {
        let _lock = self.records.lock(false)?;
        let key = record::key(&self.config.name, attachment);
        let _own = self.records.lock_key(&key)?;
        let result = match self.records.get(&key) {
            Ok(None) => Ok(()),
            Ok(Some(record)) => self.detach_or_mark(&key, Some(&record)),
            Err(ReadError::Damaged) => self.detach(&key, None),
            Err(error) => Err(damaged(&error, &key)),
        };
        self.finish_some(&key);
        result
    }

    /// Detaches a container if it still has the attachment with this token. Since its `ADD`, other
    /// commands may have detached it, and attached it again.
    ///
    /// # Errors
    /// If a file of the plugin cannot be read or written.
    pub fn undo(&self, attachment: &Attachment, token: &str) -> Result<(), Failure> {
        let _lock = self.records.lock(false)?;
        let key = record::key(&self.config.name, attachment);
        let _own = self.records.lock_key(&key)?;
        match self.records.get(&key) {
            Ok(Some(record)) if record.token == token => self.detach_or_mark(&key, Some(&record)),
            Ok(_) => Ok(()),
            Err(error) => Err(damaged(&error, &key)),
        }
    }

    /// Removes the instance, the announcement and the record of a pod. `record` is `None` if the
    /// record is damaged.
    fn detach(&self, key: &str, record: Option<&Record>) -> Result<(), Failure> {
        let failed = |error: ApiError| refused("the pod's instance was not terminated", &error);
        let instances = match record.and_then(|record| record.instance.clone()) {
            Some(instance) => vec![instance],
            // The plugin ended before it had the answer to the launch.
            None => {
                let found = self.cloud.instances(Select::Pod(key)).map_err(failed)?;
                found.into_iter().map(|(instance, _)| instance).collect()
            }
        };
        for instance in &instances {
            self.cloud.terminate(instance).map_err(failed)?;
        }
        self.host.withdraw(key).map_err(|what| Failure::new(Code::Io, what))?;
        if let Some(record) = record.filter(|_| !instances.is_empty()) {
            // The namespace may be gone. A device that stays longer is the card's to remove.
            let is_gone = |of: Option<&Interface>| of.is_none();
            let _ = self.host.wait((&record.netns, &record.ifname), END_WAIT_MAX, &is_gone);
        }
        self.records.remove(key)
    }

    /// Removes a pod. If the API does not terminate the instance, its device is set down, and the
    /// record is marked, so that a later command removes it.
    fn detach_or_mark(&self, key: &str, record: Option<&Record>) -> Result<(), Failure> {
        let Err(failure) = self.detach(key, record) else { return Ok(()) };
        let Some(record) = record else { return Err(failure) };
        if failure.code == Code::Io {
            return Err(failure);
        }
        let what = &failure.message;
        let _ = writeln!(io::stderr(), "srd-cni: {what}; a later command tries again");
        // The namespace may be gone already.
        let _ = self.host.set_down(key, &record.ifname);
        self.host.withdraw(key).map_err(|what| Failure::new(Code::Io, what))?;
        self.mark(key, record)
    }

    /// Removes a few pods of this network whose records are marked, except the one with this key,
    /// and those on which other commands work. A pod that cannot be removed stays for a later
    /// command. Each command begins at another place, so that such pods do not keep all others.
    fn finish_some(&self, own: &str) {
        let keys = self.records.keys().unwrap_or_default();
        let begin = keys.partition_point(|key| key.as_str() <= own);
        let mut left = FINISHED_MAX;
        for key in keys[begin..].iter().chain(&keys[..begin]).filter(|key| *key != own) {
            if self.marked(key).is_none() {
                continue;
            }
            if left == 0 {
                return;
            }
            let Ok(Some(_lock)) = self.records.try_lock_key(key) else { continue };
            // Another command may have attached the container again.
            let Some(record) = self.marked(key) else { continue };
            left -= 1;
            let Err(failure) = self.detach(key, Some(&record)) else { continue };
            if [Code::TryAgain, Code::Config].contains(&failure.code) {
                return;
            }
            let what = &failure.message;
            let _ = writeln!(io::stderr(), "srd-cni: {what}; a later command tries again");
        }
    }

    /// Returns a record of this network if it is marked.
    fn marked(&self, key: &str) -> Option<Record> {
        let record = self.records.get(key).ok().flatten()?;
        (record.is_detached && record.network == self.config.name).then_some(record)
    }

    /// Checks that the interface of a container is as the result of `ADD` describes it.
    ///
    /// # Errors
    /// With [`Code::Differs`], if it is not.
    pub fn check(&self, attachment: &Attachment, netns: &Path) -> Result<(), Failure> {
        let differs = |what: String| Failure::new(Code::Differs, what);
        let key = record::key(&self.config.name, attachment);
        let record = self.records.get(&key).map_err(|error| damaged(&error, &key))?;
        if record.is_none_or(|record| record.is_detached) {
            let container = &attachment.container;
            let what = format!("the container {container} is not attached: ADD attaches it");
            return Err(Failure::new(Code::UnknownContainer, what));
        }
        let missing = || Failure::new(Code::Config, "CHECK needs the result of ADD in prevResult");
        let previous = self.config.previous.as_ref().ok_or_else(missing)?;
        let device = &attachment.ifname;
        let wanted = addresses_of(previous, device).ok_or_else(|| {
            Failure::new(Code::Config, format!("prevResult has no interface {device}"))
        })?;
        let found = self.host.interface(netns, device);
        let found = found.map_err(|what| Failure::new(Code::UnknownContainer, what))?;
        let found = found.ok_or_else(|| differs(format!("there is no device {device}")))?;
        if !found.is_up {
            return Err(differs(format!("the device {device} is down")));
        }
        if let Some((address, _)) = wanted.iter().find(|of| !found.addresses.contains(of)) {
            return Err(differs(format!("the device {device} has lost the address {address}")));
        }
        // A plugin that follows in the list may have removed the route from the result.
        let has_route = self.config.default_route && has_default_route(previous);
        if has_route && !found.has_default {
            return Err(differs(format!("no default route leads to the device {device}")));
        }
        Ok(())
    }

    /// Checks that `ADD` would succeed: that the API accepts the key, and the subnet has free
    /// addresses.
    ///
    /// # Errors
    /// With [`Code::Unavailable`], if it would not; with [`Code::Disconnected`], if pods have no
    /// network either.
    pub fn status(&self) -> Result<(), Failure> {
        let unavailable = |what: String| Failure::new(Code::Unavailable, what);
        // Without a subnet of the network, each pod names its own.
        let free = match &self.config.subnet {
            Some(subnet) => self.cloud.free_addresses(subnet),
            None => self.cloud.instances(Select::Pod("none")).map(|_| 1),
        };
        let free = free.map_err(|error| match error {
            ApiError::Down(what) => Failure::new(Code::Disconnected, what),
            error => unavailable(error.to_string()),
        });
        match free? {
            0 => Err(unavailable("the subnet has no free address".to_owned())),
            _ => Ok(()),
        }
    }

    /// Removes all pods of the network that the runtime does not have any more. Without a list of
    /// those that it has, as `cnitool gc` calls it, nothing is removed. After a request without an
    /// answer, the other pods are marked for later commands, which could otherwise wait for the
    /// lock in vain.
    ///
    /// # Errors
    /// The first error; all other pods are removed or marked.
    pub fn gc(&self) -> Result<(), Failure> {
        let Some(valid) = &self.config.valid else { return Ok(()) };
        let _lock = self.records.lock(true)?;
        let key = |of: &Attachment| record::key(&self.config.name, of);
        let valid: BTreeSet<String> = valid.iter().map(key).collect();
        let mut result = Ok(());
        let mut is_silent = false;
        let mut kept = BTreeSet::new();
        for key in self.records.keys()? {
            let record = self.records.get(&key);
            let is_other =
                matches!(&record, Ok(Some(record)) if record.network != self.config.name);
            let is_detached = matches!(&record, Ok(Some(record)) if record.is_detached);
            if is_other || (valid.contains(&key) && !is_detached) {
                kept.insert(key);
                continue;
            }
            let detached = match &record {
                Ok(Some(record)) if is_silent => self.mark(&key, record),
                Ok(Some(record)) => self.detach_for_good(&key, record),
                Ok(None) => Ok(()),
                // The network of a damaged record is unknown: its DEL removes it.
                Err(error) => Err(damaged(error, &key)),
            };
            is_silent |= detached.as_ref().is_err_and(|failure| failure.code == Code::TryAgain);
            result = result.and(detached);
        }
        if is_silent {
            return result;
        }
        result.and(self.terminate_strays(&kept))
    }

    /// Removes a pod; if the API does not terminate the instance, marks the record and returns the
    /// error.
    fn detach_for_good(&self, key: &str, record: &Record) -> Result<(), Failure> {
        let detached = self.detach(key, Some(record));
        if detached.is_err() {
            self.mark(key, record)?;
        }
        detached
    }

    /// Marks a record, so that a later command removes its pod.
    fn mark(&self, key: &str, record: &Record) -> Result<(), Failure> {
        self.records.put(key, &Record { is_detached: true, ..record.clone() })
    }

    /// Terminates instances of this machine and network without a record, for example after the
    /// directory of the records was lost in part.
    fn terminate_strays(&self, kept: &BTreeSet<String>) -> Result<(), Failure> {
        let failed = |error: ApiError| refused("instances without a record", &error);
        let node = self.records.node()?;
        let select = Select::Network(&self.config.name, &node);
        let mut result = Ok(());
        for (instance, pod) in self.cloud.instances(select).map_err(failed)? {
            if !kept.contains(&pod) {
                result = result.and(self.cloud.terminate(&instance).map_err(failed));
            }
        }
        result
    }
}

#[cfg(test)]
mod tests;

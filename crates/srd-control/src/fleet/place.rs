//! The choice of a host for an instance.
//!
//! An instance runs on a host of its zone that is connected, accepts its type, and has vCPUs left
//! for it. Of these, the host with the fewest used vCPUs is chosen. A host that has refused an
//! instance a short time ago is chosen only if no other one fits. All instances of a host belong to
//! one account and region. The instance of a pod runs on the host of the pod only.

use std::collections::{BTreeMap, BTreeSet};

use srd_card::profile::InstanceType;
use srd_enrol::Capacity;

use crate::error::ApiError;
use crate::machines::{RUNNING, pod_host, started};
use crate::state::{Cloud, Instance};

/// Account and region.
type Key = (String, String);

/// Code of the error for an instance without a host.
pub(crate) const NO_HOST: &str = "InsufficientInstanceCapacity";
/// Code of the error for the instance of a pod that the host of the pod can never run. EC2 has this
/// code for a type that a zone does not offer.
const NEVER: &str = "Unsupported";
/// vCPUs of an instance whose type is unknown.
const VCPUS_DEFAULT: u32 = 2;

/// A host that accepts instances.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) capacity: Capacity,
    /// Whether other hosts come first.
    is_avoided: bool,
    /// vCPUs of its instances.
    used: u64,
    /// Account and region of its instances.
    of: Option<Key>,
}

impl Candidate {
    pub(super) fn new(name: String, capacity: Capacity, is_avoided: bool) -> Self {
        Self { name, capacity, is_avoided, used: 0, of: None }
    }

    fn take(&mut self, instance: &Instance, at: &Key) {
        self.used += u64::from(vcpus(&instance.instance_type));
        self.of = Some(at.clone());
    }

    /// Whether the instance has no pod of a host, or one of this host.
    fn has_pod(&self, instance: &Instance) -> bool {
        pod_host(instance).is_none_or(|host| host == self.name && self.capacity.pods)
    }

    fn has_room(&self, instance: &Instance, at: &Key) -> bool {
        let Capacity { zone, vcpus: most, types, .. } = &self.capacity;
        let kind = &instance.instance_type;
        *zone == instance.availability_zone
            && (types.is_empty() || types.contains(kind))
            && self.of.as_ref().is_none_or(|of| of == at)
            && self.has_pod(instance)
            && self.used + u64::from(vcpus(kind)) <= u64::from(*most)
    }

    /// Returns why this host can never run an instance of its pods, as long as neither the instance
    /// nor the settings of the host change; `None` if it can when it has room.
    fn excludes(&self, instance: &Instance) -> Option<String> {
        let Instance { instance_type: kind, availability_zone, .. } = instance;
        let Capacity { zone, vcpus: most, types, pods } = &self.capacity;
        if !pods {
            return Some("accepts no pods: set `pods = true` in its [enrol.instances]".to_owned());
        }
        if zone != availability_zone {
            return Some(format!(
                "is in {zone}, and the subnet in {availability_zone}: choose a subnet in {zone}"
            ));
        }
        if !types.is_empty() && !types.contains(kind) {
            let types = types.join(", ");
            return Some(format!("does not accept the type {kind}: choose one of {types}"));
        }
        let needed = vcpus(kind);
        (needed > *most).then(|| {
            format!("accepts {most} vCPUs, and {kind} needs {needed}: choose a smaller type")
        })
    }
}

/// Returns the number of vCPUs of a type.
pub(super) fn vcpus(kind: &str) -> u32 {
    InstanceType::find(kind).map_or(VCPUS_DEFAULT, |of| of.vcpus)
}

/// Gives each instance that starts with the changes of a request its host.
///
/// # Errors
/// If there is no host with room for an instance.
pub(super) fn place(cloud: &mut Cloud, candidates: Vec<Candidate>) -> Result<(), ApiError> {
    let mut new: BTreeSet<(Key, String)> = BTreeSet::new();
    for (at, region) in &cloud.regions {
        new.extend(started(region).map(|instance| (at.clone(), instance.instance_id.clone())));
    }
    if new.is_empty() {
        return Ok(());
    }
    let mut hosts: BTreeMap<String, Candidate> =
        candidates.into_iter().map(|host| (host.name.clone(), host)).collect();
    for (at, region) in &cloud.regions {
        for instance in region.instances.iter().filter(|i| i.state.code == RUNNING) {
            let host = instance.host.as_ref().and_then(|host| hosts.get_mut(host));
            if let Some(host) = host
                && !new.contains(&(at.clone(), instance.instance_id.clone()))
            {
                host.take(instance, at);
            }
        }
    }
    for (at, id) in new {
        let Some(region) = cloud.regions.get_mut(&at) else { continue };
        let Some(instance) = region.instances.get(&id) else { continue };
        let fitting = hosts.values_mut().filter(|host| host.has_room(instance, &at));
        let Some(host) = fitting.min_by_key(|host| (host.is_avoided, host.used)) else {
            return Err(no_room(instance, hosts.values()));
        };
        host.take(instance, &at);
        if let Some(instance) = region.instances.get_mut(&id) {
            instance.host = Some(host.name.clone());
        }
    }
    Ok(())
}

fn no_room<'a>(instance: &Instance, hosts: impl Iterator<Item = &'a Candidate>) -> ApiError {
    let Instance { instance_type, availability_zone, .. } = instance;
    let hosts: Vec<&Candidate> = hosts.collect();
    let of_pod = pod_host(instance).and_then(|name| hosts.iter().find(|of| of.name == name));
    if let Some((host, why)) = of_pod.and_then(|host| Some((host, host.excludes(instance)?))) {
        return ApiError::new(NEVER, format!("The host {} of the pod {why}", host.name));
    }
    let hosts = hosts.into_iter().filter(|host| host.has_pod(instance));
    let where_of_pod = pod_host(instance).map(|host| format!(" on the host {host} of its pod"));
    let of_zone: Vec<&Candidate> =
        hosts.filter(|host| host.capacity.zone == *availability_zone).collect();
    let accepts = |of: &Capacity| of.types.is_empty() || of.types.contains(instance_type);
    let accepting = of_zone.iter().filter(|host| accepts(&host.capacity));
    let free =
        accepting.clone().map(|host| u64::from(host.capacity.vcpus).saturating_sub(host.used));
    let message = format!(
        "There is not enough capacity for {instance_type} in {availability_zone}{}: {} hosts of \
         this zone are ready, {} of them accept the type, and the largest number of vCPUs left \
         there is {} (it needs {})",
        where_of_pod.unwrap_or_default(),
        of_zone.len(),
        accepting.count(),
        free.max().unwrap_or(0),
        vcpus(instance_type)
    );
    ApiError::with_status(500, NO_HOST, message)
}

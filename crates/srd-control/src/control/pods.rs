//! Requests of hosts about their pods: actions of the EC2 API, which a host can use for its own
//! pods only.
//!
//! The subnet of a pod determines the account and the region. The tag [`HOST_TAG`] of an instance
//! names the host that has requested it. Its placement follows this tag.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use srd_enrol::pod::{HOST_TAG, INSTANCES_MAX, POD_TAG, PodAnswer, PodLaunch, PodRequest};

use super::{Control, EC2, unavailable};
use crate::error::{ApiError, ApiResult};
use crate::machines::{TERMINATED, pod_host};
use crate::state::Instance;
use crate::wire::Request;

/// Image of pods. A pod has no image of EC2, and the API needs the identifier of one.
const IMAGE: &str = "ami-00000000";

impl Control {
    /// Answers a request of a host about its pods. `now` is the time in seconds since 1970.
    pub fn pod(&mut self, host: &str, request: PodRequest, now: u64) -> PodAnswer {
        // An earlier request may have ended in a panic.
        self.recover();
        let answer = self.answer_pod(host, request, now);
        self.settle(now);
        answer
            .unwrap_or_else(|error| PodAnswer::Refused { code: error.code, message: error.message })
    }

    fn answer_pod(&mut self, host: &str, request: PodRequest, now: u64) -> ApiResult<PodAnswer> {
        self.follow().map_err(unavailable)?;
        match request {
            PodRequest::Launch(launch) => {
                let at = self.region_of(&launch.subnet)?;
                let answer = self.act(&launch_request(host, launch), &at, now)?;
                launched(&answer).ok_or_else(|| ApiError::internal("a launch without an interface"))
            }
            PodRequest::Terminate { instance } => {
                let Some(at) = self.pod_region(host, &instance)? else {
                    return Ok(PodAnswer::Terminated);
                };
                let action = "TerminateInstances".to_owned();
                let parameters = object(json!({"InstanceIds": [instance]}));
                self.act(&Request { action, parameters }, &at, now)?;
                Ok(PodAnswer::Terminated)
            }
            PodRequest::Instances { tags } => self.pods(host, &tags),
            PodRequest::FreeAddresses { subnet } => {
                let at = self.region_of(&subnet)?;
                let action = "DescribeSubnets".to_owned();
                let parameters = object(json!({"SubnetIds": [subnet]}));
                let answer = self.act(&Request { action, parameters }, &at, now)?;
                let count = answer["Subnets"][0]["AvailableIpAddressCount"].as_u64();
                Ok(PodAnswer::FreeAddresses { count: count.unwrap_or_default() })
            }
        }
    }

    fn act(&mut self, request: &Request, at: &(String, String), now: u64) -> ApiResult<Value> {
        let request_id = self.ids.uuid();
        self.follow().map_err(super::unavailable)?;
        self.perform(EC2, request, at, (now, &request_id)).map(|done| done.answer)
    }

    /// Returns account and region of a subnet.
    fn region_of(&self, subnet: &str) -> ApiResult<(String, String)> {
        let mut regions = self.cloud.regions.iter();
        let found = regions.find(|(_, region)| region.subnets.get(subnet).is_some());
        found.map(|(at, _)| at.clone()).ok_or_else(|| {
            let message = format!("The subnet ID '{subnet}' does not exist");
            ApiError::new("InvalidSubnetID.NotFound", message)
        })
    }

    /// Returns account and region of an instance of a pod of this host; `None` if there is no such
    /// instance.
    ///
    /// # Errors
    /// If the instance is not of a pod of this host.
    fn pod_region(&self, host: &str, id: &str) -> ApiResult<Option<(String, String)>> {
        for (at, region) in &self.cloud.regions {
            let Some(instance) = region.instances.get(id) else { continue };
            if pod_host(instance) == Some(host) {
                return Ok(Some(at.clone()));
            }
            let message = format!("{id} is no instance of a pod of the host {host}");
            return Err(ApiError::with_status(403, "UnauthorizedOperation", message));
        }
        Ok(None)
    }

    /// Returns the instances of pods of this host that have these tags and are not terminated.
    fn pods(&self, host: &str, tags: &[(String, String)]) -> ApiResult<PodAnswer> {
        let tag = |instance: &Instance, key: &str| {
            let tag = instance.tags.iter().find(|tag| tag.key == key);
            tag.map(|tag| tag.value.clone())
        };
        let has_all = |instance: &Instance| {
            tags.iter().all(|(key, value)| tag(instance, key).as_ref() == Some(value))
        };
        let all = self.cloud.regions.values().flat_map(|region| region.instances.iter());
        let own =
            all.filter(|i| pod_host(i) == Some(host) && i.state.code != TERMINATED && has_all(i));
        let pair = |i: &Instance| (i.instance_id.clone(), tag(i, POD_TAG).unwrap_or_default());
        let instances: Vec<_> = own.map(pair).take(INSTANCES_MAX + 1).collect();
        if instances.len() > INSTANCES_MAX {
            let message = format!("The host has more than {INSTANCES_MAX} such pods.");
            return Err(ApiError::new("ResourceLimitExceeded", message));
        }
        Ok(PodAnswer::Instances { instances })
    }
}

/// The members of a JSON object.
fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => serde_json::Map::new(),
    }
}

/// Returns the request to `RunInstances` for the pod of a host.
fn launch_request(host: &str, launch: PodLaunch) -> Request {
    let PodLaunch { token, subnet, groups, address, ipv6, instance_type, mut tags } = launch;
    tags.retain(|(key, _)| key != HOST_TAG);
    tags.push((HOST_TAG.to_owned(), host.to_owned()));
    let tags: Vec<Value> =
        tags.into_iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect();
    let tags =
        ["instance", "network-interface"].map(|of| json!({"ResourceType": of, "Tags": tags}));
    let mut device = object(json!({
        "DeviceIndex": 0, "DeleteOnTermination": true, "SubnetId": subnet,
    }));
    if !groups.is_empty() {
        device.insert("Groups".to_owned(), json!(groups));
    }
    if let Some(address) = address {
        device.insert("PrivateIpAddress".to_owned(), json!(address.to_string()));
    }
    if ipv6 {
        device.insert("Ipv6AddressCount".to_owned(), json!(1));
    }
    let parameters = json!({
        "MinCount": 1, "MaxCount": 1, "ImageId": IMAGE, "ClientToken": token,
        "InstanceType": instance_type, "NetworkInterfaces": [device], "TagSpecifications": tags,
    });
    Request { action: "RunInstances".to_owned(), parameters: object(parameters) }
}

fn launched(answer: &Value) -> Option<PodAnswer> {
    let instance = &answer["Instances"][0];
    let interface = &instance["NetworkInterfaces"][0];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(PodAnswer::Launched {
        instance: text(&instance["InstanceId"])?,
        interface: text(&interface["NetworkInterfaceId"])?,
        address: interface["PrivateIpAddress"].as_str()?.parse::<Ipv4Addr>().ok()?,
        mac: text(&interface["MacAddress"])?,
    })
}

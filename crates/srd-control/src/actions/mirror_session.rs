//! Targets and sessions of traffic mirroring.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{get, get_live, new_tags, not_found, show};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::{MirrorSession, MirrorTarget, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateTrafficMirrorTarget", Handler::Region(create_target)),
    ("DescribeTrafficMirrorTargets", Handler::Region(describe_targets)),
    ("DeleteTrafficMirrorTarget", Handler::Region(delete_target)),
    ("CreateTrafficMirrorSession", Handler::Region(create)),
    ("DescribeTrafficMirrorSessions", Handler::Region(describe)),
    ("ModifyTrafficMirrorSession", Handler::Region(modify)),
    ("DeleteTrafficMirrorSession", Handler::Region(delete)),
];

/// Largest number of sessions of an interface.
const SESSIONS_MAX: usize = 3;
/// Allowed numbers of sessions.
const NUMBERS: std::ops::RangeInclusive<i64> = 1..=32_766;
/// Allowed identifiers of VXLAN networks.
const NETWORKS: std::ops::RangeInclusive<i64> = 0..=16_777_215;
/// Allowed lengths of copied packets, in bytes.
const LENGTHS: std::ops::RangeInclusive<i64> = 1..=8_500;

/// Parameters that contain a target, and the type of the target.
const TARGETS: [(&str, &str); 3] = [
    ("NetworkInterfaceId", "network-interface"),
    ("NetworkLoadBalancerArn", "network-load-balancer"),
    ("GatewayLoadBalancerEndpointId", "gateway-load-balancer-endpoint"),
];

fn create_target(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "traffic-mirror-target")?;
    let given: Vec<_> = TARGETS.into_iter().filter(|(name, _)| request.has(name)).collect();
    let [(name, kind)] = given[..] else {
        let message = "Invalid number of inputs. Only 1 of NetworkInterfaceId, \
                       NetworkLoadBalancerArn or GatewayLoadBalancerEndpointId required.";
        return Err(ApiError::new("InvalidInput", message));
    };
    match (name, request.need(name)?) {
        ("NetworkInterfaceId", id) => _ = get(&region.interfaces, id)?,
        ("GatewayLoadBalancerEndpointId", id) => {
            let lives = |of: &crate::state::VpcEndpoint| {
                of.state != "deleted" && of.vpc_endpoint_type == "GatewayLoadBalancer"
            };
            get_live(&region.endpoints, id, lives)?;
        }
        _ => {
            let message = "Load balancers as targets are not served by this endpoint.";
            return Err(ApiError::new("UnsupportedOperation", message));
        }
    }
    let text = |name: &str| request.text(name).map(str::to_owned);
    let target = MirrorTarget {
        traffic_mirror_target_id: region.ids.id("tmt"),
        r#type: kind.to_owned(),
        network_interface_id: text("NetworkInterfaceId"),
        network_load_balancer_arn: text("NetworkLoadBalancerArn"),
        gateway_load_balancer_endpoint_id: text("GatewayLoadBalancerEndpointId"),
        description: text("Description"),
        owner_id: region.account.clone(),
        tags,
    };
    let shown = show(&target);
    region.mirror_targets.insert(target);
    Ok(json!({"TrafficMirrorTarget": shown, "ClientToken": request.text("ClientToken")}))
}

fn describe_targets(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "TrafficMirrorTargetIds",
        id: "TrafficMirrorTargetId",
        not_found: |id| not_found("tmt", id),
        filters: &[
            ("description", "Description"),
            ("network-interface-id", "NetworkInterfaceId"),
            ("network-load-balancer-arn", "NetworkLoadBalancerArn"),
            ("owner-id", "OwnerId"),
            ("traffic-mirror-target-id", "TrafficMirrorTargetId"),
        ],
        result: "TrafficMirrorTargets",
    };
    listing.describe(request, &Source::new(&region.mirror_targets))
}

fn delete_target(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("TrafficMirrorTargetId")?;
    get(&region.mirror_targets, id)?;
    if region.mirror_sessions.find(|of| of.traffic_mirror_target_id == id).is_some() {
        let message = format!("The target '{id}' is in use by a session");
        return Err(ApiError::new("TrafficMirrorTargetInUse", message));
    }
    region.mirror_targets.remove(id);
    Ok(json!({"TrafficMirrorTargetId": id}))
}

/// Checks a session against its objects, the bounds, and the other sessions of its interface.
fn check(region: &Region, session: &MirrorSession) -> ApiResult<()> {
    get(&region.mirror_filters, &session.traffic_mirror_filter_id)?;
    let source = &session.network_interface_id;
    get(&region.interfaces, source)?;
    let target = get(&region.mirror_targets, &session.traffic_mirror_target_id)?;
    let copies_to = |of: &MirrorSession, interface: Option<&String>| {
        let target = region.mirror_targets.get(&of.traffic_mirror_target_id);
        let to = target.and_then(|target| target.network_interface_id.as_ref());
        interface.is_some() && to == interface
    };
    let to = target.network_interface_id.as_ref();
    let is_both = to == Some(source)
        || region
            .mirror_sessions
            .iter()
            .any(|of| copies_to(of, Some(source)) || to == Some(&of.network_interface_id));
    if is_both {
        let message = "An interface cannot be the source and the target of sessions";
        return Err(ApiError::combination(message));
    }
    for (name, value, range) in [
        ("sessionNumber", Some(session.session_number), NUMBERS),
        ("virtualNetworkId", Some(session.virtual_network_id), NETWORKS),
        ("packetLength", session.packet_length, LENGTHS),
    ] {
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            let message = format!("Value ({value}) for parameter {name} is invalid.");
            return Err(ApiError::invalid(message));
        }
    }
    let others = region.mirror_sessions.iter();
    let others = others.filter(|of| of.network_interface_id == *source);
    let id = &session.traffic_mirror_session_id;
    let others: Vec<_> = others.filter(|of| of.traffic_mirror_session_id != *id).collect();
    if others.len() >= SESSIONS_MAX {
        let message = format!("An interface has at most {SESSIONS_MAX} sessions");
        return Err(ApiError::limit("TrafficMirrorSessionsPerInterfaceLimitExceeded", message));
    }
    if others.iter().any(|of| of.session_number == session.session_number) {
        let message = format!("{source} has a session with the same number already");
        return Err(ApiError::new("TrafficMirrorSessionNumberAlreadyExists", message));
    }
    let same = |of: &MirrorSession| {
        of.traffic_mirror_session_id != *id && of.virtual_network_id == session.virtual_network_id
    };
    if region.mirror_sessions.find(same).is_some() {
        let message = format!("The virtual network {} is in use", session.virtual_network_id);
        return Err(ApiError::invalid(message));
    }
    Ok(())
}

/// Returns an identifier of a VXLAN network that no session has.
fn free_network(region: &mut Region) -> i64 {
    let used: BTreeSet<i64> =
        region.mirror_sessions.iter().map(|of| of.virtual_network_id).collect();
    // A region has fewer sessions than there are networks.
    loop {
        let number = i64::try_from(region.ids.next_u64() >> 40).unwrap_or_default();
        if !used.contains(&number) {
            return number;
        }
    }
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "traffic-mirror-session")?;
    let number = request.number("SessionNumber");
    let number = number.ok_or_else(|| ApiError::missing("SessionNumber"))?;
    let network = match request.number("VirtualNetworkId") {
        Some(network) => network,
        None => free_network(region),
    };
    let session = MirrorSession {
        traffic_mirror_session_id: region.ids.id("tms"),
        traffic_mirror_target_id: request.need("TrafficMirrorTargetId")?.to_owned(),
        traffic_mirror_filter_id: request.need("TrafficMirrorFilterId")?.to_owned(),
        network_interface_id: request.need("NetworkInterfaceId")?.to_owned(),
        owner_id: region.account.clone(),
        packet_length: request.number("PacketLength"),
        session_number: number,
        virtual_network_id: network,
        description: request.text("Description").map(str::to_owned),
        tags,
    };
    check(region, &session)?;
    let shown = show(&session);
    region.mirror_sessions.insert(session);
    Ok(json!({"TrafficMirrorSession": shown, "ClientToken": request.text("ClientToken")}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "TrafficMirrorSessionIds",
        id: "TrafficMirrorSessionId",
        not_found: |id| not_found("tms", id),
        filters: &[
            ("description", "Description"),
            ("network-interface-id", "NetworkInterfaceId"),
            ("owner-id", "OwnerId"),
            ("packet-length", "PacketLength"),
            ("session-number", "SessionNumber"),
            ("traffic-mirror-filter-id", "TrafficMirrorFilterId"),
            ("traffic-mirror-session-id", "TrafficMirrorSessionId"),
            ("traffic-mirror-target-id", "TrafficMirrorTargetId"),
            ("virtual-network-id", "VirtualNetworkId"),
        ],
        result: "TrafficMirrorSessions",
    };
    listing.describe(request, &Source::new(&region.mirror_sessions))
}

fn modify(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("TrafficMirrorSessionId")?;
    let mut session = get(&region.mirror_sessions, id)?.clone();
    for field in request.texts("RemoveFields") {
        match field {
            "packet-length" => session.packet_length = None,
            "virtual-network-id" => session.virtual_network_id = free_network(region),
            _ => session.description = None,
        }
    }
    for (name, field) in [
        ("TrafficMirrorTargetId", &mut session.traffic_mirror_target_id),
        ("TrafficMirrorFilterId", &mut session.traffic_mirror_filter_id),
    ] {
        if let Some(value) = request.text(name) {
            value.clone_into(field);
        }
    }
    session.packet_length = request.number("PacketLength").or(session.packet_length);
    session.session_number = request.number("SessionNumber").unwrap_or(session.session_number);
    let network = request.number("VirtualNetworkId");
    session.virtual_network_id = network.unwrap_or(session.virtual_network_id);
    if let Some(description) = request.text("Description") {
        session.description = Some(description.to_owned());
    }
    check(region, &session)?;
    let shown = show(&session);
    region.mirror_sessions.insert(session);
    Ok(json!({"TrafficMirrorSession": shown}))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("TrafficMirrorSessionId")?;
    region.mirror_sessions.remove(id).ok_or_else(|| not_found("tms", id))?;
    Ok(json!({"TrafficMirrorSessionId": id}))
}

/// Removes the sessions whose source is this interface, and the targets that consist of this
/// interface.
pub(super) fn remove_interface(region: &mut Region, interface: &str) {
    let is_target = |of: &MirrorTarget| of.network_interface_id.as_deref() == Some(interface);
    let targets = region.mirror_targets.ids_where(is_target);
    let ends = |of: &MirrorSession| {
        of.network_interface_id == interface || targets.contains(&of.traffic_mirror_target_id)
    };
    for session in region.mirror_sessions.ids_where(ends) {
        region.mirror_sessions.remove(&session);
    }
    for target in targets {
        region.mirror_targets.remove(&target);
    }
}

//! Actions of the EC2 API on peering connections. The regions of both VPCs keep a copy of a
//! connection.

use serde_json::{Value, json};

use super::list::Listing;
use super::support::{new_tags, not_found, region_of, show, show_all, time};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::regions;
use crate::state::network::{CidrBlock, Ipv6CidrBlock, PeeringOptions, PeeringStatus, PeeringVpc};
use crate::state::{Cloud, PeeringConnection, Region, Vpc};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateVpcPeeringConnection", Handler::Cloud(create)),
    ("AcceptVpcPeeringConnection", Handler::Cloud(accept)),
    ("RejectVpcPeeringConnection", Handler::Cloud(reject)),
    ("DeleteVpcPeeringConnection", Handler::Cloud(delete)),
    ("ModifyVpcPeeringConnectionOptions", Handler::Cloud(modify)),
    ("DescribeVpcPeeringConnections", Handler::Region(describe)),
];

/// Time for which a request for a connection is valid, in seconds.
const PENDING_S: u64 = 7 * 24 * 3600;
/// Ended connections of a region that are still shown.
const ENDED_MAX: usize = 1000;
/// Largest number of requests that wait for an answer, for each accepting VPC.
const PENDING_MAX: usize = 25;
/// Largest number of active connections of a VPC.
const ACTIVE_MAX: usize = 125;

/// Key of a region: the account that owns it, and its name.
type Key = (String, String);

fn side(vpc: &Vpc, region: &str) -> PeeringVpc {
    let v4 = vpc.cidr_block_association_set.iter();
    let v6 = vpc.ipv6_cidr_block_association_set.iter();
    PeeringVpc {
        vpc_id: vpc.vpc_id.clone(),
        owner_id: vpc.owner_id.clone(),
        region: region.to_owned(),
        cidr_block: Some(vpc.cidr_block),
        cidr_block_set: v4.map(|of| CidrBlock { cidr_block: of.cidr_block }).collect(),
        ipv6_cidr_block_set: v6
            .map(|of| Ipv6CidrBlock { ipv6_cidr_block: of.ipv6_cidr_block })
            .collect(),
        peering_options: PeeringOptions::default(),
    }
}

fn status(code: &str, message: &str) -> PeeringStatus {
    PeeringStatus { code: code.to_owned(), message: message.to_owned() }
}

fn create(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "vpc-peering-connection")?;
    let own = region_of(cloud, at)?;
    expire(own);
    let id = own.ids.id("pcx");
    let now = own.now;
    let vpc = super::support::get(&own.vpcs, request.need("VpcId")?)?.clone();
    let peer_id = request.text("PeerVpcId").ok_or_else(|| ApiError::missing("peerVpcId"))?;
    let peer_region = request.text("PeerRegion").unwrap_or(&at.1).to_owned();
    if !regions::exists(&peer_region) {
        return Err(ApiError::invalid(format!("Invalid region: {peer_region}")));
    }
    let peer_owner = request.text("PeerOwnerId").unwrap_or(&at.0).to_owned();
    let peer_at = (peer_owner.clone(), peer_region.clone());
    let is_foreign = peer_owner != at.0;
    cloud.regions.get_mut(&peer_at).map(expire);
    let peer = cloud.regions.get(&peer_at).and_then(|region| region.vpcs.get(peer_id)).cloned();
    let requester = side(&vpc, &at.1);
    let failed = |message: &str| status("failed", message);
    let mut accepter = match &peer {
        Some(peer) => side(peer, &peer_region),
        None => PeeringVpc {
            vpc_id: peer_id.to_owned(),
            owner_id: peer_owner,
            region: peer_region,
            cidr_block: None,
            cidr_block_set: Vec::new(),
            ipv6_cidr_block_set: Vec::new(),
            peering_options: PeeringOptions::default(),
        },
    };
    let state = match &peer {
        None if peer_at == *at => return Err(not_found("vpc", peer_id)),
        None => failed("Incorrect configuration: the VPC does not exist"),
        Some(peer) if peer.vpc_id == vpc.vpc_id => failed(OVERLAP),
        Some(_) => {
            // The blocks of another account are compared at the acceptance, so that a request
            // does not disclose them.
            if !is_foreign && overlaps(&requester, &accepter) {
                failed(OVERLAP)
            } else {
                let message = format!("Pending Acceptance by {}", accepter.owner_id);
                status("pending-acceptance", &message)
            }
        }
    };
    if accepter.owner_id != at.0 {
        // The blocks of another account are shown after the acceptance.
        accepter.cidr_block = None;
        accepter.cidr_block_set.clear();
        accepter.ipv6_cidr_block_set.clear();
    }
    let exists = |old: &PeeringConnection| {
        let sides = [&old.requester_vpc_info.vpc_id, &old.accepter_vpc_info.vpc_id];
        ["pending-acceptance", "active"].contains(&&*old.status.code)
            && sides.contains(&&vpc.vpc_id)
            && sides.contains(&&accepter.vpc_id)
    };
    let own = region_of(cloud, at)?;
    if let Some(old) = own.peerings.find(exists) {
        return Ok(json!({"VpcPeeringConnection": show(old)}));
    }
    let peering = PeeringConnection {
        vpc_peering_connection_id: id,
        status: state,
        requester_vpc_info: requester,
        accepter_vpc_info: accepter,
        expiration_time: Some(time(now + PENDING_S)),
        tags,
    };
    own.peerings.insert(peering.clone());
    trim(own);
    if peering.status.code == "pending-acceptance" {
        let region = region_of(cloud, &peer_at)?;
        let waiting = region.peerings.iter().filter(|old| {
            old.status.code == "pending-acceptance"
                && old.vpc_peering_connection_id != peering.vpc_peering_connection_id
                && old.accepter_vpc_info.vpc_id == peering.accepter_vpc_info.vpc_id
        });
        if waiting.count() >= PENDING_MAX {
            let message = "The number of requests that wait for the VPC has reached its limit.";
            let code = "OutstandingVpcPeeringConnectionLimitExceeded";
            return Err(ApiError::limit(code, message));
        }
    }
    if peering.status.code != "failed" && peer_at != *at {
        let mut copy = peering.clone();
        copy.tags.clear();
        let peer = region_of(cloud, &peer_at)?;
        peer.peerings.insert(copy);
        trim(peer);
    }
    let mut shown = show(&peering);
    if peering.status.code == "pending-acceptance" {
        shown["Status"] = json!(status("initiating-request", "Initiating Request to "));
        shown["Status"]["Message"] =
            format!("Initiating Request to {}", peering.accepter_vpc_info.owner_id).into();
    }
    Ok(json!({"VpcPeeringConnection": shown}))
}

/// Message of a connection that cannot exist.
const OVERLAP: &str = "Failed due to incorrect VPC-ID, Account ID, or overlapping CIDR range";

/// Whether two VPCs have addresses in common.
fn overlaps(a: &PeeringVpc, b: &PeeringVpc) -> bool {
    a.blocks().any(|a| b.blocks().any(|b| a.contains(&b) || b.contains(&a)))
}

/// Ends the requests of a region that have waited too long.
fn expire(region: &mut Region) {
    let now = time(region.now);
    let late = region.peerings.ids_where(|peering| {
        peering.status.code == "pending-acceptance"
            && peering.expiration_time.as_ref().is_some_and(|until| *until < now)
    });
    for id in late {
        if let Some(peering) = region.peerings.get_mut(&id) {
            peering.status = status("expired", "The request has expired");
        }
    }
}

/// Removes the oldest of too many ended connections.
fn trim(region: &mut Region) {
    let ended = region.peerings.ids_where(|old| is_ended(&old.status.code));
    for old in ended.iter().rev().skip(ENDED_MAX) {
        region.peerings.remove(old);
    }
}

fn is_ended(code: &str) -> bool {
    ["deleted", "rejected", "failed", "expired"].contains(&code)
}

/// Returns the connection of a request, in its current state: a request that waited too long has
/// expired.
fn find(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<PeeringConnection> {
    let id = request.need("VpcPeeringConnectionId")?;
    let own = region_of(cloud, at)?;
    let now = time(own.now);
    let mut peering = super::support::get(&own.peerings, id)?.clone();
    let late = peering.expiration_time.as_ref().is_some_and(|until| *until < now);
    if peering.status.code == "pending-acceptance" && late {
        peering.status = status("expired", "The request has expired");
    }
    Ok(peering)
}

/// Keys of the two sides of a connection.
fn sides(peering: &PeeringConnection) -> [Key; 2] {
    [&peering.requester_vpc_info, &peering.accepter_vpc_info]
        .map(|side| (side.owner_id.clone(), side.region.clone()))
}

/// Stores a changed peering connection in the regions of both sides. Each side keeps its own tags.
fn store(cloud: &mut Cloud, peering: &PeeringConnection) {
    for at in sides(peering) {
        let Some(region) = cloud.regions.get_mut(&at) else { continue };
        if let Some(copy) = region.peerings.get_mut(&peering.vpc_peering_connection_id) {
            let tags = std::mem::take(&mut copy.tags);
            *copy = PeeringConnection { tags, ..peering.clone() };
        }
        trim(region);
        let id = Some(peering.vpc_peering_connection_id.as_str());
        match peering.status.code.as_str() {
            "active" => revive(region, id),
            code if is_ended(code) => {
                region.blackhole_routes(|r| r.vpc_peering_connection_id.as_deref() == id);
            }
            _ => {}
        }
    }
}

/// Marks the routes through a connection as active.
fn revive(region: &mut Region, id: Option<&str>) {
    let uses = |r: &crate::state::network::Route| r.vpc_peering_connection_id.as_deref() == id;
    for table in region.route_tables.ids_where(|table| table.routes.iter().any(uses)) {
        if let Some(table) = region.route_tables.get_mut(&table) {
            for route in table.routes.iter_mut().filter(|route| uses(route)) {
                "active".clone_into(&mut route.state);
            }
        }
    }
}

fn wrong_state(peering: &PeeringConnection, verb: &str) -> ApiError {
    let message = format!(
        "{} is not in a state in which it can be {verb}: {}",
        peering.vpc_peering_connection_id, peering.status.code
    );
    ApiError::new("InvalidStateTransition", message)
}

/// Checks that a request to accept or to reject a connection comes from the accepting account, in
/// its region.
fn check_accepter(peering: &PeeringConnection, at: &Key, verb: &str) -> ApiResult<()> {
    let (account, region) = at;
    let (id, accepter) = (&peering.vpc_peering_connection_id, &peering.accepter_vpc_info);
    let message = if accepter.owner_id != *account {
        format!("User ({account}) cannot {verb} peering {id}")
    } else if accepter.region != *region {
        let permitted = if verb == "accept" { "accepted" } else { "accepted or rejected" };
        format!(
            "Incorrect region ({region}) specified for this request. VPC peering connection {id} \
             must be {permitted} in region {}",
            accepter.region
        )
    } else {
        return Ok(());
    };
    Err(ApiError::new("OperationNotPermitted", message))
}

fn accept(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let mut peering = find(cloud, at, request)?;
    check_accepter(&peering, at, "accept")?;
    if peering.status.code != "pending-acceptance" {
        return Err(wrong_state(&peering, "accepted"));
    }
    let own = region_of(cloud, at)?;
    let vpc = super::support::get(&own.vpcs, &peering.accepter_vpc_info.vpc_id)?;
    peering.accepter_vpc_info = side(vpc, &at.1);
    // The requester may have got further blocks since its request.
    let [requester_at, _] = sides(&peering);
    let requester = cloud.regions.get(&requester_at);
    let requester = requester.and_then(|of| of.vpcs.get(&peering.requester_vpc_info.vpc_id));
    if let Some(vpc) = requester {
        peering.requester_vpc_info = side(vpc, &requester_at.1);
    }
    for (at, vpc) in sides(&peering)
        .iter()
        .zip([&peering.requester_vpc_info.vpc_id, &peering.accepter_vpc_info.vpc_id])
    {
        let active = cloud.regions.get(at).into_iter().flat_map(|of| of.peerings.iter());
        let active = active.filter(|old| {
            old.status.code == "active"
                && [&old.requester_vpc_info.vpc_id, &old.accepter_vpc_info.vpc_id].contains(&vpc)
        });
        if active.count() >= ACTIVE_MAX {
            let message = format!("The VPC {vpc} has {ACTIVE_MAX} active connections.");
            let code = "ActiveVpcPeeringConnectionPerVpcLimitExceeded";
            return Err(ApiError::limit(code, message));
        }
    }
    if overlaps(&peering.requester_vpc_info, &peering.accepter_vpc_info) {
        peering.status = status("failed", OVERLAP);
        store(cloud, &peering);
        return Ok(json!({"VpcPeeringConnection": show(&peering)}));
    }
    peering.status = status("active", "Active");
    peering.expiration_time = None;
    store(cloud, &peering);
    Ok(json!({"VpcPeeringConnection": show(&find(cloud, at, request)?)}))
}

fn reject(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let mut peering = find(cloud, at, request)?;
    check_accepter(&peering, at, "reject")?;
    if peering.status.code != "pending-acceptance" {
        return Err(wrong_state(&peering, "rejected"));
    }
    peering.status = status("rejected", "Inactive");
    store(cloud, &peering);
    super::support::success()
}

fn delete(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let mut peering = find(cloud, at, request)?;
    if !["active", "pending-acceptance"].contains(&&*peering.status.code) {
        return Err(wrong_state(&peering, "deleted"));
    }
    // The accepter rejects a request that waits. It deletes an active connection only.
    if peering.status.code == "pending-acceptance" && peering.requester_vpc_info.owner_id != at.0 {
        let id = &peering.vpc_peering_connection_id;
        let message = format!("User ({}) cannot delete peering {id}: it can be rejected", at.0);
        return Err(ApiError::new("OperationNotPermitted", message));
    }
    peering.status = status("deleted", &format!("Deleted by {}", at.0));
    store(cloud, &peering);
    super::support::success()
}

fn modify(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let mut peering = find(cloud, at, request)?;
    if peering.status.code != "active" {
        return Err(wrong_state(&peering, "modified"));
    }
    let mut answer = json!({});
    let [requester, accepter] = sides(&peering);
    for (name, owner, side) in [
        ("RequesterPeeringConnectionOptions", requester, &mut peering.requester_vpc_info),
        ("AccepterPeeringConnectionOptions", accepter, &mut peering.accepter_vpc_info),
    ] {
        let Some(of) = request.part(name) else { continue };
        if owner != *at {
            let message = "The options of a side are changed in its account and region";
            return Err(ApiError::new("OperationNotPermitted", message));
        }
        if let Some(allow) = of["AllowDnsResolutionFromRemoteVpc"].as_bool() {
            side.peering_options.allow_dns_resolution_from_remote_vpc = allow;
        }
        answer[name] = show(&side.peering_options);
    }
    store(cloud, &peering);
    Ok(answer)
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let now = time(region.now);
    let mut all = show_all(&region.peerings);
    for peering in &mut all {
        let late = peering["ExpirationTime"].as_str().is_some_and(|until| until < now.as_str());
        if peering["Status"]["Code"] == "pending-acceptance" && late {
            peering["Status"] = json!(status("expired", "The request has expired"));
        }
    }
    let listing = Listing {
        ids: "VpcPeeringConnectionIds",
        id: "VpcPeeringConnectionId",
        not_found: |id| not_found("pcx", id),
        filters: &[
            ("accepter-vpc-info.cidr-block", "AccepterVpcInfo.CidrBlock"),
            ("accepter-vpc-info.owner-id", "AccepterVpcInfo.OwnerId"),
            ("accepter-vpc-info.vpc-id", "AccepterVpcInfo.VpcId"),
            ("expiration-time", "ExpirationTime"),
            ("requester-vpc-info.cidr-block", "RequesterVpcInfo.CidrBlock"),
            ("requester-vpc-info.owner-id", "RequesterVpcInfo.OwnerId"),
            ("requester-vpc-info.vpc-id", "RequesterVpcInfo.VpcId"),
            ("status-code", "Status.Code"),
            ("status-message", "Status.Message"),
            ("vpc-peering-connection-id", "VpcPeeringConnectionId"),
        ],
        result: "VpcPeeringConnections",
    };
    listing.answer(request, all)
}

//! Peering attachments of transit gateways. Both regions keep a copy of an attachment, with the
//! same identifier.

use serde_json::{Value, json};

use super::list::Listing;
use super::support::{get, new_tags, not_found, region_of, show};
use super::{Actions, Handler, transit_attachment};
use crate::error::{ApiError, ApiResult};
use crate::regions;
use crate::state::transit::{TransitPeering, TransitSide, TransitStatus};
use crate::state::{Cloud, Region, TransitAttachment};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateTransitGatewayPeeringAttachment", Handler::Cloud(create)),
    ("DescribeTransitGatewayPeeringAttachments", Handler::Region(describe)),
    ("AcceptTransitGatewayPeeringAttachment", Handler::Cloud(accept)),
    ("RejectTransitGatewayPeeringAttachment", Handler::Cloud(reject)),
    ("DeleteTransitGatewayPeeringAttachment", Handler::Cloud(delete)),
];

/// State of an attachment that waits for its acceptance.
const PENDING: &str = "pendingAcceptance";

/// Largest number of requests that wait for an answer, for each accepting gateway.
const PENDING_MAX: usize = 10;

/// Account and region that identify a state.
type Key = (String, String);

fn create(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "transit-gateway-attachment")?;
    let peer_at =
        (request.need("PeerAccountId")?.to_owned(), request.need("PeerRegion")?.to_owned());
    if !regions::exists(&peer_at.1) {
        return Err(ApiError::invalid(format!("Invalid region: {}", peer_at.1)));
    }
    let peer_id = request.need("PeerTransitGatewayId")?;
    let own = region_of(cloud, at)?;
    let gateway = get(&own.transit_gateways, request.need("TransitGatewayId")?)?.clone();
    if gateway.transit_gateway_id == peer_id {
        let message = "A transit gateway cannot be peered with itself";
        return Err(ApiError::invalid(message));
    }
    let peer = cloud.regions.get(&peer_at).and_then(|of| of.transit_gateways.get(peer_id));
    let peer = peer.ok_or_else(|| not_found("tgw", peer_id))?.clone();
    check_limits(cloud, at, &peer_at, [&gateway.transit_gateway_id, peer_id])?;
    let side = |id: &str, at: &Key| TransitSide {
        transit_gateway_id: id.to_owned(),
        owner_id: at.0.clone(),
        region: at.1.clone(),
    };
    let own = region_of(cloud, at)?;
    let mut attachment = transit_attachment::new(own, &gateway);
    // A peering is associated with a table by a request of its own, and propagates no routes.
    attachment.association = None;
    attachment.propagations.clear();
    "peering".clone_into(&mut attachment.resource_type);
    peer_id.clone_into(&mut attachment.resource_id);
    attachment.resource_owner_id.clone_from(&peer_at.0);
    PENDING.clone_into(&mut attachment.state);
    attachment.peering = Some(TransitPeering {
        requester_tgw_info: side(&gateway.transit_gateway_id, at),
        accepter_tgw_info: side(peer_id, &peer_at),
        options: request.part("Options").map(|of| json!({"DynamicRouting": of["DynamicRouting"]})),
        status: TransitStatus { code: PENDING.to_owned(), message: None },
    });
    let mut copy = attachment.clone();
    attachment.tags = tags;
    let shown = view(&attachment);
    own.transit_attachments.insert(attachment);
    if peer_at != *at {
        copy.transit_gateway_id.clone_from(&peer.transit_gateway_id);
        copy.transit_gateway_owner_id.clone_from(&peer_at.0);
        copy.resource_id = gateway.transit_gateway_id;
        copy.resource_owner_id.clone_from(&at.0);
        region_of(cloud, &peer_at)?.transit_attachments.insert(copy);
    }
    Ok(json!({"TransitGatewayPeeringAttachment": shown}))
}

/// Checks that two gateways are not peered yet, and that few requests wait at the accepting one,
/// which may belong to another account. `gateways`: the requesting one, and the accepting one.
fn check_limits(cloud: &Cloud, at: &Key, peer_at: &Key, gateways: [&str; 2]) -> ApiResult<()> {
    let of = |at: &Key| {
        let region = cloud.regions.get(at);
        let all = region.into_iter().flat_map(|region| region.transit_attachments.iter());
        all.filter_map(|of| Some((of.state.as_str(), of.peering.as_ref()?)))
    };
    let is_same = |(state, of): (&str, &TransitPeering)| {
        let sides = [&of.requester_tgw_info, &of.accepter_tgw_info];
        let has = |id: &&str| sides.iter().any(|side| side.transit_gateway_id == **id);
        !["deleted", "rejected"].contains(&state) && gateways.iter().all(has)
    };
    if of(at).any(is_same) {
        let [own, peer] = gateways;
        let message = format!("{own} has a peering attachment with {peer} already.");
        return Err(ApiError::new("DuplicateTransitGatewayAttachment", message));
    }
    let waits = |(state, of): &(&str, &TransitPeering)| {
        *state == PENDING && of.accepter_tgw_info.transit_gateway_id == gateways[1]
    };
    if of(peer_at).filter(waits).count() >= PENDING_MAX {
        let message = format!(
            "At most {PENDING_MAX} peering requests wait for the transit gateway {}.",
            gateways[1]
        );
        return Err(ApiError::limit("ResourceLimitExceeded", message));
    }
    Ok(())
}

/// Returns a peering attachment as its description.
fn view(attachment: &TransitAttachment) -> Value {
    let mut shown = show(attachment);
    let peering = shown["Peering"].take();
    for name in ["RequesterTgwInfo", "AccepterTgwInfo", "Options", "Status"] {
        shown[name] = peering[name].clone();
    }
    shown
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "TransitGatewayAttachmentIds",
        id: "TransitGatewayAttachmentId",
        not_found: |id| not_found("tgw-attach", id),
        filters: &[
            ("local-owner-id", "TransitGatewayOwnerId"),
            ("remote-owner-id", "ResourceOwnerId"),
            ("state", "State"),
            ("transit-gateway-attachment-id", "TransitGatewayAttachmentId"),
            ("transit-gateway-id", "TransitGatewayId"),
        ],
        result: "TransitGatewayPeeringAttachments",
    };
    let all = region.transit_attachments.iter().filter(|of| of.peering.is_some());
    listing.answer(request, all.map(view).collect())
}

/// Returns the peering attachment of a request, and the keys of its sides: requester and accepter.
fn find(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<(String, [Key; 2])> {
    let id = request.need("TransitGatewayAttachmentId")?;
    let attachment = transit_attachment::find(region_of(cloud, at)?, id)?;
    let peering = attachment.peering.as_ref().ok_or_else(|| not_found("tgw-attach", id))?;
    let sides = [&peering.requester_tgw_info, &peering.accepter_tgw_info];
    Ok((id.to_owned(), sides.map(|side| (side.owner_id.clone(), side.region.clone()))))
}

/// Checks that the attachment waits for an answer, and that the request comes from the accepter.
fn check_pending(
    cloud: &mut Cloud,
    at: &Key,
    (id, [_, accepter]): &(String, [Key; 2]),
    verb: &str,
) -> ApiResult<()> {
    if accepter != at {
        let message = format!("Cannot {verb} {id} as the source of the peering request.");
        return Err(ApiError::invalid(message));
    }
    let state = &transit_attachment::find(region_of(cloud, at)?, id)?.state;
    if state != PENDING {
        let message = format!("{id} is in the state {state}.");
        return Err(ApiError::new("IncorrectState", message));
    }
    Ok(())
}

/// Changes the state of an attachment on both sides, and returns its description.
fn change(
    cloud: &mut Cloud,
    at: &Key,
    (id, sides): &(String, [Key; 2]),
    state: &str,
) -> ApiResult<Value> {
    let mut shown = None;
    for side in sides {
        let Some(region) = cloud.regions.get_mut(side) else { continue };
        if let Some(attachment) = region.transit_attachments.get_mut(id) {
            state.clone_into(&mut attachment.state);
            if state != "available" {
                attachment.association = None;
            }
            if let Some(peering) = &mut attachment.peering {
                state.clone_into(&mut peering.status.code);
            }
            if side == at {
                shown = Some(view(attachment));
            }
        }
        transit_attachment::trim_ended(region);
    }
    Ok(json!({"TransitGatewayPeeringAttachment": shown}))
}

fn accept(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let of = find(cloud, at, request)?;
    check_pending(cloud, at, &of, "accept")?;
    change(cloud, at, &of, "available")
}

fn reject(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let of = find(cloud, at, request)?;
    check_pending(cloud, at, &of, "reject")?;
    change(cloud, at, &of, "rejected")
}

fn delete(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let of = find(cloud, at, request)?;
    change(cloud, at, &of, "deleted")
}

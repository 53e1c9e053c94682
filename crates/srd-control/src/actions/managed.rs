//! Interfaces that services create and manage: the interfaces of endpoints and of transit gateways.

use super::support::now;
use super::{free, interface, interface_address};
use crate::error::ApiResult;
use crate::state::interface::{Attachment, GroupIdentifier};
use crate::state::{NetworkInterface, Region, Subnet};

/// Kind of a managed interface.
pub(super) struct Kind {
    /// Type of the interface, for example `vpc_endpoint`.
    pub(super) interface_type: &'static str,
    /// Description of the interface.
    pub(super) description: String,
    /// Service that manages the interface.
    pub(super) requester: &'static str,
}

/// Adds a managed interface to a subnet, and returns its identifier. In a subnet without IPv4 it
/// gets an IPv6 address.
pub(super) fn add(
    region: &mut Region,
    subnet: &Subnet,
    groups: Vec<GroupIdentifier>,
    kind: Kind,
) -> ApiResult<String> {
    let mut own = interface::add(region, subnet, groups, None)?;
    let id = own.network_interface_id.clone();
    if own.private_ip_address.is_none() && own.ipv6_addresses.is_empty() {
        for ip in free::v6(region, subnet, 1)? {
            interface_address::add_v6(region, &id, ip)?;
        }
        own.ipv6_addresses =
            region.interfaces.get(&id).map_or(Vec::new(), |of| of.ipv6_addresses.clone());
    }
    own.description = kind.description;
    kind.interface_type.clone_into(&mut own.interface_type);
    attach(region, &mut own, kind.requester);
    region.interfaces.insert(own);
    Ok(id)
}

/// Marks an interface as in use by the service that manages it.
pub(super) fn attach(region: &mut Region, own: &mut NetworkInterface, requester: &str) {
    "in-use".clone_into(&mut own.status);
    own.requester_managed = true;
    own.requester_id = Some(requester.to_owned());
    own.attachment = Some(Attachment {
        attachment_id: region.ids.id("eni-attach"),
        instance_id: None,
        instance_owner_id: "amazon-aws".to_owned(),
        device_index: 1,
        network_card_index: 0,
        status: "attached".to_owned(),
        attach_time: now(region),
        delete_on_termination: false,
        ena_srd_specification: None,
        public_at_start: false,
    });
}

//! Instance types: descriptions, and the limits that a launch has to meet.
//!
//! The table of types is the one of the card. The regions of this endpoint offer all types in all
//! zones.

use serde_json::{Value, json};
use srd_card::profile::InstanceType;
use srd_card::profile::catalogue::{Ena, Hypervisor};

use crate::actions::list::{self, Filters, Listing};
use crate::actions::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::regions;
use crate::state::Region;
use crate::wire::Request;

pub(in crate::actions) const ACTIONS: Actions = &[
    ("DescribeInstanceTypes", Handler::Region(describe)),
    ("DescribeInstanceTypeOfferings", Handler::Region(describe_offerings)),
];

/// Type of an instance whose launch names no type, as EC2 documents it.
pub(in crate::actions) const TYPE_DEFAULT: &str = "m1.small";

/// Returns the type with this name.
///
/// # Errors
/// If there is no such type.
pub(in crate::actions) fn find(name: &str) -> ApiResult<InstanceType> {
    let message = format!("Invalid value '{name}' for InstanceType.");
    InstanceType::find(name).map_err(|_| ApiError::invalid(message))
}

/// Checks that an instance of this type can have this number of interfaces.
///
/// # Errors
/// If the type has fewer interfaces.
pub(in crate::actions) fn check_interfaces(kind: &InstanceType, count: usize) -> ApiResult<()> {
    if count <= usize::from(kind.enis_max) {
        return Ok(());
    }
    let message = format!("Interface count {count} exceeds the limit for {}", kind.name);
    Err(ApiError::limit("AttachmentLimitExceeded", message))
}

const LISTING: Listing = Listing {
    ids: "InstanceTypes",
    id: "InstanceType",
    not_found: |name| {
        let message = format!("The following supplied instance types do not exist: [{name}]");
        ApiError::new("InvalidInstanceType", message)
    },
    filters: &[
        ("bare-metal", "BareMetal"),
        ("burstable-performance-supported", "BurstablePerformanceSupported"),
        ("hypervisor", "Hypervisor"),
        ("instance-type", "InstanceType"),
        ("memory-info.size-in-mib", "MemoryInfo.SizeInMiB"),
        ("network-info.efa-supported", "NetworkInfo.EfaSupported"),
        ("network-info.ena-srd-supported", "NetworkInfo.EnaSrdSupported"),
        ("network-info.ena-support", "NetworkInfo.EnaSupport"),
        (
            "network-info.encryption-in-transit-supported",
            "NetworkInfo.EncryptionInTransitSupported",
        ),
        ("network-info.flexible-ena-queues-support", "NetworkInfo.FlexibleEnaQueuesSupport"),
        ("network-info.ipv4-addresses-per-interface", "NetworkInfo.Ipv4AddressesPerInterface"),
        ("network-info.ipv6-addresses-per-interface", "NetworkInfo.Ipv6AddressesPerInterface"),
        ("network-info.ipv6-supported", "NetworkInfo.Ipv6Supported"),
        ("network-info.maximum-network-cards", "NetworkInfo.MaximumNetworkCards"),
        ("network-info.maximum-network-interfaces", "NetworkInfo.MaximumNetworkInterfaces"),
        ("network-info.network-performance", "NetworkInfo.NetworkPerformance"),
        ("processor-info.supported-architecture", "ProcessorInfo.SupportedArchitectures"),
        ("vcpu-info.default-vcpus", "VCpuInfo.DefaultVCpus"),
    ],
    result: "InstanceTypes",
};

fn describe(_: &mut Region, request: &Request) -> ApiResult<Value> {
    let named = request.texts("InstanceTypes");
    let all = InstanceType::all();
    let all = all.filter(|kind| named.is_empty() || named.contains(&kind.name));
    LISTING.answer(request, all.map(|kind| view(&kind)).collect())
}

/// Returns a type as its description. Members that the table does not contain are left out.
fn view(kind: &InstanceType) -> Value {
    json!({
        "InstanceType": kind.name,
        "BareMetal": kind.hypervisor == Hypervisor::Metal,
        "Hypervisor": match kind.hypervisor {
            Hypervisor::Nitro => Some("nitro"),
            Hypervisor::Xen => Some("xen"),
            Hypervisor::Metal => None,
        },
        "BurstablePerformanceSupported": is_burstable(kind.family()),
        "ProcessorInfo": {"SupportedArchitectures": [architecture(kind.family())]},
        "VCpuInfo": {"DefaultVCpus": kind.vcpus},
        "MemoryInfo": {"SizeInMiB": kind.memory_mib},
        "NetworkInfo": network(kind),
    })
}

fn network(kind: &InstanceType) -> Value {
    let performance = match kind.peak_bps > kind.baseline_bps {
        true => format!("Up to {} Gigabit", gbps(kind.peak_bps)),
        false => format!("{} Gigabit", gbps(kind.peak_bps)),
    };
    // The table has the sums of all cards, so the cards of types with several are not shown.
    let cards: Vec<Value> = match kind.network_cards {
        1 => vec![json!({
            "NetworkCardIndex": 0,
            "NetworkPerformance": performance,
            "MaximumNetworkInterfaces": kind.enis_max,
            "BaselineBandwidthInGbps": gbps(kind.baseline_bps),
            "PeakBandwidthInGbps": gbps(kind.peak_bps),
            "DefaultEnaQueueCountPerInterface": kind.queues_default,
            "MaximumEnaQueueCount": kind.queues_max,
            "MaximumEnaQueueCountPerInterface": kind.queues_max_per_eni,
        })],
        _ => Vec::new(),
    };
    let (tcp, stream, udp) = kind.timeouts.seconds();
    json!({
        "NetworkPerformance": performance,
        "MaximumNetworkInterfaces": kind.enis_max,
        "MaximumNetworkCards": kind.network_cards,
        "DefaultNetworkCardIndex": 0,
        "NetworkCards": cards,
        "Ipv4AddressesPerInterface": kind.ipv4_per_eni,
        "Ipv6AddressesPerInterface": kind.ipv6_per_eni,
        "Ipv6Supported": kind.ipv6_per_eni > 0,
        "EnaSupport": match kind.ena {
            Ena::Required => "required",
            Ena::Supported => "supported",
            Ena::Unsupported => "unsupported",
        },
        "EfaSupported": kind.efa,
        "EncryptionInTransitSupported": kind.encryption_in_transit,
        "EnaSrdSupported": kind.ena_srd,
        "FlexibleEnaQueuesSupport": match kind.queues_max {
            Some(_) => "supported",
            None => "unsupported",
        },
        "ConnectionTrackingConfiguration": {
            "DefaultTcpEstablishedTimeout": tcp,
            "DefaultUdpStreamTimeout": stream,
            "DefaultUdpTimeout": udp,
        },
    })
}

/// Converts bits per second to Gb/s.
fn gbps(bps: u64) -> f64 {
    // Bandwidths are below 2^53 bits per second.
    #[allow(clippy::cast_precision_loss)]
    let bps = bps as f64;
    bps / 1e9
}

/// Whether the family has performance in bursts: `t` and a digit, except `t1`.
fn is_burstable(family: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    family != "t1" && family.strip_prefix('t').is_some_and(|rest| rest.starts_with(is_digit))
}

/// Returns the architecture of a family: a `g` after the number of the generation stands for a
/// processor of Arm, as EC2 documents its names.
fn architecture(family: &str) -> &'static str {
    let generation = family.find(|c: char| c.is_ascii_digit()).unwrap_or(family.len());
    match family {
        "mac1" => "x86_64_mac",
        "a1" => "arm64",
        _ if family.starts_with("mac") => "arm64_mac",
        _ if family[generation..].contains('g') => "arm64",
        _ => "x86_64",
    }
}

const OFFERING_FILTERS: Filters = &[("instance-type", "InstanceType"), ("location", "Location")];

fn describe_offerings(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let kind = request.text("LocationType").unwrap_or("region");
    let zones = regions::zones(&region.name).into_iter();
    let locations: Vec<String> = match kind {
        "region" => vec![region.name.clone()],
        "availability-zone" => zones.map(|(name, _)| name).collect(),
        "availability-zone-id" => zones.map(|(_, id)| id).collect(),
        // There are no outposts.
        _ => Vec::new(),
    };
    let mut offerings = Vec::new();
    for of in InstanceType::all() {
        let all = locations.iter().map(|location| {
            json!({"InstanceType": of.name, "LocationType": kind, "Location": location,
                   "Id": format!("{}/{location}", of.name)})
        });
        offerings.extend(all);
    }
    let offerings = list::filter(request, OFFERING_FILTERS, offerings)?;
    list::page(request, "InstanceTypeOfferings", "Id", offerings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_follow_from_the_names_of_families() {
        for (name, expected) in [
            ("c7i", "x86_64"),
            ("c7gn", "arm64"),
            ("g5", "x86_64"),
            ("g5g", "arm64"),
            ("im4gn", "arm64"),
            ("a1", "arm64"),
            ("mac1", "x86_64_mac"),
            ("mac2-m2", "arm64_mac"),
            ("p4d", "x86_64"),
        ] {
            assert_eq!(architecture(name), expected, "{name}");
        }
        assert!(is_burstable("t3a") && !is_burstable("t1") && !is_burstable("trn1"));
    }

    #[test]
    fn a_type_has_the_number_of_interfaces_of_the_table() {
        let kind = find("c7i.large").unwrap();
        assert!(check_interfaces(&kind, 3).is_ok());
        let error = check_interfaces(&kind, 4).unwrap_err();
        assert_eq!(error.code, "AttachmentLimitExceeded");
        assert_eq!(error.message, "Interface count 4 exceeds the limit for c7i.large");
        assert_eq!(find("c7i.lagre").unwrap_err().code, "InvalidParameterValue");
        assert!(find(TYPE_DEFAULT).is_ok());
    }

    #[test]
    fn a_description_has_the_figures_of_the_table() {
        let kind = find("c7i.12xlarge").unwrap();
        let shown = view(&kind);
        let network = &shown["NetworkInfo"];
        assert_eq!(network["EnaSrdSupported"], true);
        assert_eq!(network["MaximumNetworkInterfaces"], 8);
        assert_eq!(network["Ipv4AddressesPerInterface"], 30);
        assert_eq!(shown["VCpuInfo"]["DefaultVCpus"], 48);
        assert_eq!(network["NetworkCards"][0]["PeakBandwidthInGbps"], 18.75);
        let small = view(&find("c7i.large").unwrap());
        assert_eq!(small["NetworkInfo"]["EnaSrdSupported"], false);
        assert_eq!(small["NetworkInfo"]["NetworkPerformance"], "Up to 12.5 Gigabit");
    }
}

//! Regions and their zones.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A region: its name, the prefix of the identifiers of its zones, and the letters of its zones.
struct Entry(&'static str, &'static str, &'static str);

/// The regions of AWS and the zones that a new account sees.
const REGIONS: [Entry; 38] = [
    Entry("af-south-1", "afs1", "abc"),
    Entry("ap-east-1", "ape1", "abc"),
    Entry("ap-east-2", "ape2", "abc"),
    Entry("ap-northeast-1", "apne1", "acd"),
    Entry("ap-northeast-2", "apne2", "abcd"),
    Entry("ap-northeast-3", "apne3", "abc"),
    Entry("ap-south-1", "aps1", "abc"),
    Entry("ap-south-2", "aps2", "abc"),
    Entry("ap-southeast-1", "apse1", "abc"),
    Entry("ap-southeast-2", "apse2", "abc"),
    Entry("ap-southeast-3", "apse3", "abc"),
    Entry("ap-southeast-4", "apse4", "abc"),
    Entry("ap-southeast-5", "apse5", "abc"),
    Entry("ap-southeast-6", "apse6", "abc"),
    Entry("ap-southeast-7", "apse7", "abc"),
    Entry("ca-central-1", "cac1", "abd"),
    Entry("ca-west-1", "caw1", "abc"),
    Entry("cn-north-1", "cnn1", "abc"),
    Entry("cn-northwest-1", "cnnw1", "abc"),
    Entry("eu-central-1", "euc1", "abc"),
    Entry("eu-central-2", "euc2", "abc"),
    Entry("eu-north-1", "eun1", "abc"),
    Entry("eu-south-1", "eus1", "abc"),
    Entry("eu-south-2", "eus2", "abc"),
    Entry("eu-west-1", "euw1", "abc"),
    Entry("eu-west-2", "euw2", "abc"),
    Entry("eu-west-3", "euw3", "abc"),
    Entry("il-central-1", "ilc1", "abc"),
    Entry("me-central-1", "mec1", "abc"),
    Entry("me-south-1", "mes1", "abc"),
    Entry("mx-central-1", "mxc1", "abc"),
    Entry("sa-east-1", "sae1", "abc"),
    Entry("us-east-1", "use1", "abcdef"),
    Entry("us-east-2", "use2", "abc"),
    Entry("us-gov-east-1", "usge1", "abc"),
    Entry("us-gov-west-1", "usgw1", "abc"),
    Entry("us-west-1", "usw1", "ab"),
    Entry("us-west-2", "usw2", "abcd"),
];

/// Whether the region exists.
pub fn exists(name: &str) -> bool {
    names().any(|region| region == name)
}

/// Names of all regions.
pub fn names() -> impl Iterator<Item = &'static str> {
    REGIONS.iter().map(|Entry(name, ..)| *name)
}

/// Zones of a region: name and identifier, for example `us-east-1a` and `use1-az1`.
pub fn zones(region: &str) -> Vec<(String, String)> {
    let entry = REGIONS.iter().find(|Entry(name, ..)| *name == region);
    let Some(Entry(name, prefix, letters)) = entry else { return Vec::new() };
    let zone =
        |(at, letter): (usize, char)| (format!("{name}{letter}"), format!("{prefix}-az{}", at + 1));
    letters.chars().enumerate().map(zone).collect()
}

/// Names of the zones of all regions.
pub fn zone_names() -> impl Iterator<Item = String> {
    let of_region = |Entry(name, _, letters): &'static Entry| {
        letters.chars().map(move |letter| format!("{name}{letter}"))
    };
    REGIONS.iter().flat_map(of_region)
}

/// Name of the zone with an identifier such as `use1-az1`; `None` if no zone has it.
pub fn zone_of_id(id: &str) -> Option<String> {
    let mut all = names().flat_map(zones);
    all.find(|(_, of_zone)| of_zone == id).map(|(name, _)| name)
}

/// Ending of the DNS names of a region's services.
pub fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// Partition of a region in names of resources.
pub fn partition(region: &str) -> &'static str {
    if region.starts_with("cn-") {
        "aws-cn"
    } else if region.starts_with("us-gov-") {
        "aws-us-gov"
    } else {
        "aws"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_zone_is_known_by_its_name_and_by_its_identifier() {
        assert_eq!(zone_of_id("use1-az2").as_deref(), Some("us-east-1b"));
        assert_eq!(zone_of_id("us-east-1b"), None);
        let names: Vec<String> = zone_names().collect();
        assert!(names.contains(&String::from("us-east-1f")) && names.len() > 100);
        let of_regions: usize = super::names().map(|region| zones(region).len()).sum();
        assert_eq!(names.len(), of_regions);
    }
}

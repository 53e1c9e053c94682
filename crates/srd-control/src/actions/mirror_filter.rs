//! Filters of traffic mirroring, and their rules.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::list::Listing;
use super::support::{any_block, get, get_mut, new_tags, not_found, show, show_all};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::mirror::MirrorPorts;
use crate::state::{MirrorFilter, MirrorFilterRule, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateTrafficMirrorFilter", Handler::Region(create)),
    ("DescribeTrafficMirrorFilters", Handler::Region(describe)),
    ("ModifyTrafficMirrorFilterNetworkServices", Handler::Region(modify_services)),
    ("DeleteTrafficMirrorFilter", Handler::Region(delete)),
    ("CreateTrafficMirrorFilterRule", Handler::Region(create_rule)),
    ("DescribeTrafficMirrorFilterRules", Handler::Region(describe_rules)),
    ("ModifyTrafficMirrorFilterRule", Handler::Region(modify_rule)),
    ("DeleteTrafficMirrorFilterRule", Handler::Region(delete_rule)),
];

/// Largest number of rules of a filter, counted over both directions.
const RULES_MAX: usize = 10;
/// Allowed numbers of rules.
const NUMBERS: std::ops::RangeInclusive<i64> = 1..=32_766;
/// Numbers of the protocols with ports: TCP and UDP.
const WITH_PORTS: [i64; 2] = [6, 17];

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "traffic-mirror-filter")?;
    let filter = MirrorFilter {
        traffic_mirror_filter_id: region.ids.id("tmf"),
        network_services: Vec::new(),
        description: request.text("Description").map(str::to_owned),
        tags,
    };
    let shown = view(region, &filter);
    region.mirror_filters.insert(filter);
    Ok(json!({"TrafficMirrorFilter": shown, "ClientToken": request.text("ClientToken")}))
}

/// Returns a filter as its description, with its rules in their order.
fn view(region: &Region, filter: &MirrorFilter) -> Value {
    let mut shown = show(filter);
    for (member, direction) in [("IngressFilterRules", "ingress"), ("EgressFilterRules", "egress")]
    {
        let rules = rules(region, &filter.traffic_mirror_filter_id, direction);
        shown[member] = rules.into_iter().map(show).collect();
    }
    shown
}

/// The rules of a filter in one direction, ordered by their numbers.
pub(crate) fn rules<'a>(
    region: &'a Region,
    filter: &str,
    direction: &str,
) -> Vec<&'a MirrorFilterRule> {
    let all = region.mirror_filter_rules.iter();
    let own = all.filter(|rule| rule.traffic_mirror_filter_id == filter);
    let mut own: Vec<_> = own.filter(|rule| rule.traffic_direction == direction).collect();
    own.sort_by_key(|rule| rule.rule_number);
    own
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "TrafficMirrorFilterIds",
        id: "TrafficMirrorFilterId",
        not_found: |id| not_found("tmf", id),
        filters: &[
            ("description", "Description"),
            ("traffic-mirror-filter-id", "TrafficMirrorFilterId"),
        ],
        result: "TrafficMirrorFilters",
    };
    let all = region.mirror_filters.iter().map(|filter| view(region, filter)).collect();
    listing.answer(request, all)
}

fn modify_services(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("TrafficMirrorFilterId")?;
    let filter = get_mut(&mut region.mirror_filters, id)?;
    let removed = request.texts("RemoveNetworkServices");
    filter.network_services.retain(|old| !removed.contains(&old.as_str()));
    for new in request.texts("AddNetworkServices") {
        if !filter.network_services.iter().any(|old| old == new) {
            filter.network_services.push(new.to_owned());
        }
    }
    let shown = view(region, get(&region.mirror_filters, id)?);
    Ok(json!({"TrafficMirrorFilter": shown}))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("TrafficMirrorFilterId")?;
    get(&region.mirror_filters, id)?;
    let uses = |of: &crate::state::MirrorSession| of.traffic_mirror_filter_id == id;
    if region.mirror_sessions.find(uses).is_some() {
        let message = format!("The filter '{id}' is in use by a session");
        return Err(ApiError::new("TrafficMirrorFilterInUse", message));
    }
    for rule in region.mirror_filter_rules.ids_where(|of| of.traffic_mirror_filter_id == id) {
        region.mirror_filter_rules.remove(&rule);
    }
    region.mirror_filters.remove(id);
    Ok(json!({"TrafficMirrorFilterId": id}))
}

/// Returns a range of ports of a request.
fn ports(request: &Request, name: &str) -> ApiResult<Option<MirrorPorts>> {
    let Some(of) = request.part(name) else { return Ok(None) };
    let from_port = of["FromPort"].as_i64().ok_or_else(|| ApiError::missing("FromPort"))?;
    let to_port = of["ToPort"].as_i64().unwrap_or(from_port);
    let range = 0..=65_535;
    if range.contains(&from_port) && range.contains(&to_port) && from_port <= to_port {
        return Ok(Some(MirrorPorts { from_port, to_port }));
    }
    Err(ApiError::invalid(format!("{name} is not a range of ports")))
}

/// Checks that the parts of a rule fit each other and the other rules of its filter.
fn check(region: &Region, rule: &MirrorFilterRule) -> ApiResult<()> {
    if !NUMBERS.contains(&rule.rule_number) {
        let message = format!("Value ({}) for parameter ruleNumber is invalid.", rule.rule_number);
        return Err(ApiError::invalid(message));
    }
    if rule.protocol.is_some_and(|protocol| !(0..=255).contains(&protocol)) {
        return Err(ApiError::invalid("The protocol is a number of 0 to 255"));
    }
    let with_ports = rule.protocol.is_some_and(|protocol| WITH_PORTS.contains(&protocol));
    if (rule.destination_port_range.is_some() || rule.source_port_range.is_some()) && !with_ports {
        return Err(ApiError::combination("Ports need the protocol TCP or UDP"));
    }
    let is_v4 = |block: IpNet| block.addr().is_ipv4();
    if is_v4(rule.destination_cidr_block) != is_v4(rule.source_cidr_block) {
        let message = "The destination and the source have the same address family";
        return Err(ApiError::combination(message));
    }
    let own = region.mirror_filter_rules.iter();
    let own = own.filter(|of| of.traffic_mirror_filter_id == rule.traffic_mirror_filter_id);
    let others: Vec<_> = own
        .filter(|of| of.traffic_mirror_filter_rule_id != rule.traffic_mirror_filter_rule_id)
        .collect();
    if others.len() >= RULES_MAX {
        let message = format!("A filter has at most {RULES_MAX} rules");
        return Err(ApiError::limit("TrafficMirrorFilterRuleLimitExceeded", message));
    }
    let same = |of: &&MirrorFilterRule| {
        of.traffic_direction == rule.traffic_direction && of.rule_number == rule.rule_number
    };
    if others.iter().any(same) {
        let message = format!("The filter has a rule with the number {} already", rule.rule_number);
        return Err(ApiError::new("TrafficMirrorFilterRuleAlreadyExists", message));
    }
    Ok(())
}

fn create_rule(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "traffic-mirror-filter-rule")?;
    let filter = request.need("TrafficMirrorFilterId")?;
    get(&region.mirror_filters, filter)?;
    let number = request.number("RuleNumber").ok_or_else(|| ApiError::missing("RuleNumber"))?;
    let block = |name: &str| any_block(request.need(name)?, name);
    let rule = MirrorFilterRule {
        traffic_mirror_filter_rule_id: region.ids.id("tmfr"),
        traffic_mirror_filter_id: filter.to_owned(),
        traffic_direction: request.need("TrafficDirection")?.to_owned(),
        rule_number: number,
        rule_action: request.need("RuleAction")?.to_owned(),
        protocol: request.number("Protocol"),
        destination_port_range: ports(request, "DestinationPortRange")?,
        source_port_range: ports(request, "SourcePortRange")?,
        destination_cidr_block: block("DestinationCidrBlock")?,
        source_cidr_block: block("SourceCidrBlock")?,
        description: request.text("Description").map(str::to_owned),
        tags,
    };
    check(region, &rule)?;
    let shown = show(&rule);
    region.mirror_filter_rules.insert(rule);
    Ok(json!({"TrafficMirrorFilterRule": shown, "ClientToken": request.text("ClientToken")}))
}

fn describe_rules(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "TrafficMirrorFilterRuleIds",
        id: "TrafficMirrorFilterRuleId",
        not_found: |id| not_found("tmfr", id),
        filters: &[
            ("description", "Description"),
            ("destination-cidr-block", "DestinationCidrBlock"),
            ("protocol", "Protocol"),
            ("rule-action", "RuleAction"),
            ("rule-number", "RuleNumber"),
            ("source-cidr-block", "SourceCidrBlock"),
            ("traffic-direction", "TrafficDirection"),
            ("traffic-mirror-filter-id", "TrafficMirrorFilterId"),
            ("traffic-mirror-filter-rule-id", "TrafficMirrorFilterRuleId"),
        ],
        result: "TrafficMirrorFilterRules",
    };
    let mut all = show_all(&region.mirror_filter_rules);
    if let Some(filter) = request.text("TrafficMirrorFilterId") {
        get(&region.mirror_filters, filter)?;
        all.retain(|rule| rule["TrafficMirrorFilterId"] == filter);
    }
    listing.answer(request, all)
}

fn modify_rule(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("TrafficMirrorFilterRuleId")?;
    let mut rule = get(&region.mirror_filter_rules, id)?.clone();
    for field in request.texts("RemoveFields") {
        match field {
            "destination-port-range" => rule.destination_port_range = None,
            "source-port-range" => rule.source_port_range = None,
            "protocol" => rule.protocol = None,
            _ => rule.description = None,
        }
    }
    if let Some(direction) = request.text("TrafficDirection") {
        direction.clone_into(&mut rule.traffic_direction);
    }
    if let Some(action) = request.text("RuleAction") {
        action.clone_into(&mut rule.rule_action);
    }
    rule.rule_number = request.number("RuleNumber").unwrap_or(rule.rule_number);
    rule.protocol = request.number("Protocol").or(rule.protocol);
    rule.destination_port_range =
        ports(request, "DestinationPortRange")?.or(rule.destination_port_range);
    rule.source_port_range = ports(request, "SourcePortRange")?.or(rule.source_port_range);
    for (name, field) in [
        ("DestinationCidrBlock", &mut rule.destination_cidr_block),
        ("SourceCidrBlock", &mut rule.source_cidr_block),
    ] {
        if let Some(text) = request.text(name) {
            *field = any_block(text, name)?;
        }
    }
    if let Some(description) = request.text("Description") {
        rule.description = Some(description.to_owned());
    }
    check(region, &rule)?;
    let shown = show(&rule);
    region.mirror_filter_rules.insert(rule);
    Ok(json!({"TrafficMirrorFilterRule": shown}))
}

fn delete_rule(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("TrafficMirrorFilterRuleId")?;
    region.mirror_filter_rules.remove(id).ok_or_else(|| not_found("tmfr", id))?;
    Ok(json!({"TrafficMirrorFilterRuleId": id}))
}

//! Traffic mirroring.

use std::collections::BTreeSet;

use super::Scope;
use super::phrase;
use super::toml_text::Text;
use crate::actions::mirror_filter::rules;
use crate::state::{MirrorFilter, MirrorFilterRule, MirrorSession, MirrorTarget};

pub(super) fn write(scope: &mut Scope<'_>, text: &mut Text) {
    let region = scope.region;
    let (sessions, others): (Vec<&MirrorSession>, Vec<&MirrorSession>) =
        region.mirror_sessions.iter().partition(|of| is_written(scope, of));
    for filter in region.mirror_filters.iter() {
        write_filter(scope, text, filter);
    }
    // A file refuses an interface that is a source and a target, even of no session.
    let used: BTreeSet<&str> =
        sessions.iter().map(|of| of.traffic_mirror_target_id.as_str()).collect();
    let is_used = |of: &&MirrorTarget| used.contains(of.traffic_mirror_target_id.as_str());
    for target in region.mirror_targets.iter().filter(is_used) {
        if let Some(interface) = interface_of(scope, target) {
            text.table("mirror_target", &target.traffic_mirror_target_id);
            text.string("interface", interface);
        }
    }
    for session in others {
        let what = "it copies no packets: its source or its target has no IPv4 address";
        scope.warn(&session.traffic_mirror_session_id, what);
    }
    for session in sessions {
        text.table("mirror_session", &session.traffic_mirror_session_id);
        text.string("source", &session.network_interface_id);
        text.string("target", &session.traffic_mirror_target_id);
        text.string("filter", &session.traffic_mirror_filter_id);
        text.value("number", session.session_number);
        text.value("vni", session.virtual_network_id);
        if let Some(length) = session.packet_length {
            text.value("packet_length", length);
        }
    }
}

/// Returns the interface of a target, if the text contains it.
fn interface_of<'a>(scope: &Scope<'_>, target: &'a MirrorTarget) -> Option<&'a str> {
    target.network_interface_id.as_deref().filter(|id| scope.interfaces.contains(id))
}

/// Whether a file can describe a session: the text contains its source and its target.
fn is_written(scope: &Scope<'_>, session: &MirrorSession) -> bool {
    let target = scope.region.mirror_targets.get(&session.traffic_mirror_target_id);
    scope.interfaces.contains(session.network_interface_id.as_str())
        && target.is_some_and(|target| interface_of(scope, target).is_some())
}

fn write_filter(scope: &mut Scope<'_>, text: &mut Text, filter: &MirrorFilter) {
    let id = &filter.traffic_mirror_filter_id;
    if !filter.network_services.is_empty() {
        scope.warn(id, "packets of the resolver are not copied");
    }
    text.table("mirror_filter", id);
    for direction in ["ingress", "egress"] {
        let rules = rules(scope.region, id, direction);
        let phrases: Vec<String> =
            rules.into_iter().filter_map(|rule| rule_phrase(scope, rule)).collect();
        text.list(direction, phrases);
    }
}

fn rule_phrase(scope: &mut Scope<'_>, rule: &MirrorFilterRule) -> Option<String> {
    let protocol = rule.protocol.map_or("-1".to_owned(), |number| number.to_string());
    let ports = rule.destination_port_range.as_ref().map(|of| (of.from_port, of.to_port));
    let (from, to) = ports.unwrap_or((-1, -1));
    let words = phrase::traffic(&protocol, from, to);
    let id = &rule.traffic_mirror_filter_rule_id;
    let words = words.map_err(|wrong| scope.warn(id, wrong)).ok()?;
    let sources = rule.source_port_range.as_ref();
    let sources = sources.map(|of| format!(" source {}-{}", of.from_port, of.to_port));
    Some(format!(
        "{} {} {words}{} from {} to {}",
        rule.rule_number,
        rule.rule_action,
        sources.unwrap_or_default(),
        rule.source_cidr_block,
        rule.destination_cidr_block
    ))
}

//! Writes the tables of flow logs into the text of a `vpc.toml`.

use std::collections::BTreeSet;
use std::path::Path;

use srd_vpc::object::LogField;

use super::Scope;
use super::toml_text::Text;
use crate::state::FlowLog;

/// Largest number of flow logs of a card.
const LOGS_MAX: usize = 64;

pub(super) fn write(scope: &mut Scope<'_>, text: &mut Text, directory: Option<&Path>) {
    let region = scope.region;
    let mut written = 0;
    for log in region.flow_logs.iter().filter(|log| log.flow_log_status == "ACTIVE") {
        let Some(key) = resource(scope, log) else { continue };
        let Some(directory) = directory else {
            scope.warn(&log.flow_log_id, "no records are written");
            continue;
        };
        if written == LOGS_MAX {
            scope.warn(&log.flow_log_id, format!("a card has at most {LOGS_MAX} flow logs"));
            continue;
        }
        written += 1;
        write_log(scope, text, log, (key, directory));
    }
}

/// Returns the key for the resource of a flow log; `None` if the resource is not in the text, so
/// that there are no packets to record.
fn resource(scope: &Scope<'_>, log: &FlowLog) -> Option<&'static str> {
    let id = log.resource_id.as_str();
    if scope.vpcs.contains(id) {
        Some("vpc")
    } else if scope.subnets.contains(id) {
        Some("subnet")
    } else {
        scope.interfaces.contains(id).then_some("interface")
    }
}

fn write_log(scope: &mut Scope<'_>, text: &mut Text, log: &FlowLog, (key, at): (&str, &Path)) {
    let id = &log.flow_log_id;
    let directory = at.join(id);
    let shown = directory.to_string_lossy();
    let kind = &log.log_destination_type;
    scope.warn(id, format!("its records are files in {shown}, and not sent to {kind}"));
    text.table("flow_log", id);
    text.string(key, &log.resource_id);
    let traffic = log.traffic_type.as_deref().unwrap_or("ALL").to_ascii_lowercase();
    text.string(
        "traffic",
        if ["accept", "reject"].contains(&&*traffic) { &traffic } else { "all" },
    );
    if log.max_aggregation_interval == 60 {
        text.value("interval", 60);
    }
    let fields = fields(&log.log_format);
    match fields {
        Ok(fields) if !fields.is_empty() => {
            let words: Vec<String> = fields.iter().map(|field| format!("${{{field}}}")).collect();
            text.string("format", &words.join(" "));
        }
        Ok(_) => {}
        Err(word) => scope.warn(id, format!("the field `{word}` is unknown: the default applies")),
    }
    let options = log.destination_options.as_ref();
    let format = options.and_then(|options| options.get("FileFormat")).and_then(|f| f.as_str());
    if format == Some("parquet") {
        text.string("files", "parquet");
    }
    text.string("directory", &shown);
}

/// Returns the fields of a format, without repetitions; the error is the first unknown word.
fn fields(format: &str) -> Result<Vec<LogField>, &str> {
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for word in format.split_whitespace() {
        let name = word.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        let field = name.and_then(LogField::find).ok_or(word)?;
        if known.insert(field) {
            all.push(field);
        }
    }
    Ok(all)
}

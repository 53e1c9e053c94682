//! Observation of packets: flow logs and mirrors, and the account and the Region that are named in
//! records.

use std::collections::{BTreeMap, BTreeSet};

use srd_vpc::id::*;
use srd_vpc::object::*;
use toml::Spanned;

use super::build::{Build, Result};
use super::document::{Document, FlowLogTable, MirrorSessionTable};
use super::names::Kind;
use super::phrase;

/// Largest length of a directory's path in bytes.
const DIRECTORY_BYTES_MAX: usize = 1024;
/// Largest number of rules of a mirror filter: the limit of EC2.
const RULES_MAX: usize = 10;
/// Largest number of mirror sessions of one source interface: the limit of EC2.
const SESSIONS_MAX: usize = 3;
/// Largest VXLAN network identifier, which has 24 bits.
const VNI_MAX: u32 = 0xff_ffff;
const FORMAT: &str = "write fields as EC2 does, as in \"${version} ${srcaddr} ${dstaddr}\"";

pub(crate) fn build(build: &mut Build<'_>, document: &Document) -> Result<()> {
    account(build, document)?;
    flow_logs(build, document)?;
    mirror_filters(build, document)?;
    for (name, spanned) in &document.mirror_target {
        let id = MirrorTargetId(build.find(Kind::MirrorTarget, name)?);
        let eni = EniId(build.find(Kind::Interface, &spanned.as_ref().interface)?);
        let target = MirrorTarget { name: name.as_ref().clone(), eni };
        build.world.mirror_targets.insert(id, target);
    }
    mirror_sessions(build, document)
}

fn account(build: &mut Build<'_>, document: &Document) -> Result<()> {
    if let Some(account) = &document.account {
        let text = account.as_ref();
        if text.len() != 12 || !text.bytes().all(|b| b.is_ascii_digit()) {
            let what = format!("`{text}` is no account");
            return Err(build.error(account.span(), what, "write twelve digits"));
        }
        build.world.account = Some(text.clone());
    }
    if let Some(region) = &document.region {
        let text = region.as_ref();
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if text.is_empty() || text.len() > 40 || !text.bytes().all(good) {
            let what = format!("`{text}` is no Region");
            return Err(build.error(region.span(), what, "as in \"eu-central-1\""));
        }
        build.world.region = Some(text.clone());
    }
    Ok(())
}

fn flow_logs(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.flow_log {
        let id = FlowLogId(build.find(Kind::FlowLog, name)?);
        let log = flow_log(build, name, spanned)?;
        build.world.flow_logs.insert(id, log);
    }
    Ok(())
}

fn flow_log(
    build: &Build<'_>,
    name: &Spanned<String>,
    spanned: &Spanned<FlowLogTable>,
) -> Result<FlowLog> {
    let table = spanned.as_ref();
    let resource = match (&table.vpc, &table.subnet, &table.interface) {
        (None, Some(subnet), None) => Logged::Subnet(SubnetId(build.find(Kind::Subnet, subnet)?)),
        (None, None, Some(eni)) => Logged::Eni(EniId(build.find(Kind::Interface, eni)?)),
        (_, None, None) => Logged::Vpc(build.vpc(&table.vpc, spanned.span())?),
        _ => {
            let what = "a flow log is about one thing";
            let remedy = "leave one of `vpc`, `subnet` and `interface`";
            return Err(build.error(name.span(), what, remedy));
        }
    };
    let word = |key: &Option<Spanned<String>>| key.as_ref().map(|key| key.as_ref().clone());
    let traffic = match word(&table.traffic).as_deref() {
        None | Some("all") => LoggedTraffic::All,
        Some("accept") => LoggedTraffic::Accept,
        Some("reject") => LoggedTraffic::Reject,
        Some(other) => {
            let what = format!("`{other}` is no traffic of a flow log");
            return Err(at(build, &table.traffic, name, what, "write accept, reject or all"));
        }
    };
    let format = match word(&table.files).as_deref() {
        None | Some("text") => LogFormat::Text,
        Some("gzip") => LogFormat::Gzip,
        Some("parquet") => LogFormat::Parquet,
        Some(other) => {
            let what = format!("`{other}` is no kind of file");
            return Err(at(build, &table.files, name, what, "write text, gzip or parquet"));
        }
    };
    let interval = match &table.interval {
        None => 600,
        Some(interval) if [60, 600].contains(interval.as_ref()) => *interval.as_ref(),
        Some(interval) => {
            let what = format!("`interval` cannot be {}", interval.as_ref());
            return Err(build.error(interval.span(), what, "write 60 or 600, in seconds"));
        }
    };
    let directory = table.directory.as_ref();
    if !directory.starts_with('/') || directory.len() > DIRECTORY_BYTES_MAX {
        let what = format!("`{directory}` is no absolute path of a directory");
        return Err(build.error(table.directory.span(), what, "as in \"/var/log/srd/flows\""));
    }
    let fields = match &table.format {
        None => Vec::new(),
        Some(format) => fields(build, format)?,
    };
    let (name, directory) = (name.as_ref().clone(), directory.clone());
    Ok(FlowLog { name, resource, traffic, fields, interval, directory, format })
}

fn at(
    build: &Build<'_>,
    key: &Option<Spanned<String>>,
    name: &Spanned<String>,
    what: String,
    remedy: &str,
) -> srd_config::ConfigError {
    build.error(key.as_ref().map_or(name.span(), Spanned::span), what, remedy)
}

/// Parses the fields of a log format, such as `${version} ${srcaddr}`.
fn fields(build: &Build<'_>, format: &Spanned<String>) -> Result<Vec<LogField>> {
    let wrong = |what: String, remedy: &str| Err(build.error(format.span(), what, remedy));
    let mut fields: Vec<LogField> = Vec::new();
    for word in format.as_ref().split_whitespace() {
        let name = word.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        let Some(name) = name else {
            return wrong(format!("`{word}` is no field of a format"), FORMAT);
        };
        let Some(field) = LogField::find(name) else {
            let remedy = "docs/vpc.md lists the fields";
            return wrong(format!("there is no field `{name}`"), remedy);
        };
        if fields.contains(&field) {
            return wrong(format!("the field `{name}` is there already"), "leave one of them");
        }
        fields.push(field);
    }
    if fields.is_empty() {
        return wrong(String::from("a format without fields"), FORMAT);
    }
    Ok(fields)
}

fn mirror_filters(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.mirror_filter {
        let id = MirrorFilterId(build.find(Kind::MirrorFilter, name)?);
        let table = spanned.as_ref();
        let mut rules: Vec<MirrorRule> = Vec::new();
        for (egress, texts) in [(false, &table.ingress), (true, &table.egress)] {
            for text in texts {
                let rule = phrase::mirrored(text.as_ref());
                let rule = rule.map_err(|wrong| build.wrong(text.span(), wrong))?;
                if rules.iter().any(|r| r.egress == egress && r.number == rule.number) {
                    let what = format!("the number {} is there already", rule.number);
                    return Err(build.error(text.span(), what, "take another"));
                }
                if rules.len() == RULES_MAX {
                    let what = format!("a mirror filter has at most {RULES_MAX} rules");
                    return Err(build.error(
                        text.span(),
                        what,
                        "make another session for the rest",
                    ));
                }
                let phrase::Mirrored { number, accept, traffic, source_ports, .. } = rule;
                let (source, destination) = (rule.source, rule.destination);
                rules.push(MirrorRule {
                    number,
                    egress,
                    accept,
                    traffic,
                    source_ports,
                    source,
                    destination,
                });
            }
        }
        rules.sort_by_key(|rule| (rule.egress, rule.number));
        let filter = MirrorFilter { name: name.as_ref().clone(), rules };
        build.world.mirror_filters.insert(id, filter);
    }
    Ok(())
}

fn mirror_sessions(build: &mut Build<'_>, document: &Document) -> Result<()> {
    let targets: BTreeSet<EniId> =
        build.world.mirror_targets.values().map(|target| target.eni).collect();
    let mut numbers: BTreeMap<EniId, BTreeSet<u16>> = BTreeMap::new();
    let given = document.mirror_session.values().filter_map(|table| table.as_ref().vni.as_ref());
    let mut vnis: BTreeSet<u32> = given.map(|vni| *vni.as_ref()).collect();
    for (name, spanned) in &document.mirror_session {
        let id = MirrorSessionId(build.find(Kind::MirrorSession, name)?);
        let table = spanned.as_ref();
        let source = EniId(build.find(Kind::Interface, &table.source)?);
        if targets.contains(&source) {
            let what = "an interface is the source of a session or a target, not both";
            return Err(build.error(table.source.span(), what, "copy to another interface"));
        }
        let of_source = numbers.entry(source).or_default();
        if of_source.len() == SESSIONS_MAX {
            let what = format!("an interface is the source of at most {SESSIONS_MAX} sessions");
            return Err(build.error(table.source.span(), what, "leave one of them"));
        }
        let number = *table.number.as_ref();
        if !(1..=32_766).contains(&number) || !of_source.insert(number) {
            let what = format!("the session's number cannot be {number}");
            let remedy = "write 1 to 32766, another for each session of a source";
            return Err(build.error(table.number.span(), what, remedy));
        }
        let session = session(build, name, table, source, id, &mut vnis)?;
        build.world.mirror_sessions.insert(id, session);
    }
    Ok(())
}

fn session(
    build: &Build<'_>,
    name: &Spanned<String>,
    table: &MirrorSessionTable,
    source: EniId,
    id: MirrorSessionId,
    vnis: &mut BTreeSet<u32>,
) -> Result<MirrorSession> {
    let vni = match &table.vni {
        Some(vni) if *vni.as_ref() <= VNI_MAX => *vni.as_ref(),
        Some(vni) => {
            let what = format!("`vni` cannot be {}", vni.as_ref());
            return Err(build.error(vni.span(), what, "write 0 to 16777215"));
        }
        // Chooses a number that no other session has. The choice is the same whenever the file is
        // read.
        None => {
            let mut vni = u32::try_from(id.0 & u64::from(VNI_MAX)).unwrap_or_default();
            while !vnis.insert(vni) {
                vni = (vni + 1) & VNI_MAX;
            }
            vni
        }
    };
    let packet_length = table.packet_length.as_ref().map(|length| *length.as_ref());
    if let Some(length) = table.packet_length.as_ref().filter(|length| *length.as_ref() == 0) {
        let what = "`packet_length` cannot be 0";
        return Err(build.error(length.span(), what, "leave it out to copy whole packets"));
    }
    Ok(MirrorSession {
        name: name.as_ref().clone(),
        source,
        target: MirrorTargetId(build.find(Kind::MirrorTarget, &table.target)?),
        filter: MirrorFilterId(build.find(Kind::MirrorFilter, &table.filter)?),
        number: *table.number.as_ref(),
        vni,
        packet_length,
    })
}

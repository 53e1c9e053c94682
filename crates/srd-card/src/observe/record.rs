//! Records of a flow log with EC2's fields: one for each flow of a window, and one for a window
//! without packets or with skipped packets.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::IpAddr;

use srd_proto::time::Instant;
use srd_vpc::object::{LogField, LoggedTraffic};

use super::window::{Action, Count, FlowKey, Path, Window};

/// Lowest version of a record. A record has the version of its newest field, as on EC2, but at
/// least this version.
const VERSION_MIN: u8 = 2;

/// Fields that each record of an interface's log repeats. An empty text is written as `-`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterfaceAttributes {
    /// Number of the account that owns the interface.
    pub account: String,
    /// Identifier of the interface.
    pub interface: String,
    /// Identifier of the interface's cloud (VPC).
    pub vpc: String,
    /// Identifier of the interface's subnet.
    pub subnet: String,
    /// Identifier of the interface's instance.
    pub instance: String,
    /// Region of the interface.
    pub region: String,
    /// Availability zone of the interface.
    pub zone: String,
    /// Primary addresses of the interface, at most one for IPv4 and one for IPv6.
    pub addresses: [Option<IpAddr>; 2],
    /// Unix time of [`Instant::ZERO`], in nanoseconds.
    pub unix_ns: u64,
    /// Whether the instance is a Nitro instance. If so, EC2 has separate numbers of `traffic-path`
    /// for internet gateways and for gateway endpoints.
    pub is_nitro: bool,
}

impl InterfaceAttributes {
    fn seconds(&self, at: Instant) -> i64 {
        let ns = self.unix_ns.saturating_add(at.as_nanos());
        i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX)
    }

    fn primary(&self, like: IpAddr) -> IpAddr {
        let mut own = self.addresses.iter().flatten();
        own.find(|own| own.is_ipv4() == like.is_ipv4()).copied().unwrap_or(like)
    }
}

/// A record of a flow log.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    facts: &'a InterfaceAttributes,
    start: Instant,
    end: Instant,
    what: RecordContent<'a>,
}

#[derive(Clone, Copy, Debug)]
enum RecordContent<'a> {
    Flow { key: &'a FlowKey, count: &'a Count, action: Action, path: Option<Path> },
    NoData,
    SkipData,
}

/// Value of a field in a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// The field has no value, which a line of text shows as `-`.
    None,
    /// A number, for example of packets or seconds.
    Number(i64),
    /// Text without spaces.
    Text(Cow<'a, str>),
}

/// Returns the records of a window for a flow log of this traffic: accepted flows, refused flows,
/// or both; and one more record if packets were skipped or if the window contains no packets. //
/// F4, F5
pub fn records<'a>(
    facts: &'a InterfaceAttributes,
    window: &'a Window,
    traffic: LoggedTraffic,
) -> impl Iterator<Item = Record<'a>> {
    let wants = move |action| match traffic {
        LoggedTraffic::Accept => action == Action::Accept,
        LoggedTraffic::Reject => action == Action::Reject,
        LoggedTraffic::All => true,
    };
    let flows = window.flows().into_iter().flat_map(|(key, flow)| {
        let of = [(Action::Accept, &flow.accepted), (Action::Reject, &flow.rejected)];
        of.map(|(action, count)| (key, action, count, flow.path.filter(|_| key.egress)))
    });
    let flows = flows.filter(move |(_, action, count, _)| wants(*action) && count.packets > 0);
    let flows = flows.map(|(key, action, count, path)| {
        let path = path.filter(|_| action == Action::Accept);
        let what = RecordContent::Flow { key, count, action, path };
        Record { facts, start: count.first, end: count.last, what }
    });
    let (start, end) = (window.began, window.ended);
    let skipped = (window.skipped_packets > 0).then_some(RecordContent::SkipData);
    let silent = window.is_silent().then_some(RecordContent::NoData);
    let whole = skipped.or(silent).map(|what| Record { facts, start, end, what });
    flows.chain(whole)
}

impl<'a> Record<'a> {
    /// Creates the record of a window whose flows were all lost (SKIPDATA).
    pub fn lost(facts: &'a InterfaceAttributes, window: &Window) -> Self {
        Self { facts, start: window.began, end: window.ended, what: RecordContent::SkipData }
    }

    /// Returns the value of a field; `version` is the version of the format.
    pub fn value(&self, field: LogField, version: u8) -> Value<'a> {
        let facts = self.facts;
        match field {
            LogField::Version => Value::Number(version.into()),
            LogField::AccountId => text(&facts.account),
            LogField::InterfaceId => text(&facts.interface),
            LogField::VpcId => text(&facts.vpc),
            LogField::SubnetId => text(&facts.subnet),
            LogField::InstanceId => text(&facts.instance),
            LogField::Region => text(&facts.region),
            LogField::AzId => text(&facts.zone),
            LogField::Start => Value::Number(facts.seconds(self.start)),
            LogField::End => Value::Number(facts.seconds(self.end)),
            LogField::LogStatus => word(match self.what {
                RecordContent::Flow { .. } => "OK",
                RecordContent::NoData => "NODATA",
                RecordContent::SkipData => "SKIPDATA",
            }),
            _ => self.of_flow(field),
        }
    }

    fn of_flow(&self, field: LogField) -> Value<'a> {
        let RecordContent::Flow { key, count, action, path } = self.what else {
            return Value::None;
        };
        let address = |address: IpAddr| Value::Text(address.to_string().into());
        let number = |number: u64| Value::Number(i64::try_from(number).unwrap_or(i64::MAX));
        match field {
            // At the interface's own end of the flow, the record contains the interface's primary
            // address. // F3
            LogField::Srcaddr if key.egress => address(self.facts.primary(key.source)),
            LogField::Dstaddr if !key.egress => address(self.facts.primary(key.destination)),
            LogField::Srcaddr | LogField::PktSrcaddr => address(key.source),
            LogField::Dstaddr | LogField::PktDstaddr => address(key.destination),
            LogField::Srcport => number(key.ports.0.into()),
            LogField::Dstport => number(key.ports.1.into()),
            LogField::Protocol => number(key.protocol.into()),
            LogField::Packets => number(count.packets),
            LogField::Bytes => number(count.bytes),
            LogField::TcpFlags => number(count.tcp_flags.into()),
            LogField::Type => word(if key.source.is_ipv4() { "IPv4" } else { "IPv6" }),
            LogField::Action => word(match action {
                Action::Accept => "ACCEPT",
                Action::Reject => "REJECT",
            }),
            LogField::FlowDirection => word(if key.egress { "egress" } else { "ingress" }),
            LogField::TrafficPath => path.map_or(Value::None, |path| {
                let nitro = self.facts.is_nitro;
                Value::Number(match path {
                    Path::Cloud => 1,
                    Path::Peering => 4,
                    Path::Endpoint if nitro => 7,
                    Path::Internet if nitro => 8,
                    Path::Endpoint | Path::Internet => 2,
                })
            }),
            _ => Value::None,
        }
    }
}

fn text(text: &str) -> Value<'_> {
    if text.is_empty() { Value::None } else { Value::Text(text.into()) }
}

fn word<'a>(word: &'static str) -> Value<'a> {
    Value::Text(word.into())
}

/// Returns the version of records with these fields: the highest version of any field. // F3
pub fn version_of(fields: &[LogField]) -> u8 {
    fields.iter().map(|field| field.version()).max().unwrap_or(VERSION_MIN).max(VERSION_MIN)
}

/// Returns a record with these fields as a line of text, without a line break.
pub fn line(record: &Record<'_>, fields: &[LogField]) -> String {
    let version = version_of(fields);
    let mut line = String::new();
    for (n, field) in fields.iter().enumerate() {
        if n > 0 {
            line.push(' ');
        }
        // Writing to a string does not fail.
        let _ = match record.value(*field, version) {
            Value::None => line.write_char('-'),
            Value::Number(number) => write!(line, "{number}"),
            Value::Text(text) => line.write_str(&text),
        };
    }
    line
}

/// Returns the first line of a log file: the names of the fields.
pub fn header(fields: &[LogField]) -> String {
    let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    names.join(" ")
}

#[cfg(test)]
mod tests;

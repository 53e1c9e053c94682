//! The structure of `srd.toml`: every key that the file may contain, each value with its position.
//!
//! This module checks only the names of keys and the types of values; it sets no defaults.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use srd_card::profile::suggest::distance;
use toml::Spanned;

use super::card;
use super::several::Several;
use super::{FILE_BYTES_MAX, Mode};
use srd_config::{ConfigError, FileKind, Source};

/// A value with its position in the file; `None` if the file does not contain it.
type Maybe<T> = Option<Spanned<T>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) interface: Maybe<InterfaceTable>,
    #[serde(default)]
    pub(super) expert: ExpertTable,
    pub(super) control: Option<ControlTable>,
    pub(super) metrics: Maybe<MetricsTable>,
    pub(super) cloud: Maybe<CloudTable>,
    pub(super) enrol: Maybe<EnrolTable>,
    #[serde(default)]
    pub(super) peer: Vec<Spanned<PeerTable>>,
}

impl Document {
    /// Position of the first command that the daemon would run; `None` if there is no command.
    pub(super) fn first_hook(&self) -> Option<Range<usize>> {
        let table = self.interface.as_ref()?.as_ref();
        let lists = [&table.pre_up, &table.post_up, &table.pre_down, &table.post_down];
        let places = lists.into_iter().flatten().map(Spanned::span);
        places.min_by_key(|place| place.start)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InterfaceTable {
    pub(super) name: Maybe<String>,
    pub(super) mode: Maybe<String>,
    #[serde(default)]
    pub(super) address: Vec<Spanned<String>>,
    pub(super) private_key_file: Maybe<String>,
    pub(super) listen: Maybe<Several>,
    pub(super) protection: Maybe<String>,
    pub(super) mtu: Maybe<i64>,
    pub(super) workers: Maybe<i64>,
    pub(super) io: Maybe<String>,
    pub(super) poll: Maybe<String>,
    pub(super) link_rate: Maybe<String>,
    pub(super) express: Maybe<bool>,
    pub(super) express_udp: Maybe<bool>,
    pub(super) express_tunnels: Maybe<bool>,
    pub(super) dscp: Maybe<i64>,
    pub(super) kill_switch: Maybe<bool>,
    #[serde(default)]
    pub(super) pre_up: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) post_up: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) pre_down: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) post_down: Vec<Spanned<String>>,
}

/// Settings whose defaults are right on almost every network, and settings of a laboratory.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpertTable {
    pub(super) paths: Maybe<i64>,
    pub(super) udp_ordering: Maybe<String>,
    pub(super) order_wait_ms: Maybe<f64>,
    pub(super) queue_delay_ms: Maybe<f64>,
    pub(super) table: Maybe<toml::Value>,
    pub(super) scale: Maybe<String>,
    pub(super) credits: Maybe<i64>,
}

/// Keys of [`ExpertTable`].
pub(super) const EXPERT_KEYS: [&str; 7] =
    ["paths", "udp_ordering", "order_wait_ms", "queue_delay_ms", "table", "scale", "credits"];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CloudTable {
    pub(super) vpc: Maybe<String>,
    pub(super) host: Maybe<String>,
    pub(super) internet: bool,
    pub(super) internet_private: Maybe<bool>,
    pub(super) end_programs: bool,
    pub(super) processors: Maybe<i64>,
    pub(super) vhost_user: BTreeMap<Spanned<String>, Spanned<String>>,
    pub(super) vhost_user_client: BTreeMap<Spanned<String>, Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnrolTable {
    pub(super) controller: Maybe<String>,
    pub(super) token_file: Maybe<String>,
    pub(super) name: Maybe<String>,
    pub(super) endpoint: Maybe<Several>,
    pub(super) directory: Maybe<String>,
    pub(super) instances: Maybe<InstancesTable>,
}

/// Instances that a host accepts from its controller.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InstancesTable {
    pub(super) zone: Maybe<String>,
    pub(super) vcpus: Maybe<i64>,
    #[serde(default)]
    pub(super) types: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) pods: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControlTable {
    pub(super) socket: Maybe<String>,
    pub(super) group: Maybe<String>,
    pub(super) group_captures: Maybe<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MetricsTable {
    pub(super) listen: Maybe<String>,
    pub(super) allow_remote: Option<bool>,
    #[serde(default)]
    pub(super) host_names: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerTable {
    pub(super) name: Maybe<String>,
    pub(super) public_key: Maybe<String>,
    pub(super) preshared_key_file: Maybe<String>,
    pub(super) endpoint: Maybe<Several>,
    pub(super) host: Maybe<String>,
    #[serde(default)]
    pub(super) allowed: Vec<Spanned<String>>,
    pub(super) express: Option<bool>,
    pub(super) express_udp: Option<bool>,
}

/// Reads a file of at most `FILE_BYTES_MAX` bytes. Returns its text and its metadata.
pub(super) fn read(path: &Path) -> Result<(String, Metadata), ConfigError> {
    let source = Source { path, text: "" };
    let refused = |e: std::io::Error| {
        let remedy = match e.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "let this user read it, and enter its directory"
            }
            _ => "name a readable file",
        };
        source.error(None, format!("cannot read it: {}", words(&e)), remedy)
    };
    let file = File::open(path).map_err(refused)?;
    let facts = file.metadata().map_err(refused)?;
    if facts.is_dir() {
        return Err(source.error(None, "this is a directory", "name the file in it"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() > FILE_BYTES_MAX {
        let what = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err(source.error(None, what, "name a configuration"));
    }
    let text = String::from_utf8(bytes).map_err(|_| refused(io::ErrorKind::InvalidData.into()))?;
    Ok((text, facts))
}

/// Parses the text of a file. Values are not checked yet.
pub(super) fn parse(source: &Source<'_>) -> Result<Document, ConfigError> {
    if super::wireguard::is_meant(source.text) {
        let file = source.path.display();
        let remedy =
            format!("srd import {file} writes the same in our own form, with the same keys");
        return Err(source.error(None, "this is a file of WireGuard's", remedy));
    }
    if let Some(error) = card::refusal(source) {
        return Err(error);
    }
    if let Some(span) = single_peer(source.text) {
        let what = "there may be several peers, so each one's table stands in double brackets";
        return Err(source.error(Some(span), what, "write [[peer]]"));
    }
    toml::from_str(source.text).map_err(|e| {
        if let Some((what, remedy)) = FileKind::Settings.mistaken(source.path, source.text) {
            return source.error(None, what, remedy);
        }
        let message = e.message().trim().replace('\n', "; ");
        let moved = source.moved_to_expert(e.span(), &message, &EXPERT_KEYS);
        moved.unwrap_or_else(|| source.error(e.span(), in_words(&message), remedy(&message)))
    })
}

/// Rewrites a message of the TOML parser in plain words instead of Rust's type names.
fn in_words(message: &str) -> String {
    let words = [
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected a boolean", "expected true or false"),
        ("invalid type: map", "invalid type: table"),
        ("expected a sequence", "expected a list, as in [\"one\", \"two\"]"),
    ];
    words.iter().fold(message.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

/// Position of a table `[peer]` in single brackets, if there is one: a common mistake for
/// `[[peer]]`.
fn single_peer(text: &str) -> Option<std::ops::Range<usize>> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.split('#').next().is_some_and(|code| code.trim() == "[peer]") {
            return Some(at..at + line.trim_end().len());
        }
        at += line.len();
    }
    None
}

/// Returns advice to correct the error that a message of the TOML parser describes.
fn remedy(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if message.starts_with("unknown field")
        && let [unknown, known @ ..] = quoted.as_slice()
    {
        let near = known.iter().min_by_key(|name| distance(unknown, name));
        let is_near = |name: &&&str| distance(unknown, name) <= 1 + name.len() / 4;
        return match near.filter(is_near) {
            Some(name) => format!("write `{name}`"),
            None => "take it out, or move it to the table that it belongs to".into(),
        };
    }
    if message.starts_with("duplicate key") {
        return "keep one of the two".into();
    }
    if message.starts_with("invalid type") {
        return "write what is expected; text stands in quotes, numbers and true or false do not"
            .into();
    }
    "a line is key = value, text stands in quotes, a table begins with [its name]".into()
}

impl Mode {
    /// Every mode, with its name in the file.
    pub(super) const ALL: [(Self, &str); 3] =
        [(Self::Overlay, "overlay"), (Self::Transparent, "transparent"), (Self::Cloud, "cloud")];
}

/// Text of a system error, without its error number.
fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::InvalidData => "not a text file (UTF-8)".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_gets_the_nearest_known_one_for_a_remedy() {
        let known = "unknown field `adress`, expected one of `name`, `address`, `paths`";
        assert_eq!(remedy(known), "write `address`");
        let far = "unknown field `colour`, expected one of `name`, `address`";
        assert!(remedy(far).contains("take it out"));
    }

    /// The error was an unknown field.
    #[test]
    fn regression_the_file_of_a_vpc_is_named_as_such() {
        let text = "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n";
        let error = crate::config::Config::parse(text, Path::new("/etc/cloud.toml")).unwrap_err();
        assert!(error.what.contains("this is the file of a VPC"), "{error}");
        assert!(error.remedy.contains("srd card up /etc/cloud.toml"), "{error}");
    }
}

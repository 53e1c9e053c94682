//! Adds or removes one peer: in the running configuration, and in the text of its file.
//!
//! A peer that a command adds is checked by the rules for peers in the file, and against all
//! existing peers. The rest of the file stays unchanged, with its order, comments and notation.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Config, file, key_files, peers};
use crate::keys;
use srd_config::{ConfigError, Source};

/// Name that stands for the file in errors about the text of a new peer.
const ORIGIN: &str = "the new peer";

/// A peer in the form of a table `[[peer]]` of the file. Absent values take their defaults.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerForm {
    /// Name of the peer.
    pub name: String,
    /// Public key of the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// Absolute path of the file with the preshared key, an additional secret that both ends have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preshared_key_file: Option<String>,
    /// Address or name of the peer, with a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Prefixes of inner addresses behind the peer.
    #[serde(default)]
    pub allowed: Vec<String>,
    /// Whether packets to the peer use SRD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub express: Option<bool>,
    /// Whether UDP packets to the peer use SRD; TCP always does if `express` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub express_udp: Option<bool>,
}

impl PeerForm {
    /// The text of the table `[[peer]]`, as it is written into the file.
    fn table(&self) -> String {
        // Converting strings, lists of strings and booleans to TOML cannot fail.
        format!("[[peer]]\n{}", toml::to_string(self).unwrap_or_default())
    }
}

impl Config {
    /// Returns a copy of this configuration with one more peer.
    ///
    /// # Errors
    /// The error in the peer; its position is within the text of the peer's table.
    pub fn with_peer(&self, form: &PeerForm) -> Result<Self, ConfigError> {
        let text = form.table();
        let source = Source { path: Path::new(ORIGIN), text: &text };
        let document = file::parse(&source)?;
        let node = (&self.interface, self.cloud.as_ref());
        let peers =
            peers::peers(&source, &document.peer, node, &self.peers, key_files::Keys::Read)?;
        Ok(Self { peers, ..self.clone() })
    }

    /// Returns a copy of this configuration without one peer, or `None` if there is no such peer.
    /// The peer is selected by its name or the beginning of its key.
    pub fn without_peer(&self, wanted: &str) -> Option<Self> {
        let index = self.position_of(wanted)?;
        let mut config = self.clone();
        config.peers.remove(index);
        Some(config)
    }

    fn position_of(&self, wanted: &str) -> Option<usize> {
        let by_name = self.peers.iter().position(|peer| peer.name == wanted);
        by_name.or_else(|| {
            let key = |p: &super::PeerSettings| p.public_key.map(|key| key.to_string());
            let is_meant = |p| key(p).is_some_and(|key| keys::is_meant(&key, wanted));
            self.peers.iter().position(is_meant)
        })
    }
}

/// Returns the text of a configuration file with one more peer.
///
/// # Errors
/// The first error in the new text.
pub fn add(text: &str, path: &Path, form: &PeerForm) -> Result<String, ConfigError> {
    let gap = if text.ends_with('\n') { "\n" } else { "\n\n" };
    let made = format!("{text}{gap}{}", form.table());
    Config::parse(&made, path)?;
    Ok(made)
}

/// Returns the text of a configuration file without one peer; `None` if no peer has the name or key
/// `wanted`.
///
/// # Errors
/// The first error in the text, before or after the removal.
pub fn remove(text: &str, path: &Path, wanted: &str) -> Result<Option<String>, ConfigError> {
    let Some(index) = Config::parse(text, path)?.position_of(wanted) else { return Ok(None) };
    let source = Source { path, text };
    let refused = |span: Option<Range<usize>>, what: &str| {
        source.error(span, what, "take the peer out by hand")
    };
    let read = toml_edit::Document::parse(text.to_owned());
    let document = read.map_err(|e: toml_edit::TomlError| refused(e.span(), e.message()))?;
    let place = document.get("peer").and_then(toml_edit::Item::span);
    let mut document = document.into_mut();
    let tables = document.get_mut("peer").and_then(toml_edit::Item::as_array_of_tables_mut);
    let tables = tables.ok_or_else(|| refused(place, "the peers are not written as [[peer]]"))?;
    tables.remove(index);
    let made = document.to_string();
    Config::parse(&made, path)?;
    Ok(Some(made))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SecretKey;

    const TEXT: &str = "# ours\n[interface]\nmode = \"transparent\"\nlisten = \"0.0.0.0:7471\"\n\
                        protection = \"plain\"   # for now\n\n[[peer]]\nname = \"b\"\n\
                        endpoint = \"192.0.2.2:7471\"\nallowed = [\"192.0.2.2\"]\n\n\
                        [[peer]]\nname = \"c\" # the third\nendpoint = \"192.0.2.3:7471\"\n\
                        allowed = [\"192.0.2.3\"]\n";

    fn form(name: &str, address: &str) -> PeerForm {
        PeerForm {
            name: name.into(),
            public_key: Some(SecretKey::draw_private().unwrap().public().to_string()),
            endpoint: Some(format!("{address}:7471")),
            allowed: vec![address.into()],
            ..PeerForm::default()
        }
    }

    #[test]
    fn a_peer_by_command_is_checked_as_one_in_the_file_and_against_those_there() {
        let path = Path::new("a.toml");
        let config = Config::parse(TEXT, path).unwrap();
        let more = config.with_peer(&form("d", "192.0.2.4")).unwrap();
        assert_eq!(more.peers.len(), 3);
        assert_eq!((&more.peers[..2], more.peers[2].name.as_str()), (&config.peers[..], "d"));
        for (bad, says) in [
            (form("b", "192.0.2.4"), "a peer `b` already"),
            (form("all", "192.0.2.4"), "every peer"),
            (form("d", "192.0.2.3"), "this endpoint already"),
            (PeerForm { allowed: vec![], ..form("d", "192.0.2.4") }, "`allowed` is missing"),
            (
                PeerForm { allowed: vec!["192.0.2.3".into()], ..form("d", "192.0.2.4") },
                "192.0.2.3/32 is behind",
            ),
        ] {
            let error = config.with_peer(&bad).unwrap_err().to_string();
            assert!(error.contains(says) && error.starts_with(ORIGIN), "{error}");
        }
        assert_eq!(more.without_peer("d").unwrap().peers, config.peers);
        assert!(more.without_peer("x").is_none());
        let key = more.peers[2].public_key.unwrap().to_string();
        assert_eq!(more.without_peer(&key[..10]).unwrap().peers, config.peers);
        assert!(more.without_peer(&key[..4]).is_none());
    }

    #[test]
    fn the_file_keeps_everything_that_is_not_of_the_peer() {
        let path = Path::new("a.toml");
        let more = add(TEXT, path, &form("d", "192.0.2.4")).unwrap();
        assert!(more.starts_with(TEXT) && Config::parse(&more, path).unwrap().peers.len() == 3);
        assert!(add(TEXT, path, &form("b", "192.0.2.4")).is_err());
        assert_eq!(remove(&more, path, "d").unwrap().unwrap().trim_end(), TEXT.trim_end());
        let less = remove(TEXT, path, "b").unwrap().unwrap();
        for kept in ["# ours", "# for now", "name = \"c\" # the third"] {
            assert!(less.contains(kept), "{less}");
        }
        assert_eq!(Config::parse(&less, path).unwrap().peers.len(), 1);
        assert_eq!(remove(TEXT, path, "x").unwrap(), None);
    }

    #[test]
    fn regression_peers_in_another_form_are_refused_at_their_place() {
        let inline = "peer = [\n{ name = \"b\", endpoint = \"192.0.2.2:7471\", \
                      allowed = [\"192.0.2.2\"] }]\n[interface]\nmode = \"transparent\"\n\
                      listen = \"0.0.0.0:7471\"\nprotection = \"plain\"\n";
        let error = remove(inline, Path::new("srd0.toml"), "b").unwrap_err();
        assert!(error.what.contains("[[peer]]"), "{error}");
        assert_eq!(error.place.unwrap().line, 1);
    }
}

//! Converts a configuration file of WireGuard into the form of `srd.toml`.
//!
//! ```text
//!   [Interface]                       [interface]
//!   Address = 10.0.0.1/24        -->  address = ["10.0.0.1/24"]
//!   PrivateKey = ...                  private_key_file = "/etc/srd/private.key"
//!   ListenPort = 51820                listen = "[::]:51820"
//!   [Peer]                            [[peer]]
//!   PublicKey = ...                   public_key = "..."
//!   AllowedIPs = 10.0.0.2/32          allowed = ["10.0.0.2/32"]
//!   Endpoint = b.example:51820        endpoint = "b.example:51820"
//! ```
//!
//! WireGuard and SRD use the same kind of keys, so the keys stay valid. The converted text contains
//! no secrets: it names key files, and its comments explain how to create them. A key or table of
//! WireGuard without a counterpart becomes a comment, so that no setting is lost silently.
//!
//! | module | contents |
//! |---|---|
//! | `read` | reads a file as `wg` and `wg-quick` do |

mod read;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use read::{File, Interface, Peer};

/// The UDP port of the converted file if WireGuard's file sets none.
const PORT: u16 = 7471;
/// The beginning of every text that was converted from a file of WireGuard.
const MADE_FROM: &str = "# From WireGuard's ";
/// Keys that occur only in files of WireGuard, in lower case.
const KEYS: [&str; 6] =
    ["privatekey", "publickey", "presharedkey", "allowedips", "listenport", "persistentkeepalive"];

/// Whether a text is a file of WireGuard: it contains the line `[Interface]` or `[Peer]`, or one of
/// the keys that only WireGuard has.
pub fn is_meant(text: &str) -> bool {
    let is_theirs = |line: &str| {
        let key = line.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        line.eq("[Interface]") || line.eq("[Peer]") || KEYS.contains(&key.as_str())
    };
    text.trim_start_matches('\u{feff}').lines().map(str::trim).any(is_theirs)
}

/// Whether a text was created by [`convert`]: it begins with the comment that names its origin.
pub(super) fn is_made(text: &str) -> bool {
    text.starts_with(MADE_FROM)
}

/// Names that the converted text mentions.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Path of WireGuard's configuration file. Comments of the converted text have commands with
    /// it.
    pub file: &'a str,
    /// The name of the interface.
    pub interface: &'a str,
    /// Path of the file that will contain the private key.
    pub key_file: &'a str,
}

/// Result of a conversion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Converted {
    /// The file in the form of `srd.toml`.
    pub text: String,
    /// The keys and tables that were not converted.
    pub left_out: Vec<String>,
}

/// Converts a file of WireGuard into the form of `srd.toml`.
///
/// # Errors
/// The line and the reason, if `wg` or `wg-quick` would refuse the file as well.
pub fn convert(text: &str, names: Names<'_>) -> Result<Converted, String> {
    let file = read::read(text).map_err(|why| format!("{}, {why}", names.file))?;
    let mut out = Writer { text: String::new(), left_out: Vec::new(), names };
    out.interface(&file);
    for peer in &file.peers {
        out.peer(peer, &file.interface);
    }
    Ok(Converted { text: out.text, left_out: out.left_out })
}

/// Builds the converted text.
struct Writer<'a> {
    text: String,
    left_out: Vec<String>,
    names: Names<'a>,
}

impl Writer<'_> {
    fn line(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.text, "{}", line.as_ref());
    }

    fn leave_out(&mut self, what: &str, why: &str) {
        self.line(format!("# {what} of {} is not taken over{why}", quoted(self.names.file)));
        if !self.left_out.iter().any(|other| other == what) {
            self.left_out.push(what.to_owned());
        }
    }

    fn interface(&mut self, file: &File) {
        let Names { file: path, interface: name, .. } = self.names;
        let interface = &file.interface;
        self.line(format!("{MADE_FROM}{}.", quoted(path)));
        self.line(format!("[interface]\nname = {}", toml(name)));
        self.private_key(interface.has_private_key);
        if interface.address.is_empty() {
            self.line("# It has no Address, which an overlay needs: write the one that");
            self.line("# `ip address` shows at the interface of WireGuard.");
            self.line("# address = [\"10.77.0.1/24\"]");
            self.left_out.push("Address (there is none)".to_owned());
        } else {
            self.list("address", &interface.address);
        }
        let port = interface.listen_port.unwrap_or(PORT);
        let host = if serves_ipv4_alone(&file.peers) { "0.0.0.0" } else { "[::]" };
        self.line(format!("listen = \"{host}:{port}\""));
        let mut expert = Vec::new();
        let ports = i64::from(u16::MAX) + 1 - i64::from(port);
        if ports < super::PATHS_DEFAULT {
            expert.push(format!("paths = {ports}  # there are no more ports behind {port}"));
        }
        match interface.table.as_deref() {
            None => {}
            Some(table) if table.eq_ignore_ascii_case("auto") => {}
            Some(table) if table.eq_ignore_ascii_case("off") => {
                expert.push("table = \"off\"".to_owned());
            }
            Some(table) => match table.parse::<u32>() {
                Ok(number) if !matches!(number, 0 | 252..=255) => {
                    expert.push(format!("table = {number}"));
                }
                _ => self.leave_out("Table", ": routes of ours stand in a table of their own"),
            },
        }
        if let Some(mtu) = &interface.mtu {
            let why = format!(": it is found by itself; if it has to be so, write mtu = {mtu}");
            self.leave_out("MTU", &why);
        }
        for key in &interface.others {
            let why = match key.to_ascii_lowercase().as_str() {
                "dns" => ": `resolvectl dns` in a post_up sets it",
                "fwmark" => ": packets outside carry the number of the table as their mark",
                "saveconfig" => ": `srd peer add --save` writes a peer down",
                "preup" => ": if it is needed here, write it as pre_up",
                "postup" => ": if it is needed here, write it as post_up",
                "predown" => ": if it is needed here, write it as pre_down",
                "postdown" => ": if it is needed here, write it as post_down",
                _ => "",
            };
            self.leave_out(key, why);
        }
        if !expert.is_empty() {
            self.line("\n[expert]");
            expert.iter().for_each(|line| self.line(line));
        }
    }

    fn peer(&mut self, peer: &Peer, interface: &Interface) {
        let own = |net: &&ipnet::IpNet| {
            interface.address.iter().any(|own| ipnet::IpNet::from(own.addr()) == **net)
        };
        let allowed: Vec<_> = peer.allowed.iter().filter(|net| !own(net)).copied().collect();
        if allowed.is_empty() {
            let key = peer.public_key;
            self.line(format!("\n# No packet would go to the peer {key}: it has no AllowedIPs,"));
            self.line("# or others that follow it, or this machine itself, have them.");
            self.leave_out(&format!("the peer {}", key.short()), "");
            return;
        }
        self.line("\n[[peer]]");
        self.line(format!("public_key = \"{}\"", peer.public_key));
        if let Some(number) = peer.preshared_key {
            self.preshared_key(number);
        }
        if let Some(endpoint) = &peer.endpoint {
            self.line(format!("endpoint = {}", toml(endpoint)));
        }
        self.list("allowed", &allowed);
        if allowed.len() < peer.allowed.len() {
            self.line("# An address of this machine itself was left out of these.");
        }
        for key in &peer.others {
            self.leave_out(key, ": a peer that answers is kept up by itself");
        }
    }

    fn list(&mut self, key: &str, items: &[ipnet::IpNet]) {
        let items: Vec<String> = items.iter().map(|net| format!("\"{net}\"")).collect();
        self.line(format!("{key} = [{}]", items.join(", ")));
    }

    fn private_key(&mut self, is_there: bool) {
        let Names { file, key_file, .. } = self.names;
        let to = quoted(key_file);
        if is_there {
            self.line("# The key stays the same; as root:");
            let values = values_of("PrivateKey", file);
            self.line(format!("#   {values} | tail -n 1 | install -m 0600 /dev/stdin {to}"));
        } else {
            self.line(
                "# The file has no PrivateKey. If the interface of WireGuard is up, as root:",
            );
            self.line(format!(
                "#   wg show INTERFACE private-key | install -m 0600 /dev/stdin {to}"
            ));
        }
        let unit = "# and for the package's unit, which runs as a user of its own: chown srd";
        self.line(format!("{unit} {to}"));
        self.line(format!("private_key_file = {}", toml(key_file)));
    }

    /// Writes the name of the file for a preshared key. `number` is the key's position among the
    /// preshared keys of the file, not the position of the peer.
    fn preshared_key(&mut self, number: usize) {
        let Names { file, key_file, .. } = self.names;
        let to = format!("{key_file}.psk{number}");
        let values = values_of("PresharedKey", file);
        self.line("# This key stays the same, too; as root, and then chown as above:");
        let (number, place) = (format!("sed -n {number}p"), quoted(&to));
        self.line(format!("#   {values} | {number} | install -m 0600 /dev/stdin {place}"));
        self.line(format!("preshared_key_file = {}", toml(&to)));
    }
}

/// Whether an IPv4 socket can reach all peers: every peer has an endpoint with an IPv4 address. A
/// peer without an endpoint may use either family, and a host name may resolve to either.
fn serves_ipv4_alone(peers: &[Peer]) -> bool {
    let is_ipv4 = |peer: &Peer| {
        let at = peer.endpoint.as_ref().and_then(|at| at.parse::<SocketAddr>().ok());
        at.is_some_and(|at| matches!(at.ip(), IpAddr::V4(_)))
    };
    !peers.is_empty() && peers.iter().all(is_ipv4)
}

/// Returns the shell command that prints all values of a key in a file, read as `wg` reads them.
fn values_of(key: &str, file: &str) -> String {
    format!(r"sed -n 's/#.*//; s/[ \t\r]//g; s/^{key}=//Ip' {}", quoted(file))
}

/// Quotes a name as one word for a shell. Control characters are replaced, so it stays on one line.
fn quoted(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("'{}'", name.replace('\'', r"'\''"))
}

/// Returns a string in the notation of TOML, with quotes.
fn toml(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

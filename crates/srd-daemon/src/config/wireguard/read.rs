//! A file of WireGuard's as `wg setconf` and `wg-quick` read it.
//!
//! Both take names of tables and keys in any case, white space anywhere, comments behind values,
//! tables and keys several times (of a value the last counts, of a list all), and addresses with
//! bits set beyond their prefix. A table or key that neither knows is refused, as `wg` does.
//!
//! Bounds: those of the text, whose length the caller limits.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use crate::keys::{PublicKey, SecretKey};

/// The interface that a file describes.
#[derive(Debug, Default)]
pub(super) struct Interface {
    pub(super) address: Vec<IpNet>,
    pub(super) listen_port: Option<u16>,
    pub(super) has_private_key: bool,
    pub(super) mtu: Option<String>,
    pub(super) table: Option<String>,
    /// Keys that have no counterpart, as the file writes them.
    pub(super) others: Vec<String>,
}

/// A peer that a file describes.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) public_key: PublicKey,
    /// The number of its preshared key among all of the file.
    pub(super) preshared_key: Option<usize>,
    pub(super) endpoint: Option<String>,
    pub(super) allowed: Vec<IpNet>,
    /// Keys that have no counterpart, as the file writes them.
    pub(super) others: Vec<String>,
}

/// A file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) interface: Interface,
    pub(super) peers: Vec<Peer>,
}

/// A peer whose table has not ended.
#[derive(Debug, Default)]
struct Open {
    line: usize,
    public_key: Option<PublicKey>,
    preshared_key: Option<usize>,
    endpoint: Option<String>,
    allowed: Vec<IpNet>,
    others: Vec<String>,
}

#[derive(Debug, Default)]
enum Table {
    #[default]
    None,
    Interface,
    Peer(Open),
}

#[derive(Debug, Default)]
struct Reader {
    file: File,
    table: Table,
    preshared_keys: usize,
}

/// Reads a file. An error says which line is wrong and why, and holds no secret.
pub(super) fn read(text: &str) -> Result<File, String> {
    let mut reader = Reader::default();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            reader.line(number, line).map_err(|why| format!("line {number}: {why}"))?;
        }
    }
    reader.end_table()?;
    Ok(reader.file)
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let bare = without_space(line);
        if bare.starts_with('[') {
            self.end_table()?;
            self.table = match bare.to_ascii_lowercase().as_str() {
                "[interface]" => Table::Interface,
                "[peer]" => Table::Peer(Open { line: number, ..Open::default() }),
                _ => return Err(format!("there is no table {bare} in a file of WireGuard's")),
            };
            return Ok(());
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err("it is neither a table nor a key with its value".to_owned());
        };
        let (key, value) = (without_space(key), value.trim());
        if value.is_empty() {
            return Err(format!("{key} has no value"));
        }
        match &mut self.table {
            Table::None => Err(format!("{key} stands in no table: [Interface] or [Peer] is first")),
            Table::Interface => interface(&mut self.file.interface, &key, value),
            Table::Peer(peer) => peer_key(peer, &mut self.preshared_keys, &key, value),
        }
    }

    fn end_table(&mut self) -> Result<(), String> {
        let Table::Peer(open) = std::mem::take(&mut self.table) else { return Ok(()) };
        let Some(public_key) = open.public_key else {
            return Err(format!("line {}: this peer has no PublicKey", open.line));
        };
        // A prefix lies behind the peer that names it last.
        for other in &mut self.file.peers {
            other.allowed.retain(|net| !open.allowed.contains(net));
        }
        let Open { preshared_key, endpoint, allowed, others, .. } = open;
        let known = self.file.peers.iter_mut().find(|peer| peer.public_key == public_key);
        match known {
            // A second table of a peer changes what it names, and all of its prefixes.
            Some(known) => {
                known.preshared_key = preshared_key.or(known.preshared_key);
                known.endpoint = endpoint.or(known.endpoint.take());
                known.allowed = allowed;
                known.others.extend(others);
            }
            None => {
                let peer = Peer { public_key, preshared_key, endpoint, allowed, others };
                self.file.peers.push(peer);
            }
        }
        Ok(())
    }
}

fn interface(interface: &mut Interface, key: &str, value: &str) -> Result<(), String> {
    match key.to_ascii_lowercase().as_str() {
        "address" => {
            let items = value.split(|c: char| c == ',' || c.is_whitespace());
            for item in items.filter(|item| !item.is_empty()) {
                let net = address(item).ok_or_else(|| no_address(key, item))?;
                if !interface.address.iter().any(|other| other.addr() == net.addr()) {
                    interface.address.push(net);
                }
            }
        }
        "listenport" => {
            // With 0 the kernel chooses, as without the key.
            let port: u16 = without_space(value).parse().map_err(|_| no_number(key, value))?;
            interface.listen_port = Some(port).filter(|port| *port != 0);
        }
        "privatekey" => {
            SecretKey::parse(&without_space(value)).map_err(|e| format!("{key} is no key: {e}"))?;
            interface.has_private_key = true;
        }
        "mtu" => {
            let mtu: u32 = without_space(value).parse().map_err(|_| no_number(key, value))?;
            interface.mtu = Some(mtu.to_string());
        }
        "table" => interface.table = Some(without_space(value)),
        "fwmark" | "dns" | "preup" | "postup" | "predown" | "postdown" | "saveconfig" => {
            note(&mut interface.others, key);
        }
        _ => return Err(unknown(key, "[Interface]")),
    }
    Ok(())
}

fn peer_key(
    peer: &mut Open,
    preshared_keys: &mut usize,
    key: &str,
    value: &str,
) -> Result<(), String> {
    let bare = without_space(value);
    match key.to_ascii_lowercase().as_str() {
        "publickey" => {
            let found = PublicKey::parse(&bare).map_err(|e| format!("{key} is no key: {e}"))?;
            peer.public_key = Some(found);
        }
        "presharedkey" => {
            SecretKey::parse(&bare).map_err(|e| format!("{key} is no key: {e}"))?;
            *preshared_keys += 1;
            peer.preshared_key = Some(*preshared_keys);
        }
        "endpoint" => peer.endpoint = Some(endpoint(&bare)?),
        "allowedips" => {
            for item in bare.split(',').filter(|item| !item.is_empty()) {
                let net = prefix(item).ok_or_else(|| no_address(key, item))?.trunc();
                if !peer.allowed.contains(&net) {
                    peer.allowed.push(net);
                }
            }
        }
        "persistentkeepalive" => note(&mut peer.others, key),
        _ => return Err(unknown(key, "[Peer]")),
    }
    Ok(())
}

fn note(others: &mut Vec<String>, key: &str) {
    if !others.iter().any(|other| other.eq_ignore_ascii_case(key)) {
        others.push(key.to_owned());
    }
}

fn without_space(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn unknown(key: &str, table: &str) -> String {
    let key: String = key.chars().take(KEY_CHARS_SHOWN).collect();
    format!("WireGuard knows no key `{}` in {table}", key.escape_debug())
}

/// Characters of an unknown key that are shown.
const KEY_CHARS_SHOWN: usize = 40;

fn no_number(key: &str, value: &str) -> String {
    format!("{key} is a number, not `{}`", value.escape_debug())
}

fn no_address(key: &str, item: &str) -> String {
    format!("`{}` of {key} is no address and no prefix", item.escape_debug())
}

/// An address with the length of its prefix, or alone.
fn prefix(text: &str) -> Option<IpNet> {
    let alone = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(alone)
}

/// Reads an address as `ip address add` does, which takes a mask as well.
fn address(text: &str) -> Option<IpNet> {
    let masked = || {
        let (address, mask) = text.split_once('/')?;
        let (address, mask): (Ipv4Addr, Ipv4Addr) = (address.parse().ok()?, mask.parse().ok()?);
        Ipv4Net::with_netmask(address, mask).ok().map(IpNet::from)
    };
    prefix(text).or_else(masked)
}

/// Where a peer is, in our own form: WireGuard takes IPv6 addresses without brackets, too.
fn endpoint(text: &str) -> Result<String, String> {
    let wrong = || {
        let text = text.escape_debug();
        format!("`{text}` of Endpoint is no address or name with the number of a port")
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = inside.unwrap_or(host);
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
    if host.is_empty() || port == 0 || !host.chars().all(is_part) {
        return Err(wrong());
    }
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

//! Reads a file of WireGuard as `wg setconf` and `wg-quick` do.
//!
//! `wg` and `wg-quick` accept names of tables and keys in upper and lower case, white space
//! anywhere, and comments after values. Tables and keys may be repeated: the last value counts, and
//! lists are joined. Addresses may have bits set beyond their prefix. A table or key that neither
//! program supports is refused.
//!
//! Bounds: the caller limits the length of the text; at most [`SERVICES_BYTES_MAX`] of
//! `/etc/services` are read.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use crate::keys::{PublicKey, SecretKey};

/// File with the names of the ports of services.
const SERVICES: &str = "/etc/services";
/// Largest number of bytes of `/etc/services` that are read.
const SERVICES_BYTES_MAX: u64 = 1 << 20;

/// The table `[Interface]` of a file.
#[derive(Debug, Default)]
pub(super) struct Interface {
    pub(super) address: Vec<IpNet>,
    pub(super) listen_port: Option<u16>,
    pub(super) has_private_key: bool,
    pub(super) mtu: Option<u32>,
    pub(super) table: Option<String>,
    /// Names of keys that have no counterpart in `srd.toml`, as the file writes them.
    pub(super) others: Vec<String>,
}

/// The peer that a table `[Peer]` of a file describes.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) public_key: PublicKey,
    /// Position of the peer's preshared key among all preshared keys of the file, counted from 1;
    /// `None` if the peer has no such key.
    pub(super) preshared_key: Option<usize>,
    pub(super) endpoint: Option<String>,
    pub(super) allowed: Vec<IpNet>,
    /// Names of keys that have no counterpart in `srd.toml`, as the file writes them.
    pub(super) others: Vec<String>,
}

/// The contents of a file of WireGuard.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) interface: Interface,
    pub(super) peers: Vec<Peer>,
}

/// A table `[Peer]` that is still being read.
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

/// Reads a file. An error names the line and the reason, and contains no secret.
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
        // If several peers list the same prefix, it belongs to the last of them.
        for other in &mut self.file.peers {
            other.allowed.retain(|net| !open.allowed.contains(net));
        }
        let Open { preshared_key, endpoint, allowed, others, .. } = open;
        let known = self.file.peers.iter_mut().find(|peer| peer.public_key == public_key);
        match known {
            // A second table for the same peer replaces the keys that it contains, and always the
            // whole list of prefixes.
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
            // Port 0 means that the kernel selects a port, as it does if the key is absent.
            let port = port(&without_space(value)).ok_or_else(|| no_port(key, value))?;
            interface.listen_port = Some(port).filter(|port| *port != 0);
        }
        "privatekey" => {
            SecretKey::parse(&without_space(value)).map_err(|e| format!("{key} is no key: {e}"))?;
            interface.has_private_key = true;
        }
        "mtu" => {
            let mtu = number(&without_space(value)).ok_or_else(|| no_number(key, value))?;
            interface.mtu = Some(mtu);
        }
        "table" => interface.table = Some(without_space(value)),
        // A setting that is switched off is not reported as lost.
        "fwmark" => match without_space(value).to_ascii_lowercase().as_str() {
            "off" | "0" => forget(&mut interface.others, key),
            mark if number(mark).is_some() => note(&mut interface.others, key),
            _ => return Err(format!("{key} is off or a number, not `{}`", value.escape_debug())),
        },
        "saveconfig" => match without_space(value).as_str() {
            "true" => note(&mut interface.others, key),
            "false" => forget(&mut interface.others, key),
            _ => return Err(format!("{key} is true or false, not `{}`", value.escape_debug())),
        },
        "dns" | "preup" | "postup" | "predown" | "postdown" => note(&mut interface.others, key),
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
        // A setting that is switched off is not reported as lost.
        "persistentkeepalive" => match bare.to_ascii_lowercase().as_str() {
            "off" | "0" => forget(&mut peer.others, key),
            seconds if seconds.parse::<u16>().is_ok() => note(&mut peer.others, key),
            _ => {
                let value = value.escape_debug();
                return Err(format!("{key} is off or a number up to 65535, not `{value}`"));
            }
        },
        _ => return Err(unknown(key, "[Peer]")),
    }
    Ok(())
}

fn note(others: &mut Vec<String>, key: &str) {
    if !others.iter().any(|other| other.eq_ignore_ascii_case(key)) {
        others.push(key.to_owned());
    }
}

/// Removes a key from the list of keys without a counterpart, because its last value switches it
/// off.
fn forget(others: &mut Vec<String>, key: &str) {
    others.retain(|other| !other.eq_ignore_ascii_case(key));
}

/// Parses a number as `ip` and `wg` do: decimal digits, or hexadecimal digits after `0x`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses a port as the C library does: a number, or the name of a UDP service in `/etc/services`.
fn port(text: &str) -> Option<u16> {
    let known = || {
        let mut services = String::new();
        let file = std::fs::File::open(SERVICES).ok()?;
        file.take(SERVICES_BYTES_MAX).read_to_string(&mut services).ok()?;
        port_in(&services, text)
    };
    text.parse().ok().or_else(known)
}

/// Finds the port of a UDP service by its name or an alias in the text of `/etc/services`.
fn port_in(services: &str, wanted: &str) -> Option<u16> {
    let port = |line: &str| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let (name, at) = (words.next()?, words.next()?);
        let port = at.strip_suffix("/udp")?.parse().ok()?;
        (name == wanted || words.any(|other| other == wanted)).then_some(port)
    };
    services.lines().find_map(port)
}

fn without_space(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn unknown(key: &str, table: &str) -> String {
    let key: String = key.chars().take(KEY_CHARS_SHOWN).collect();
    format!("WireGuard knows no key `{}` in {table}", key.escape_debug())
}

/// Largest number of characters of an unknown key that an error message shows.
const KEY_CHARS_SHOWN: usize = 40;

fn no_number(key: &str, value: &str) -> String {
    format!("{key} is a number, not `{}`", value.escape_debug())
}

fn no_port(key: &str, value: &str) -> String {
    let value = value.escape_debug();
    format!("{key} is a number, or the name of a service of UDP in {SERVICES}, not `{value}`")
}

fn no_address(key: &str, item: &str) -> String {
    format!("`{}` of {key} is no address and no prefix", item.escape_debug())
}

/// Parses an address with or without a prefix length.
fn prefix(text: &str) -> Option<IpNet> {
    let alone = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(alone)
}

/// Parses an address as `ip address add` does, which accepts a netmask as well.
fn address(text: &str) -> Option<IpNet> {
    let masked = || {
        let (address, mask) = text.split_once('/')?;
        let (address, mask): (Ipv4Addr, Ipv4Addr) = (address.parse().ok()?, mask.parse().ok()?);
        Ipv4Net::with_netmask(address, mask).ok().map(IpNet::from)
    };
    prefix(text).or_else(masked)
}

/// Converts an endpoint into the form of `srd.toml`: WireGuard also accepts an IPv6 address without
/// brackets.
fn endpoint(text: &str) -> Result<String, String> {
    let wrong = || {
        let text = text.escape_debug();
        format!(
            "`{text}` of Endpoint is no address or name with a port: its number, or its name in \
             {SERVICES}"
        )
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = self::port(port).ok_or_else(wrong)?;
    let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = inside.unwrap_or(host);
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
    if host.is_empty() || port == 0 || !host.chars().all(is_part) {
        return Err(wrong());
    }
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_names_and_numbers() {
        let services = "# names\ndomain\t53/tcp\ndomain 53/udp # DNS\n\nsip 5060/udp siphon\nx\n";
        assert_eq!(port_in(services, "domain"), Some(53));
        assert_eq!((port_in(services, "siphon"), port_in(services, "DNS")), (Some(5060), None));
        assert_eq!(
            (port("51820"), port("70000"), port("no-such-service")),
            (Some(51_820), None, None)
        );
        assert_eq!(
            (number("0x5dc"), number("1500"), number("auto")),
            (Some(1500), Some(1500), None)
        );
    }
}

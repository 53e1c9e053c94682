//! Checks of the addresses of the interface, and of addresses to which packets may be sent.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use srd_config::{ConfigError, Source};
use toml::Spanned;

use super::Mode;
use super::endpoint::canonical;
use super::file::InterfaceTable;

type Result<T> = std::result::Result<T, ConfigError>;

/// Reads the `address` list of the interface. An overlay needs at least one address, and a
/// transparent interface must not have any. `has_cloud`: whether the file has a table `[cloud]`.
pub(super) fn addresses(
    source: &Source<'_>,
    spanned: &Spanned<InterfaceTable>,
    (mode, has_cloud): (Mode, bool),
) -> Result<Vec<IpNet>> {
    let list = &spanned.as_ref().address;
    match (mode, list.first()) {
        (Mode::Overlay, None) => {
            let remedy = match has_cloud {
                true => {
                    "add mode = \"cloud\" if there are instances only, or address = \
                     [\"10.77.0.1/24\"], or mode = \"transparent\""
                }
                false => "add address = [\"10.77.0.1/24\"], or mode = \"transparent\"",
            };
            let span = Some(spanned.span());
            Err(source.error(span, "an overlay needs an `address` of its own", remedy))
        }
        (Mode::Cloud, Some(first)) => {
            let what = "mode = \"cloud\" has no interface, and so no `address`";
            Err(source.error(Some(first.span()), what, "take `address` out, or mode = \"overlay\""))
        }
        (Mode::Transparent, Some(first)) => {
            let what = "a transparent interface has no `address`: it takes the real ones' packets";
            Err(source.error(Some(first.span()), what, "take `address` out, or mode = \"overlay\""))
        }
        _ => {
            let example = "write address and prefix length, as in \"10.77.0.1/24\"";
            let mut found: Vec<IpNet> = Vec::new();
            for text in list {
                let net = prefix(source, text, example)?;
                if !is_host_address(net.addr()) {
                    let what = format!("no interface can have the address {}", net.addr());
                    return Err(source.error(Some(text.span()), what, example));
                }
                if let IpNet::V4(v4) = net
                    && v4.prefix_len() < 31
                    && [v4.network(), v4.broadcast()].contains(&v4.addr())
                {
                    let what = format!("{} is the address of all of {}", v4.addr(), v4.trunc());
                    return Err(source.error(Some(text.span()), what, example));
                }
                if found.iter().any(|other| other.addr() == net.addr()) {
                    let what = format!("the address {} is given twice", net.addr());
                    return Err(source.error(Some(text.span()), what, "keep one of the two"));
                }
                found.push(net);
            }
            Ok(found)
        }
    }
}

fn is_host_address(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !address.is_loopback() && !is_broadcast
}

/// Reads an IP address with a port; port 0 is an error.
pub(super) fn socket_address(
    source: &Source<'_>,
    text: &Spanned<String>,
    example: &str,
) -> Result<SocketAddr> {
    let remedy = format!("write an address and a port, as in {example}");
    let found: Option<SocketAddr> = text.as_ref().parse().ok().map(canonical);
    let found = found.filter(|address| address.port() != 0);
    let why = match found {
        Some(address) if !is_many(address.ip()) => return Ok(address),
        Some(_) => "is for many machines, and no address of one",
        None => "is no address with a port",
    };
    Err(source.error(Some(text.span()), format!("`{}` {why}", text.as_ref()), remedy))
}

/// Whether an address is a multicast or broadcast address.
pub(super) fn is_many(address: IpAddr) -> bool {
    address.is_multicast() || matches!(address, IpAddr::V4(v4) if v4.is_broadcast())
}

/// Reads a prefix. An address without a prefix length is a prefix of full length: `/32` or `/128`.
pub(super) fn prefix(source: &Source<'_>, text: &Spanned<String>, example: &str) -> Result<IpNet> {
    let words = text.as_ref();
    let alone = || words.parse::<IpAddr>().ok().map(IpNet::from);
    words.parse().ok().or_else(alone).ok_or_else(|| {
        source.error(Some(text.span()), format!("`{words}` is no IP prefix"), example)
    })
}

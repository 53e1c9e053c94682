//! The setting `io`: whether packets are sent and received through UDP sockets or AF_XDP.

use std::net::{IpAddr, SocketAddr};

use srd_net::xdp::IoChoice;

use super::file::InterfaceTable;
use srd_config::{ConfigError, Source};

/// Reads the setting `io`; the default is UDP sockets. This function refuses AF_XDP only if it
/// could work on no machine. Whether this machine supports it is found out when the sockets are
/// opened.
pub(super) fn io(
    source: &Source<'_>,
    table: &InterfaceTable,
    listen: &SocketAddr,
    further: &[IpAddr],
) -> Result<IoChoice, ConfigError> {
    let Some(text) = &table.io else {
        return Ok(IoChoice::Udp);
    };
    let choice: IoChoice = text.as_ref().parse().map_err(|_| {
        let what = format!("`io` cannot be `{}`", text.as_ref());
        source.error(Some(text.span()), what, "write \"udp\", \"af_xdp\" or \"auto\"")
    })?;
    if choice != IoChoice::AfXdp {
        return Ok(choice);
    }
    let refuse = |what: &str, remedy: &str| Err(source.error(Some(text.span()), what, remedy));
    if listen.ip().is_unspecified() {
        return refuse(
            "AF_XDP works on one network interface, and `listen` names none",
            "write the interface's address in `listen`, or io = \"udp\"",
        );
    }
    if !further.is_empty() {
        return refuse(
            "AF_XDP works on one network interface, and `listen` names several",
            "leave one address in `listen`, or write io = \"udp\"",
        );
    }
    Ok(choice)
}

//! Which `ip` commands make the kernel send packets through the interface, and take them back.
//!
//! **Overlay.** The interface has addresses; what lies behind peers is routed to it.
//!
//! **Transparent.** The interface has none. A table of its own routes the peers' real addresses
//! to the interface while they answer; a rule sends everything through that table but the
//! daemon's own packets, which carry a mark. When the daemon ends, however it ends, the
//! interface goes and with it every route in the table, and packets flow as before.
//!
//! Routes ask for ECN, so that our queues can mark where they would have to drop.

use std::net::IpAddr;

use anyhow::Result;
use ipnet::IpNet;

use crate::config::Mode;
use crate::netconf::Network;

/// The table, mark and rule of `srd0`; of `srd7`, seven more.
const TABLE: u32 = 7471;
/// Super-packets of at most so many bytes: a frame and what its datagrams hold beside fit into
/// one batch of the kernel's (65,507 bytes).
const GSO_BYTES_MAX: u32 = 61_440;
/// Frames that the interface holds while the daemon is busy.
const QUEUE_FRAMES: u32 = 1000;

/// The interface as the kernel is to know it.
#[derive(Debug)]
pub(crate) struct Routing {
    network: Network,
    interface: String,
    mode: Mode,
    table: u32,
}

/// The mark of the daemon's own packets, and the table of its routes.
pub(crate) fn table_of(interface: &str) -> u32 {
    let digits: String =
        interface.chars().rev().take_while(char::is_ascii_digit).collect::<String>();
    let number: String = digits.chars().rev().collect();
    TABLE + number.parse::<u32>().unwrap_or(0) % 10_000
}

impl Routing {
    /// Over a network process that runs.
    pub(crate) fn new(network: Network, interface: &str, mode: Mode) -> Self {
        Self { network, interface: interface.to_owned(), mode, table: table_of(interface) }
    }

    /// Sets up the interface itself.
    ///
    /// # Errors
    /// What `ip` says.
    pub(crate) fn bring_up(&mut self, mtu: u16, addresses: &[IpNet]) -> Result<()> {
        let device = self.interface.clone();
        self.network.apply(&format!("link set dev {device} mtu {mtu}"), None)?;
        self.network.apply(&format!("link set dev {device} txqueuelen {QUEUE_FRAMES}"), None)?;
        let sizes = format!("gso_max_size {GSO_BYTES_MAX} gso_ipv4_max_size {GSO_BYTES_MAX}");
        let sized = self.network.apply(&format!("link set dev {device} {sizes}"), None);
        if sized.is_err() {
            // Before Linux 6.3 one limit holds for both families.
            let size = format!("link set dev {device} gso_max_size {GSO_BYTES_MAX}");
            self.network.apply(&size, None)?;
        }
        for address in addresses {
            let nodad = if address.addr().is_ipv6() { " nodad" } else { "" };
            let command = format!("address replace {address} dev {device} noprefixroute{nodad}");
            self.network.apply(&command, None)?;
        }
        self.network.apply(&format!("link set dev {device} up"), None)?;
        if self.mode == Mode::Transparent {
            let table = self.table;
            for family in ["-4", "-6"] {
                let rule = format!("not fwmark {table} lookup {table} pref {table}");
                let undo = format!("{family} rule del {rule}");
                // Left by a daemon whose network process was killed, too.
                let _ = self.network.apply(&undo, None);
                self.network.apply(&format!("{family} rule add {rule}"), Some(&undo))?;
            }
        }
        Ok(())
    }

    /// Sends packets for a prefix through the interface; in transparent mode from `source`.
    ///
    /// # Errors
    /// What `ip` says.
    pub(crate) fn add(&mut self, prefix: IpNet, source: Option<IpAddr>) -> Result<()> {
        let route = self.route(prefix);
        let source = source.map_or(String::new(), |ip| format!(" src {ip}"));
        let command = format!("route replace {route}{source} features ecn");
        self.network.apply(&command, Some(&format!("route del {route}")))
    }

    /// Takes it back.
    ///
    /// # Errors
    /// What `ip` says.
    pub(crate) fn remove(&mut self, prefix: IpNet) -> Result<()> {
        let command = format!("route del {}", self.route(prefix));
        self.network.apply(&command, None)
    }

    fn route(&self, prefix: IpNet) -> String {
        let device = &self.interface;
        match self.mode {
            Mode::Overlay => format!("{prefix} dev {device}"),
            Mode::Transparent => format!("{prefix} dev {device} table {}", self.table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_have_tables_of_their_own() {
        assert_eq!(table_of("srd0"), 7471);
        assert_eq!(table_of("srd12"), 7483);
        assert_eq!(table_of("fabric"), 7471);
    }
}

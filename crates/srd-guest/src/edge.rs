//! The internet's side: a TUN device in this machine's own namespace.
//!
//! Public addresses of the VPC are routed into it, so that programs of this machine reach
//! instances as the internet would. Packets of instances to other machines are forwarded, and leave
//! with this machine's address. Everything is given back when it is dropped.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use srd_net::Tun;

use crate::namespace::{ip, run};

/// The device.
const DEVICE: &str = "srd-igw";
/// The table of packet rules.
const TABLE: &str = "srd_card";
/// This machine's own address on the internet's side: one of those for documentation, since the
/// internet does not carry private ones.
pub(crate) const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const MTU: u16 = 1500;
const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// The device, and what was changed for it.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) tun: Tun,
    routed: BTreeSet<Ipv4Addr>,
    /// Forwarding as it was, if it was changed.
    forwarded_before: Option<String>,
}

impl Edge {
    pub(crate) fn open(publics: &BTreeSet<Ipv4Addr>) -> Result<Self> {
        let tun = Tun::open(DEVICE).context("a TUN device for the internet's side")?;
        let mut edge = Self { tun, routed: BTreeSet::new(), forwarded_before: None };
        let mtu = MTU.to_string();
        ip(&["link", "set", DEVICE, "mtu", &mtu, "up"])?;
        ip(&["addr", "add", &format!("{OWN}/32"), "dev", DEVICE])?;
        edge.route(publics)?;
        edge.forward()?;
        Ok(edge)
    }

    /// Routes these public addresses into the device, and no others.
    pub(crate) fn route(&mut self, publics: &BTreeSet<Ipv4Addr>) -> Result<()> {
        for address in self.routed.difference(publics) {
            ip(&["route", "del", &format!("{address}/32"), "dev", DEVICE])?;
        }
        for address in publics.difference(&self.routed) {
            let own = OWN.to_string();
            ip(&["route", "add", &format!("{address}/32"), "dev", DEVICE, "src", &own])
                .with_context(|| format!("the public address {address} is in use here"))?;
        }
        self.routed.clone_from(publics);
        Ok(())
    }

    /// Packets of instances leave this machine with its address.
    fn forward(&mut self) -> Result<()> {
        let rules = format!(
            "add table ip {TABLE}\nflush table ip {TABLE}\n\
             add chain ip {TABLE} out {{ type nat hook postrouting priority 100 ; }}\n\
             add rule ip {TABLE} out iifname {DEVICE} oifname != {DEVICE} masquerade\n"
        );
        run("nft", &[&rules])?;
        let before = fs::read_to_string(FORWARD).context(FORWARD)?;
        if before.trim() != "1" {
            fs::write(FORWARD, "1").context(FORWARD)?;
            self.forwarded_before = Some(before);
        }
        Ok(())
    }

    /// Whether an address is one that instances have outside.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V4(address) if self.routed.contains(&address))
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        if let Err(error) = run("nft", &["delete", "table", "ip", TABLE]) {
            tracing::warn!("the packet rules of {DEVICE} stay: {error:#}");
        }
        if let Some(before) = &self.forwarded_before
            && let Err(error) = fs::write(FORWARD, before)
        {
            tracing::warn!("{FORWARD} stays 1: {error}");
        }
    }
}

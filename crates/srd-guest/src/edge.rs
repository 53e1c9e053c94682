//! The internet's side: a TUN device in this machine's own namespace.
//!
//! Public addresses of the VPC are routed into it, so that programs of this machine reach
//! instances as the internet would. Packets of instances to other machines are forwarded, and leave
//! with this machine's address. A machine that was no router does not become one for others. Of the
//! machine itself instances reach its address on the internet's side ([`OWN`]) and answers to its
//! own connections, and no other address that it has, unless private addresses are carried.
//! Everything is given back when this process ends.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use srd_net::Tun;

use crate::namespace::{ip, run};
use crate::undo::Undo;

/// The device.
pub(crate) const DEVICE: &str = "srd-igw";
/// The table of packet rules.
const TABLE: &str = "srd_card";
/// This machine's own address on the internet's side: one of those for documentation, since the
/// internet does not carry private ones.
pub(crate) const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const MTU: u16 = 1500;
const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// A device that was made, and the addresses that are routed into it.
#[derive(Debug)]
pub(crate) struct Device {
    tun: Tun,
    routed: BTreeSet<Ipv4Addr>,
}

/// The internet's side.
#[derive(Debug)]
pub(crate) struct Edge {
    /// None while it is gone.
    tun: Option<Tun>,
    routed: BTreeSet<Ipv4Addr>,
}

/// Makes the device with its addresses and routes.
pub(crate) fn make(publics: &BTreeSet<Ipv4Addr>) -> Result<Device> {
    let tun = Tun::open(DEVICE).context("a TUN device for the internet's side")?;
    let mtu = MTU.to_string();
    ip(&["link", "set", DEVICE, "mtu", &mtu, "up"])?;
    ip(&["addr", "add", &format!("{OWN}/32"), "dev", DEVICE])?;
    let mut edge = Edge { tun: Some(tun), routed: BTreeSet::new() };
    edge.route(publics)?;
    let Edge { tun, routed } = edge;
    Ok(Device { tun: tun.context("the device")?, routed })
}

impl Edge {
    pub(crate) fn open(publics: &BTreeSet<Ipv4Addr>, private: bool, undo: &Undo) -> Result<Self> {
        let Device { tun, routed } = make(publics)?;
        forward(private, undo)?;
        Ok(Self { tun: Some(tun), routed })
    }

    /// The device was deleted, and its routes with it.
    pub(crate) fn lose(&mut self) {
        self.tun = None;
        self.routed.clear();
    }

    /// It was made again. Rules for packets name it, and hold as before.
    pub(crate) fn find(&mut self, Device { tun, routed }: Device) {
        (self.tun, self.routed) = (Some(tun), routed);
    }

    /// The device; none while it is gone.
    pub(crate) fn tun(&self) -> Option<&Tun> {
        self.tun.as_ref()
    }

    /// As [`Edge::tun`], to read.
    pub(crate) fn tun_mut(&mut self) -> Option<&mut Tun> {
        self.tun.as_mut()
    }

    /// Routes these public addresses into the device, and no others. While it is gone there is
    /// nothing to do: it is made with routes.
    pub(crate) fn route(&mut self, publics: &BTreeSet<Ipv4Addr>) -> Result<()> {
        if self.tun.is_none() {
            return Ok(());
        }
        // What is routed is known after each step, so that a failure can be taken back.
        let over: Vec<Ipv4Addr> = self.routed.difference(publics).copied().collect();
        for address in over {
            if let Err(error) = ip(&["route", "del", &format!("{address}/32"), "dev", DEVICE]) {
                tracing::warn!("the route of {address} was removed by another: {error:#}");
            }
            self.routed.remove(&address);
        }
        let new: Vec<Ipv4Addr> = publics.difference(&self.routed).copied().collect();
        let own = OWN.to_string();
        for address in new {
            ip(&["route", "add", &format!("{address}/32"), "dev", DEVICE, "src", &own])
                .with_context(|| format!("the public address {address} is in use here"))?;
            self.routed.insert(address);
        }
        Ok(())
    }

    /// The device that another process has set up, with the addresses that it has routed there.
    pub(crate) fn adopt(tun: Tun, routed: BTreeSet<Ipv4Addr>, private: bool) -> Result<Self> {
        run("nft", &[&to_machine(private)])?;
        Ok(Self { tun: Some(tun), routed })
    }

    /// The addresses that are routed into the device.
    pub(crate) fn routed(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.routed.iter().copied()
    }

    /// Whether an address is one that instances have outside.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V4(address) if self.routed.contains(&address))
    }
}

/// Rules for packets of instances to this machine itself, in the place of earlier ones.
fn to_machine(private: bool) -> String {
    let mut rules = format!("flush chain ip {TABLE} in\n");
    if !private {
        rules += &format!(
            "add rule ip {TABLE} in iifname {DEVICE} ct state established,related accept\n\
             add rule ip {TABLE} in iifname {DEVICE} ip daddr {OWN} accept\n\
             add rule ip {TABLE} in iifname {DEVICE} drop\n"
        );
    }
    rules
}

/// Packets of instances leave this machine with its address.
fn forward(private: bool, undo: &Undo) -> Result<()> {
    let before = fs::read_to_string(FORWARD).context(FORWARD)?;
    let before = before.trim();
    let mut rules = format!(
        "add table ip {TABLE}\nflush table ip {TABLE}\n\
         add chain ip {TABLE} out {{ type nat hook postrouting priority 100 ; }}\n\
         add rule ip {TABLE} out iifname {DEVICE} oifname != {DEVICE} masquerade\n\
         add chain ip {TABLE} through {{ type filter hook forward priority 0 ; }}\n\
         add chain ip {TABLE} in {{ type filter hook input priority 0 ; }}\n\
         {}",
        to_machine(private)
    );
    if before != "1" {
        rules +=
            &format!("add rule ip {TABLE} through iifname != {DEVICE} oifname != {DEVICE} drop\n");
    }
    undo.later(&format!("nft delete table ip {TABLE}"))?;
    run("nft", &[&rules])?;
    if before != "1" {
        undo.later(&format!("echo {before} > {FORWARD}"))?;
        fs::write(FORWARD, "1").context(FORWARD)?;
    }
    Ok(())
}

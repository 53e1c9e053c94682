//! Packets between hosts: envelopes in UDP datagrams, one packet each.
//!
//! A host is known by its address and its card's port. The port belongs to the card: no other
//! program of that machine can have it, and its guests' packets never leave with it
//! ([`crate::edge`]). That nobody else sends from the address is up to the underlay. An overlay of
//! `srd up` sees to it (it encrypts, and each peer has its own addresses); a plain network does
//! not, and has to be asked for.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::Envelope;
use srd_card::vpc::envelope::{ENVELOPE_BYTES, GENEVE_PORT};
use srd_net::Datagrams;
use srd_proto::time::Instant;
use srd_vpc::id::VpcId;

use crate::hosts::{self, Contact};
use crate::protocol::PeerHost;

/// Kernel buffers of the socket each way: what arrives in some milliseconds in which instances have
/// their turns.
const BUFFER_BYTES: u32 = 4 << 20;
/// Headers of IP and UDP.
const HEADERS_V4: usize = 28;
const HEADERS_V6: usize = 48;

/// Where the other hosts are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnderlayOptions {
    /// The own address.
    pub address: IpAddr,
    /// Hosts by name.
    pub hosts: BTreeMap<String, IpAddr>,
    /// Whether a network that neither encrypts nor authenticates will do.
    pub plain: bool,
}

/// A socket to the other hosts.
#[derive(Debug)]
pub(crate) struct Underlay {
    datagrams: Datagrams,
    fd: Arc<OwnedFd>,
    /// Where each host is, and what was sent and received.
    hosts: BTreeMap<Arc<str>, (IpAddr, Contact)>,
    names: BTreeMap<SocketAddr, Arc<str>>,
    /// The most bytes of a packet in one datagram.
    pub(crate) bytes_max: usize,
}

/// A frame of another host: its name, and what it says of the packet.
pub(crate) type Received = (Arc<str>, Envelope, Vec<u8>);

/// What `ip -json -details address` says of an interface.
#[derive(Deserialize)]
struct Shown {
    ifname: String,
    mtu: usize,
    linkinfo: Option<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    info_kind: Option<String>,
}

/// What is known before there is a socket.
#[derive(Debug)]
pub(crate) struct Plan {
    address: IpAddr,
    hosts: BTreeMap<Arc<str>, IpAddr>,
    names: BTreeMap<SocketAddr, Arc<str>>,
    bytes_max: usize,
}

impl Plan {
    pub(crate) fn new(options: &UnderlayOptions) -> Result<Self> {
        let address = options.address;
        let shown = interface(address)?;
        let kind = shown.linkinfo.and_then(|kind| kind.info_kind);
        if kind.as_deref() != Some("tun") && !options.plain {
            bail!(
                "{address} is an address of {}, which is no overlay: others could read and forge \
                 packets. Give the address that `srd up` has on its interface, or --plain if the \
                 network is trusted",
                shown.ifname
            );
        }
        let headers = if address.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
        let Some(bytes_max) = shown.mtu.checked_sub(headers + ENVELOPE_BYTES) else {
            bail!("{} has an MTU of {} bytes, which is too small", shown.ifname, shown.mtu);
        };
        let mut hosts = BTreeMap::new();
        let mut names = BTreeMap::new();
        for (name, at) in &options.hosts {
            let name: Arc<str> = name.as_str().into();
            if at.is_ipv4() != address.is_ipv4() {
                bail!("{name} is at {at}, which is of another family than {address}");
            }
            let card = SocketAddr::new(*at, GENEVE_PORT);
            if let Some(other) = names.insert(card, name.clone()) {
                bail!("{other} and {name} are both at {at}");
            }
            hosts.insert(name, *at);
        }
        Ok(Self { address, hosts, names, bytes_max })
    }
}

impl Underlay {
    pub(crate) fn open(options: &UnderlayOptions) -> Result<Self> {
        let plan = Plan::new(options)?;
        let socket = UdpSocket::bind((plan.address, GENEVE_PORT)).with_context(|| {
            format!(
                "UDP port {GENEVE_PORT} of {}, which the card needs: `ss -ulnp` shows what has \
                     it, as another card; an address has one card",
                plan.address
            )
        })?;
        Self::with(plan, socket)
    }

    /// With the socket that another process had.
    pub(crate) fn with(plan: Plan, socket: UdpSocket) -> Result<Self> {
        let Plan { address, hosts, names, bytes_max } = plan;
        let at = socket.local_addr()?;
        if at.ip() != address {
            bail!(
                "the card that runs is at {}, and this one at {address}: end that first",
                at.ip()
            );
        }
        let fd = Arc::new(socket.as_fd().try_clone_to_owned()?);
        let hosts = hosts.into_iter().map(|(name, at)| (name, (at, Contact::default()))).collect();
        Ok(Self { datagrams: Datagrams::new(socket, BUFFER_BYTES)?, fd, hosts, names, bytes_max })
    }

    /// Says which hosts are silent now, and which are not any more.
    pub(crate) fn look(&mut self) {
        let hosts = self.hosts.iter_mut();
        let changes: Vec<_> = hosts
            .filter_map(|(name, (_, contact))| Some((Arc::clone(name), contact.look()?)))
            .collect();
        hosts::tell(&self.hosts, &changes);
    }

    /// What was sent to each host and received from it.
    pub(crate) fn report(&self, now: Instant) -> Vec<PeerHost> {
        let hosts = self.hosts.iter();
        hosts.map(|(name, (at, contact))| contact.report(now, name, *at)).collect()
    }

    /// The same for another process.
    pub(crate) fn contacts(&self) -> BTreeMap<String, Contact> {
        let hosts = self.hosts.iter();
        hosts.map(|(name, (_, contact))| (name.to_string(), contact.clone())).collect()
    }

    /// Goes on with what another process has sent and received. Hosts that it had and this one
    /// has not are forgotten.
    pub(crate) fn adopt(&mut self, contacts: &BTreeMap<String, Contact>) {
        for (name, contact) in contacts {
            if let Some((_, of)) = self.hosts.get_mut(name.as_str()) {
                *of = contact.clone();
            }
        }
    }

    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// Sends a frame at the next [`Underlay::flush`] or before; false if it cannot be sent.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        host: &str,
        vpc: VpcId,
        envelope: Envelope,
        frame: &[u8],
    ) -> bool {
        let Some((to, contact)) = self.hosts.get_mut(host) else { return false };
        let Some(packet) = frame.get(OFFLOAD_BYTES..) else { return false };
        let to = SocketAddr::new(*to, GENEVE_PORT);
        self.datagrams.push(to, &envelope.encode(vpc, frame), packet);
        contact.sent(now, packet.len());
        true
    }

    /// Sends what waits. Returns how many frames the socket did not take.
    pub(crate) fn flush(&mut self) -> u64 {
        self.datagrams.flush();
        self.datagrams.take_lost()
    }

    /// Whether frames that were read wait to be taken.
    pub(crate) fn is_waiting(&self) -> bool {
        self.datagrams.is_waiting()
    }

    /// The next frame of another host; `Some(Err)` says why a datagram was none.
    pub(crate) fn receive(&mut self, now: Instant) -> Option<Result<Received, &'static str>> {
        let Self { datagrams, names, hosts, .. } = self;
        datagrams.receive(|from, datagram| {
            let Some(host) = names.get(&from) else { return Err("a stranger's") };
            let read = Envelope::decode(datagram);
            let Ok((envelope, offload, packet)) = read else { return Err("no envelope") };
            if let Some((_, contact)) = hosts.get_mut(host) {
                contact.received(now, packet.len());
            }
            Ok((host.clone(), envelope, [&offload[..], packet].concat()))
        })
    }
}

/// The interface that has an address.
fn interface(address: IpAddr) -> Result<Shown> {
    let to = address.to_string();
    let mut command = Command::new("ip");
    command.args(["-json", "-details", "address", "show", "to", &to]);
    let output = command.output().context("`ip` cannot be run: apt-get install iproute2")?;
    let shown: Vec<Option<Shown>> =
        serde_json::from_slice(&output.stdout).context("what `ip` says is not understood")?;
    let mut shown = shown.into_iter().flatten();
    shown.next().with_context(|| format!("no interface of this machine has the address {address}"))
}

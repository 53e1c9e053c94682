//! Packets between hosts: envelopes in UDP datagrams, one packet each.
//!
//! A host is known by its address and by source ports that are privileged ([`crate::sources`]):
//! no user of that machine has them, whether its card runs or not, and its guests' packets never
//! leave with them ([`crate::edge`]). That nobody else sends from the address is up to the
//! underlay. An overlay of `srd up` that encrypts sees to it (each peer has its own addresses,
//! [`crate::overlay`]); a plain network does not, and has to be asked for.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::Envelope;
use srd_card::vpc::envelope::{ENVELOPE_BYTES, GENEVE_PORT};
use srd_net::{Datagrams, clock};
use srd_proto::time::Instant;
use srd_vpc::id::VpcId;

use crate::failure::{Missing, WrongSettings};
use crate::hosts::{Contact, tell};
use crate::protocol::PeerHost;
use crate::sources::{self, Spread};
use crate::{overlay, port_owner};

/// The name of this machine's own edge, whose word of the internet's packets is believed: no host
/// has it.
pub(crate) const EDGE: &str = "(edge)";
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

/// The sockets to the other hosts.
#[derive(Debug)]
pub(crate) struct Underlay {
    datagrams: Datagrams,
    fd: Arc<OwnedFd>,
    /// Those that packets leave by.
    senders: Vec<Arc<OwnedFd>>,
    spread: Spread,
    /// Ports of hosts that are believed.
    sources: RangeInclusive<u16>,
    /// The other hosts, in the order of their names.
    hosts: Vec<Host>,
    /// Their places in that order.
    places: BTreeMap<IpAddr, usize>,
    /// The place of the host that was sent to last: most packets are for the same.
    last_to: usize,
    /// The most bytes of a packet in one datagram.
    pub(crate) bytes_max: usize,
}

/// Another host: where it is, and what was sent to it and received.
#[derive(Debug)]
struct Host {
    name: Arc<str>,
    at: SocketAddr,
    contact: Contact,
}

/// Frames that were read, in their order.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// What other hosts say of the packets, and their frames.
    pub(crate) frames: Vec<(Envelope, Vec<u8>)>,
    /// The hosts, with how many frames each has sent in a row.
    pub(crate) hosts: Vec<(Arc<str>, usize)>,
    /// Datagrams that were none, and why.
    pub(crate) strangers: u64,
    pub(crate) no_envelopes: u64,
}

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
    #[serde(default)]
    info_data: Data,
}

/// The part of its answer about a TUN device.
#[derive(Default, Deserialize)]
struct Data {
    #[serde(rename = "type")]
    kind: Option<Value>,
    /// A user, or a group, that may open it.
    user: Option<Value>,
    group: Option<Value>,
}

/// What is known before there is a socket.
#[derive(Debug)]
pub(crate) struct Plan {
    address: IpAddr,
    hosts: BTreeMap<Arc<str>, SocketAddr>,
    sources: RangeInclusive<u16>,
    bytes_max: usize,
}

impl Plan {
    pub(crate) fn new(options: &UnderlayOptions) -> Result<Self> {
        Self::of(options).map_err(WrongSettings::of)
    }

    fn of(options: &UnderlayOptions) -> Result<Self> {
        let address = options.address;
        let shown = interface(address)?;
        sources::check_privileged(options.plain)?;
        if !options.plain
            && let Err(cause) = shown.protects()
        {
            bail!(
                "{address} is an address of {}, {cause}: others could read and forge packets. \
                 Give the address that an `srd up` that encrypts has on its interface, or --plain \
                 if the network is trusted",
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
            if name == EDGE {
                bail!("{EDGE} is no name of a host: give the peer another one");
            }
            let name: Arc<str> = name.as_str().into();
            if at.is_ipv4() != address.is_ipv4() {
                bail!("{name} is at {at}, which is of another family than {address}");
            }
            let card = SocketAddr::new(*at, GENEVE_PORT);
            if let Some(other) = names.insert(card, name.clone()) {
                bail!("{other} and {name} are both at {at}");
            }
            hosts.insert(name, card);
        }
        Ok(Self { address, hosts, sources: sources::PORTS, bytes_max })
    }
}

impl Shown {
    /// Fails, with the cause, unless packets through this interface are encrypted.
    fn protects(&self) -> Result<()> {
        let link = self.linkinfo.as_ref();
        let data = link.filter(|of| of.info_kind.as_deref() == Some("tun")).map(|of| &of.info_data);
        // The kernel calls TAP devices so as well. `srd up` gives its device to no user.
        let is_overlay = |of: &Data| {
            let is_tap = of.kind.as_ref().is_some_and(|kind| kind == "tap");
            !is_tap && of.user.is_none() && of.group.is_none()
        };
        if !data.is_some_and(is_overlay) {
            bail!("which is no overlay of `srd up`");
        }
        overlay::check(&self.ifname)
    }
}

impl Underlay {
    pub(crate) fn open(options: &UnderlayOptions) -> Result<Self> {
        let plan = Plan::new(options)?;
        let socket = UdpSocket::bind((plan.address, GENEVE_PORT)).with_context(|| {
            let owner = match port_owner::words(plan.address, GENEVE_PORT) {
                words if words.is_empty() => String::from("`ss -ulnp` shows what has it"),
                words => words,
            };
            format!(
                "UDP port {GENEVE_PORT} of {}, which the card needs: {owner}; an address has one \
                 card",
                plan.address
            )
        })?;
        let senders = sources::open(plan.address)?;
        Self::with(plan, socket, senders)
    }

    /// With the sockets that another process had: the one that receives, and those that packets
    /// leave by.
    pub(crate) fn with(plan: Plan, socket: UdpSocket, senders: Vec<UdpSocket>) -> Result<Self> {
        let Plan { address, hosts, sources, bytes_max } = plan;
        let at = socket.local_addr()?;
        if at.ip() != address {
            bail!(
                "the card that runs is at {}, and this one at {address}: end that first",
                at.ip()
            );
        }
        let fd = Arc::new(socket.as_fd().try_clone_to_owned()?);
        let shared = |of: &UdpSocket| Ok(Arc::new(of.as_fd().try_clone_to_owned()?));
        let shared: std::io::Result<Vec<_>> = senders.iter().map(shared).collect();
        let mut datagrams = Datagrams::new(socket, BUFFER_BYTES)?;
        datagrams.send_by(senders, BUFFER_BYTES)?;
        let host = |(name, at)| Host { name, at, contact: Contact::default() };
        let hosts: Vec<Host> = hosts.into_iter().map(host).collect();
        let places = hosts.iter().map(|host| host.at.ip()).zip(0..).collect();
        let (senders, spread) = (shared?, Spread::new(clock::secret()?));
        let last_to = 0;
        Ok(Self { datagrams, fd, senders, spread, sources, hosts, places, last_to, bytes_max })
    }

    /// Says which hosts are silent now, and which are not any more. // V18
    pub(crate) fn look(&mut self) {
        for Host { name, at, contact } in &mut self.hosts {
            if let Some(change) = contact.look() {
                tell(name, at.ip(), contact, &change);
            }
        }
    }

    /// What was sent to each host and received from it.
    pub(crate) fn report(&self, now: Instant) -> Vec<PeerHost> {
        self.hosts.iter().map(|of| of.contact.report(now, &of.name, of.at.ip())).collect()
    }

    /// The same for another process.
    pub(crate) fn contacts(&self) -> BTreeMap<String, Contact> {
        self.hosts.iter().map(|of| (of.name.to_string(), of.contact.clone())).collect()
    }

    /// Goes on with what another process has sent and received. Hosts that it had and this one
    /// has not are forgotten.
    pub(crate) fn adopt(&mut self, contacts: &BTreeMap<String, Contact>) {
        for host in &mut self.hosts {
            if let Some(contact) = contacts.get(&*host.name) {
                host.contact = contact.clone();
            }
        }
    }

    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// All sockets, as another process gets them: the one that receives, then the others.
    pub(crate) fn fds(&self) -> impl Iterator<Item = Arc<OwnedFd>> + '_ {
        [&self.fd].into_iter().chain(&self.senders).map(Arc::clone)
    }

    /// Sends a frame at the next [`Underlay::flush`] or before; false if it cannot be sent.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        host: &Arc<str>,
        vpc: VpcId,
        envelope: Envelope,
        frame: &[u8],
    ) -> bool {
        if self.hosts.get(self.last_to).is_none_or(|last| last.name != *host) {
            let place = self.hosts.binary_search_by(|of| of.name.cmp(host));
            let Ok(place) = place else { return false };
            self.last_to = place;
        }
        let Host { at, contact, .. } = &mut self.hosts[self.last_to];
        let Some(packet) = frame.get(OFFLOAD_BYTES..) else { return false };
        let flow = self.spread.flow_of(&envelope, frame);
        self.datagrams.push(*at, flow, &envelope.encode(vpc, frame), packet);
        contact.sent(now, packet.len());
        true
    }

    /// Whether frames wait to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.datagrams.has_unsent()
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

    /// Reads datagrams, at most so many. Returns how many there were.
    pub(crate) fn receive(&mut self, now: Instant, most: usize, into: &mut Received) -> usize {
        let mut read = 0;
        while read < most {
            let (places, sources) = (&self.places, &self.sources);
            let place_of = |from: SocketAddr| {
                places.get(&from.ip()).filter(|_| sources.contains(&from.port()))
            };
            // Those of one message are of one host.
            let (mut place, before, mut bytes) = (None, into.frames.len(), 0);
            let count = self.datagrams.receive_some(most - read, |from, datagram| {
                let place = place.get_or_insert_with(|| place_of(from));
                if place.is_none() {
                    return into.strangers += 1;
                }
                let decoded = Envelope::decode(datagram);
                let Ok((envelope, offload, packet)) = decoded else {
                    return into.no_envelopes += 1;
                };
                bytes += packet.len();
                let mut frame = Vec::with_capacity(OFFLOAD_BYTES + packet.len());
                frame.extend_from_slice(&offload);
                frame.extend_from_slice(packet);
                into.frames.push((envelope, frame));
            });
            if count == 0 {
                break;
            }
            read += count;
            let frames = into.frames.len() - before;
            if let Some(place) = place.flatten().filter(|_| frames > 0) {
                let Host { name, contact, .. } = &mut self.hosts[*place];
                contact.received(now, frames, bytes);
                match into.hosts.last_mut() {
                    Some((last, count)) if Arc::ptr_eq(last, name) => *count += frames,
                    _ => into.hosts.push((name.clone(), frames)),
                }
            }
        }
        read
    }
}

/// The interface that has an address.
fn interface(address: IpAddr) -> Result<Shown> {
    let to = address.to_string();
    let mut command = Command::new("ip");
    command.args(["-json", "-details", "address", "show", "to", &to]);
    let output = command.output().with_context(|| Missing::program("ip", "iproute2"))?;
    let shown: Vec<Option<Shown>> =
        serde_json::from_slice(&output.stdout).context("what `ip` says is not understood")?;
    let mut shown = shown.into_iter().flatten();
    shown.next().with_context(|| format!("no interface of this machine has the address {address}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use srd_vpc::id::EniId;

    /// A card's underlay on this machine, beside hosts at these addresses.
    pub(crate) fn underlay(hosts: &[(&str, SocketAddr)]) -> (Underlay, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = socket.local_addr().unwrap();
        let named = |(name, at): &(&str, SocketAddr)| (Arc::<str>::from(*name), *at);
        let hosts: BTreeMap<Arc<str>, SocketAddr> = hosts.iter().map(named).collect();
        let plan = Plan { address: own.ip(), hosts, sources: 1024..=65_535, bytes_max: 1400 };
        (Underlay::with(plan, socket, Vec::new()).unwrap(), own)
    }

    /// A frame with a packet of its own.
    pub(crate) fn frame(number: u8) -> Vec<u8> {
        [&[0; OFFLOAD_BYTES][..], &[0x45, number, 9, 9]].concat()
    }

    #[test]
    fn frames_of_several_hosts_come_in_their_order_and_others_are_counted() {
        let at = |host: u8| SocketAddr::from(([127, 0, 0, host], 0));
        let senders = [2, 3, 4].map(|host| UdpSocket::bind(at(host)).unwrap());
        let [a, b, stranger] = senders;
        let at = |socket: &UdpSocket| socket.local_addr().unwrap();
        let (mut underlay, own) = underlay(&[("a", at(&a)), ("b", at(&b))]);
        let envelope = Envelope::Between { from: EniId(1), to: EniId(2) };
        let send = |from: &UdpSocket, number| {
            let head = envelope.encode(VpcId(1), &frame(number));
            from.send_to(&[&head[..], &frame(number)[OFFLOAD_BYTES..]].concat(), own).unwrap();
        };
        for (from, number) in [(&a, 1), (&a, 2), (&b, 3), (&stranger, 4), (&b, 5)] {
            send(from, number);
        }
        a.send_to(b"no envelope", own).unwrap();
        send(&a, 6);
        let mut received = Received::default();
        // No more than was asked for, and the rest at the next time. A kernel may be late with a
        // packet to another socket.
        let mut receive = |wanted: usize, most: usize| {
            let (began, mut read) = (std::time::Instant::now(), 0);
            while read < wanted && began.elapsed().as_secs() < 60 {
                read += underlay.receive(Instant::ZERO, most - read, &mut received);
            }
            read
        };
        assert_eq!((receive(2, 2), receive(5, 100)), (2, 5));
        assert_eq!(underlay.receive(Instant::ZERO, 100, &mut received), 0);
        let frames: Vec<_> = received.frames.iter().map(|(_, frame)| frame.clone()).collect();
        assert_eq!(frames, [1, 2, 3, 5, 6].map(frame));
        assert!(received.frames.iter().all(|(said, _)| *said == envelope));
        let hosts = received.hosts.iter().flat_map(|(name, n)| std::iter::repeat_n(&**name, *n));
        assert!(hosts.eq(["a", "a", "b", "b", "a"]), "{:?}", received.hosts);
        assert_eq!((received.strangers, received.no_envelopes), (1, 1));
        let counts = underlay.report(Instant::ZERO).into_iter();
        let counts: Vec<_> = counts.map(|of| (of.received_packets, of.received_bytes)).collect();
        assert_eq!(counts, [(3, 12), (2, 8)]);
    }

    /// A user of a host whose card does not run had its port, and was believed.
    #[test]
    fn regression_ports_that_any_user_may_have_are_strangers_ports() {
        let host = UdpSocket::bind("127.0.0.2:0").unwrap();
        let (mut underlay, own) = underlay(&[("a", host.local_addr().unwrap())]);
        let envelope = Envelope::Between { from: EniId(1), to: EniId(2) };
        let head = envelope.encode(VpcId(1), &frame(1));
        let datagram = [&head[..], &frame(1)[OFFLOAD_BYTES..]].concat();
        let port = host.local_addr().unwrap().port();
        for (sources, is_taken) in [(port..=port, true), (sources::PORTS, false)] {
            underlay.sources = sources;
            host.send_to(&datagram, own).unwrap();
            let (began, mut received) = (std::time::Instant::now(), Received::default());
            while underlay.receive(Instant::ZERO, 1, &mut received) == 0 {
                assert!(began.elapsed().as_secs() < 60);
            }
            assert_eq!(
                (received.frames.len(), received.strangers),
                match is_taken {
                    true => (1, 0),
                    false => (0, 1),
                }
            );
        }
    }

    /// Its envelopes would be those of the internet's side.
    #[test]
    fn regression_no_peer_has_the_name_of_the_edge() {
        let at = |host: u8| IpAddr::from([127, 0, 0, host]);
        let plan = |name: &str| {
            let hosts = BTreeMap::from([(String::from(name), at(2))]);
            Plan::new(&UnderlayOptions { address: at(1), hosts, plain: true })
        };
        assert!(plan(EDGE).unwrap_err().to_string().contains("no name of a host"));
        plan("beta").unwrap();
    }
}

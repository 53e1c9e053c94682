//! The kernel's tables of interfaces, routes and neighbours: typed queries over rtnetlink.
//!
//! The kernel answers a query for one object before the call that sends it returns, so no call
//! here waits.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::headers::Mac;

/// Multicast groups of netlink that report changes of interfaces, neighbours, and routes of both
/// address families.
const GROUPS: [u32; 4] = [1, 3, 7, 11];
/// Largest number of datagrams with changes that one check reads. Further datagrams wait for the
/// next check.
const NEWS_MAX: usize = 64;
/// Largest number of datagrams of an answer.
const ANSWERS_MAX: usize = 8;

/// The current state of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interface {
    pub(super) mac: Mac,
    /// Length in bytes of the largest IP packet that the interface sends.
    pub(super) mtu: u32,
    pub(super) up: bool,
}

/// Next hop of packets to a destination, as the kernel would choose it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Route {
    /// Index of the interface that sends.
    pub(super) interface: u32,
    /// Receiver on the link: a router, or the destination itself.
    pub(super) next_hop: IpAddr,
}

/// The kernel's entry of a neighbour, which is a host or router on the same link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Neighbour {
    pub(super) mac: Mac,
    /// Whether the neighbour was confirmed recently. If not, the kernel queries the neighbour when
    /// it next sends to it.
    pub(super) confirmed: bool,
}

/// A netlink socket for queries, and one that receives notifications of changes.
pub(crate) struct Netlink {
    questions: Socket,
    changes: Socket,
    sequence: u32,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Netlink")
    }
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let changes = socket()?;
        for group in GROUPS {
            changes.add_membership(group)?;
        }
        let questions = socket()?;
        questions.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { questions, changes, sequence: 0 })
    }

    /// Whether interfaces, routes or neighbours have changed since the last check.
    pub(super) fn has_changed(&mut self) -> bool {
        let mut changed = false;
        for _ in 0..NEWS_MAX {
            match self.changes.recv_from_full() {
                Ok(_) => changed = true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // Notifications of changes were lost, so something may have changed.
                Err(_) => return true,
            }
        }
        changed
    }

    /// Returns the reason why AF_XDP cannot work on an interface; `None` if it may work.
    pub(super) fn objection(&mut self, index: u32) -> io::Result<Option<&'static str>> {
        Ok(self.link(index)?.and_then(|link| objection(&link)))
    }

    fn link(&mut self, index: u32) -> io::Result<Option<LinkMessage>> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        match self.ask(Message::GetLink(question))? {
            Some(Message::NewLink(answer)) => Ok(Some(answer)),
            _ => Ok(None),
        }
    }

    /// Returns the state of the interface with this index; `None` if there is no such interface, or
    /// if it has no hardware address.
    pub(super) fn interface(&mut self, index: u32) -> io::Result<Option<Interface>> {
        let Some(answer) = self.link(index)? else { return Ok(None) };
        let (mut mac, mut mtu) = (None, 0);
        for attribute in &answer.attributes {
            match attribute {
                LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok(),
                LinkAttribute::Mtu(bytes) => mtu = *bytes,
                _ => {}
            }
        }
        let flags = answer.header.flags;
        let up = flags.contains(LinkFlags::Up) && flags.contains(LinkFlags::LowerUp);
        Ok(mac.map(|mac| Interface { mac, mtu, up }))
    }

    /// Returns the configured MTU of interface and route towards a destination. An MTU that the
    /// kernel has learned from ICMP is temporary, and does not count.
    pub(crate) fn configured_mtu(
        &mut self,
        to: IpAddr,
        scope: Option<u32>,
    ) -> io::Result<Option<u32>> {
        let way = self.way(to, scope, RouteFlags::empty())?;
        let index = way.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        let Some(link) = index.map(|index| self.link(index)).transpose()?.flatten() else {
            return Ok(None);
        };
        let of_link = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Mtu(bytes) => Some(*bytes),
            _ => None,
        });
        // The query returns the entry of the routing table itself, without the exceptions that the
        // kernel has added to it.
        let entry = self.way(to, scope, RouteFlags::FibMatch)?;
        let metrics = entry.iter().filter_map(|attribute| match attribute {
            RouteAttribute::Metrics(metrics) => Some(metrics),
            _ => None,
        });
        let of_route = metrics.flatten().find_map(|metric| match metric {
            RouteMetric::Mtu(bytes) if *bytes > 0 => Some(*bytes),
            _ => None,
        });
        Ok(of_link.into_iter().chain(of_route).min())
    }

    /// Returns the attributes of the route to a destination; no attributes if there is no route.
    fn way(
        &mut self,
        to: IpAddr,
        scope: Option<u32>,
        flags: RouteFlags,
    ) -> io::Result<Vec<RouteAttribute>> {
        let mut question = RouteMessage::default();
        question.header.address_family = family(to);
        question.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        question.header.flags = flags;
        question.attributes.push(RouteAttribute::Destination(to.into()));
        question.attributes.extend(scope.map(RouteAttribute::Oif));
        match self.ask(Message::GetRoute(question))? {
            Some(Message::NewRoute(answer)) => Ok(answer.attributes),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the route of a packet; `None` if the packet stays on this machine, or if its route
    /// does not lead to one neighbour.
    pub(super) fn route(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        mark: Option<u32>,
        scope: Option<u32>,
    ) -> io::Result<Option<Route>> {
        let mut question = RouteMessage::default();
        let bits = if to.is_ipv4() { 32 } else { 128 };
        question.header.address_family = family(to);
        question.header.destination_prefix_length = bits;
        question.header.source_prefix_length = bits;
        question.attributes.push(RouteAttribute::Destination(to.into()));
        question.attributes.push(RouteAttribute::Source(from.into()));
        question.attributes.extend(mark.map(RouteAttribute::Mark));
        question.attributes.extend(scope.map(RouteAttribute::Oif));
        let Some(Message::NewRoute(answer)) = self.ask(Message::GetRoute(question))? else {
            return Ok(None);
        };
        if answer.header.kind != RouteType::Unicast {
            return Ok(None);
        }
        let (mut interface, mut next_hop) = (None, to);
        for attribute in &answer.attributes {
            match attribute {
                RouteAttribute::Oif(index) => interface = Some(*index),
                RouteAttribute::Gateway(RouteAddress::Inet(ip)) => next_hop = (*ip).into(),
                RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => next_hop = (*ip).into(),
                RouteAttribute::Via(RouteVia::Inet(ip)) => next_hop = (*ip).into(),
                RouteAttribute::Via(RouteVia::Inet6(ip)) => next_hop = (*ip).into(),
                RouteAttribute::Encap(_) | RouteAttribute::EncapType(_) => return Ok(None),
                _ => {}
            }
        }
        Ok(interface.map(|interface| Route { interface, next_hop }))
    }

    /// Returns a neighbour on the link of an interface; `None` if its hardware address is not
    /// known.
    pub(super) fn neighbour(
        &mut self,
        interface: u32,
        ip: IpAddr,
    ) -> io::Result<Option<Neighbour>> {
        let mut question = NeighbourMessage::default();
        question.header.family = family(ip);
        question.header.ifindex = interface;
        let address = match ip {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        };
        question.attributes.push(NeighbourAttribute::Destination(address));
        let Some(Message::NewNeighbour(answer)) = self.ask(Message::GetNeighbour(question))? else {
            return Ok(None);
        };
        let confirmed = match answer.header.state {
            NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp => true,
            NeighbourState::Stale | NeighbourState::Delay | NeighbourState::Probe => false,
            _ => return Ok(None),
        };
        let mac = answer.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok(),
            _ => None,
        });
        Ok(mac.map(|mac| Neighbour { mac, confirmed }))
    }

    /// Sends a query for one object of the kernel. Returns the answer; `None` if the object does
    /// not exist.
    fn ask(&mut self, question: Message) -> io::Result<Option<Message>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.questions.send(&bytes, 0)?;
        let mut found = None;
        for _ in 0..ANSWERS_MAX {
            let (bytes, _) = self.questions.recv_from_full()?;
            let answer =
                NetlinkMessage::<Message>::deserialize(&bytes).map_err(io::Error::other)?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            match answer.payload {
                NetlinkPayload::InnerMessage(inner) => found = Some(inner),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(found),
                NetlinkPayload::Error(error) => return none_or_error(error.to_io()),
                _ => {}
            }
        }
        Err(io::Error::other("the kernel's answer is too long"))
    }
}

fn objection(link: &LinkMessage) -> Option<&'static str> {
    if link.header.link_layer_type != LinkLayerType::Ether {
        return Some("it is not Ethernet");
    }
    let infos = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    // On an interface that joins others, the kernel runs the program for its member interfaces, and
    // gives their packets only to sockets of the members.
    let joins = |info: &LinkInfo| matches!(info, LinkInfo::Kind(InfoKind::Bond | InfoKind::Team));
    infos.flatten().any(joins).then_some("it joins several others")
}

/// Converts errors that mean "no route, no neighbour, no interface" to `None`.
fn none_or_error(error: io::Error) -> io::Result<Option<Message>> {
    let none = [
        libc::ENOENT,
        libc::ENODEV,
        libc::ESRCH,
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::EACCES,
        libc::EINVAL,
        libc::ENETDOWN,
    ];
    match error.raw_os_error() {
        Some(errno) if none.contains(&errno) => Ok(None),
        _ => Err(error),
    }
}

fn socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn af_xdp_is_for_single_ethernet_interfaces() {
        let of = |kind: InfoKind| {
            let mut link = LinkMessage::default();
            link.header.link_layer_type = LinkLayerType::Ether;
            link.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]));
            link
        };
        assert_eq!(objection(&of(InfoKind::Veth)), None);
        assert_eq!(objection(&of(InfoKind::Bond)), Some("it joins several others"));
        assert_eq!(objection(&of(InfoKind::Team)), Some("it joins several others"));
        let mut tunnel = of(InfoKind::Tun);
        tunnel.header.link_layer_type = LinkLayerType::None;
        assert_eq!(objection(&tunnel), Some("it is not Ethernet"));
    }

    #[test]
    fn loopback_has_an_interface_no_way_out_and_no_neighbour() {
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.interface(1).unwrap().unwrap();
        assert_eq!((lo.mac, lo.up), ([0; 6], true));
        assert!(lo.mtu >= 1280);
        for ip in ["127.0.0.1", "::1"] {
            let ip: IpAddr = ip.parse().unwrap();
            assert_eq!(netlink.route(ip, ip, None, None).unwrap(), None, "it stays here");
            assert_eq!(netlink.neighbour(1, ip).ok().flatten().filter(|n| n.mac != [0; 6]), None);
        }
        assert_eq!(netlink.interface(0x7fff_fff0).unwrap(), None);
    }

    #[test]
    fn the_mtu_of_loopback_is_that_of_its_interface_in_both_families() {
        let mut netlink = Netlink::open().unwrap();
        let mtu = netlink.interface(1).unwrap().unwrap().mtu;
        for ip in ["127.0.0.1", "::1"] {
            let found = netlink.configured_mtu(ip.parse().unwrap(), None).unwrap();
            assert_eq!(found, Some(mtu), "{ip}");
        }
    }
}

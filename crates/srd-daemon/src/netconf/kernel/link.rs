//! The daemon's interface in the kernel: its MTU and other sizes, its addresses, and whether it is
//! up.
//!
//! The interface is identified by its index, name and kind together: the kernel may give the index
//! of a deleted interface to another one.

use std::io;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rustix::io::Errno;

use super::{Kernel, family};

/// Largest super-packet in bytes. The frame and the headers of its datagrams must fit into one GSO
/// batch of the kernel (65,507 bytes).
const GSO_BYTES_MAX: u32 = 61_440;
/// Largest number of frames that the interface queues while the daemon is busy.
const QUEUE_FRAMES: u32 = 1000;

impl Kernel {
    /// Sets the MTU, the other sizes and the addresses of the interface, and then sets it up.
    pub(in crate::netconf) fn bring_up(&mut self, mtu: u16) -> Result<(), String> {
        let name = self.spec.interface.clone();
        let say = |what: &str, e: io::Error| format!("{what} {name}: {e}");
        let index = self.find_tun().map_err(|e| say("finding interface", e))?;
        self.index = Some(index);
        let sizes = [
            vec![LinkAttribute::Mtu(mtu.into()), LinkAttribute::TxQueueLen(QUEUE_FRAMES)],
            vec![LinkAttribute::GsoMaxSize(GSO_BYTES_MAX)],
        ];
        for attributes in sizes {
            self.set_link(attributes, None).map_err(|e| say("setting sizes of", e))?;
        }
        // Before Linux 6.3, `GsoMaxSize` applies to IPv4 and IPv6, and this attribute does not
        // exist.
        let _ = self.set_link(vec![LinkAttribute::GsoIpv4MaxSize(GSO_BYTES_MAX)], None);
        self.give_addresses().map_err(|e| say("giving an address to", e))?;
        self.set_link(Vec::new(), Some(true)).map_err(|e| say("setting up", e))
    }

    /// Adds the addresses that the interface lacks: all of them at first, the IPv6 addresses after
    /// it was down, and any that another program has removed. Returns the number of added
    /// addresses.
    pub(in crate::netconf) fn give_addresses(&mut self) -> io::Result<usize> {
        let Some(index) = self.own_index()? else { return Ok(0) };
        let there = self.addresses(index)?;
        let mut missing = self.spec.addresses.clone();
        missing.retain(|address| !there.contains(address));
        for address in &missing {
            self.add_address(index, *address)?;
        }
        Ok(missing.len())
    }

    /// Returns the addresses of an interface.
    fn addresses(&mut self, index: u32) -> io::Result<Vec<IpNet>> {
        let mut filter = AddressMessage::default();
        filter.header.index = index;
        let found = self.netlink.dump(Message::GetAddress(filter))?;
        let address = |message| match message {
            Message::NewAddress(a) if a.header.index == index => {
                let length = a.header.prefix_len;
                let plain = a.attributes.iter().find_map(|attribute| match attribute {
                    AddressAttribute::Address(ip) => Some(*ip),
                    _ => None,
                });
                IpNet::new(plain?, length).ok()
            }
            _ => None,
        };
        Ok(found.into_iter().filter_map(address).collect())
    }

    /// Finds our interface by its name and returns its index. The interface must be a TUN device.
    fn find_tun(&mut self) -> io::Result<u32> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(self.spec.interface.clone()));
        let Some(Message::NewLink(link)) = self.netlink.one(Message::GetLink(link))? else {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        };
        match is_tun(&link) {
            true => Ok(link.header.index),
            false => Err(io::Error::other("it is no TUN device")),
        }
    }

    /// Returns our interface, if it still exists. An interface with the same index but another name
    /// or kind is not ours.
    fn own_link(&mut self) -> io::Result<Option<LinkMessage>> {
        let Some(index) = self.index else { return Ok(None) };
        let mut link = LinkMessage::default();
        link.header.index = index;
        match self.netlink.one(Message::GetLink(link)) {
            Ok(Some(Message::NewLink(link))) => {
                let name = LinkAttribute::IfName(self.spec.interface.clone());
                let is_ours = link.attributes.contains(&name) && is_tun(&link);
                Ok(Some(link).filter(|_| is_ours))
            }
            Err(e) if e.raw_os_error() != Some(Errno::NODEV.raw_os_error()) => Err(e),
            _ => Ok(None),
        }
    }

    /// Returns the index of our interface, if it still exists.
    fn own_index(&mut self) -> io::Result<Option<u32>> {
        Ok(self.own_link()?.map(|link| link.header.index))
    }

    /// Whether our interface is up; `None`: it does not exist.
    pub(in crate::netconf) fn is_up(&mut self) -> io::Result<Option<bool>> {
        Ok(self.own_link()?.map(|link| link.header.flags.contains(LinkFlags::Up)))
    }

    /// Sets attributes of our interface, and sets it up or down; `up` is `None` to leave this
    /// state.
    pub(in crate::netconf) fn set_link(
        &mut self,
        attributes: Vec<LinkAttribute>,
        up: Option<bool>,
    ) -> io::Result<()> {
        let Some(index) = self.own_index()? else { return Ok(()) };
        let mut link = LinkMessage::default();
        link.header.index = index;
        if let Some(up) = up {
            link.header.change_mask = LinkFlags::Up;
            link.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        }
        link.attributes = attributes;
        self.netlink.change(Message::SetLink(link), 0)
    }

    /// Deletes our interface, if it still exists.
    pub(in crate::netconf) fn delete_link(&mut self) -> io::Result<()> {
        let Some(index) = self.own_index()? else { return Ok(()) };
        let mut link = LinkMessage::default();
        link.header.index = index;
        match self.netlink.change(Message::DelLink(link), 0) {
            Err(e) if e.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Ok(()),
            done => done,
        }
    }

    fn add_address(&mut self, index: u32, address: IpNet) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address.addr().is_ipv6());
        message.header.prefix_len = address.prefix_len();
        message.header.index = index;
        // The routes of the addresses are ours, not the kernel's. Duplicate addresses need not be
        // detected, because no other host is on this link.
        let flags = AddressFlags::Noprefixroute | AddressFlags::Nodad;
        message.attributes = vec![
            AddressAttribute::Local(address.addr()),
            AddressAttribute::Address(address.addr()),
            AddressAttribute::Flags(flags),
        ];
        self.netlink.change(Message::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
    }
}

/// Whether an interface is a TUN device.
fn is_tun(link: &LinkMessage) -> bool {
    link.attributes.iter().any(|attribute| match attribute {
        LinkAttribute::LinkInfo(facts) => facts.contains(&LinkInfo::Kind(InfoKind::Tun)),
        _ => false,
    })
}

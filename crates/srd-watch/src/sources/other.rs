//! Kinds and numbers of packets that are skipped, so that no figure includes them.
//!
//! Some packets are skipped because their headers show that there is no IP packet inside. Others
//! may contain an IP packet but are not supported. A report has to mention them, because it is
//! incomplete without them.
//!
//! Limit: [`KINDS_MAX`] kinds are counted separately.

use std::collections::BTreeMap;
use std::fmt;

use crate::output::units::grouped;

/// Largest number of kinds that are counted separately; packets of further kinds are counted
/// together.
pub const KINDS_MAX: usize = 24;

/// Reason why a packet is skipped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SkipReason {
    /// The packet has this type of link header (LINKTYPE_ of tcpdump.org), which is not supported.
    Link(u16),
    /// The packet has this EtherType, which is not supported.
    EtherType(u16),
    /// The packet carries this PPP protocol, which is not supported.
    Ppp(u16),
    /// The packet is an 802.2 frame for this service access point, which is not supported.
    Llc(u8),
    /// The packet has this address family, in the numbering of the capturing machine, which is not
    /// supported.
    Family(u32),
    /// The packet has more nested headers before IP than are read (32).
    Deep,
    /// The capture contains too few bytes of the packet to find or read its IP header.
    Cut,
    /// The packet has no valid IP header at the position where its headers require one.
    Malformed,
    /// The capture file does not describe the interface of the packet.
    Interface,
    /// The packet has no time (a simple packet block of pcapng).
    Time,
    /// The packet is of a kind that is not counted separately, because of the limit [`KINDS_MAX`].
    Further,
}

/// Names of EtherTypes, each with whether its content can be an IP packet.
const ETHERTYPES: &[(u16, &str, bool)] = &[
    (0x0806, "ARP", false),
    (0x0842, "Wake-on-LAN", false),
    (0x22f0, "AVTP", false),
    (0x22f3, "TRILL", true),
    (0x6558, "Ethernet", true),
    (0x8035, "RARP", false),
    (0x809b, "AppleTalk", false),
    (0x80f3, "AARP", false),
    (0x8137, "IPX", false),
    (0x8809, "slow protocols", false),
    (0x8847, "MPLS without IP inside", true),
    (0x8848, "MPLS without IP inside", true),
    (0x8863, "PPPoE discovery", false),
    (0x8864, "PPPoE", true),
    (0x888e, "EAPOL", false),
    (0x8892, "PROFINET", false),
    (0x88a2, "ATA over Ethernet", false),
    (0x88a4, "EtherCAT", false),
    (0x88cc, "LLDP", false),
    (0x88e1, "HomePlug", false),
    (0x88e5, "MACsec", true),
    (0x88e7, "802.1ah", true),
    (0x88f7, "PTP", false),
    (0x8902, "CFM", false),
    (0x8906, "FCoE", false),
    (0x8909, "Cisco MetaData", true),
    (0x8914, "FCoE initialization", false),
    (0x8926, "VN-Tag", true),
    (0x894f, "NSH", true),
    (0x9000, "loopback test", false),
];

/// Names of link types, as tcpdump.org lists them.
const LINKS: &[(u16, &str)] = &[
    (3, "AX25"),
    (6, "IEEE802_5"),
    (7, "ARCNET_BSD"),
    (8, "SLIP"),
    (10, "FDDI"),
    (100, "ATM_RFC1483"),
    (105, "IEEE802_11"),
    (107, "FRELAY"),
    (119, "IEEE802_11_PRISM"),
    (122, "IP_OVER_FC"),
    (123, "SUNATM"),
    (127, "IEEE802_11_RADIOTAP"),
    (129, "ARCNET_LINUX"),
    (138, "APPLE_IP_OVER_IEEE1394"),
    (139, "MTP2_WITH_PHDR"),
    (140, "MTP2"),
    (141, "MTP3"),
    (143, "DOCSIS"),
    (144, "LINUX_IRDA"),
    (147, "USER0"),
    (163, "IEEE802_11_AVS"),
    (165, "BACNET_MS_TP"),
    (169, "GPRS_LLC"),
    (187, "BLUETOOTH_HCI_H4"),
    (189, "USB_LINUX"),
    (192, "PPI"),
    (195, "IEEE802_15_4_WITHFCS"),
    (197, "ERF"),
    (201, "BLUETOOTH_HCI_H4_WITH_PHDR"),
    (203, "LAPD"),
    (215, "IEEE802_15_4_NONASK_PHY"),
    (220, "USB_LINUX_MMAPPED"),
    (224, "FC_2"),
    (226, "IPNET"),
    (227, "CAN_SOCKETCAN"),
    (230, "IEEE802_15_4_NOFCS"),
    (242, "IPOIB"),
    (247, "INFINIBAND"),
    (249, "USBPCAP"),
    (251, "BLUETOOTH_LE_LL"),
    (252, "WIRESHARK_UPPER_PDU"),
    (253, "NETLINK"),
    (258, "PKTAP"),
    (271, "VSOCK"),
    (274, "ETHERNET_MPACKET"),
    (278, "OPENVIZSLA"),
];

impl SkipReason {
    /// Whether the headers show that the packet contains no IP packet.
    pub fn is_without_ip(self) -> bool {
        match self {
            Self::EtherType(of) => known(of).is_some_and(|(_, may_have_ip)| !may_have_ip),
            // Control protocols (RFC 1661) have numbers from 0x8000 on.
            Self::Ppp(protocol) => protocol & 0x8000 != 0,
            Self::Llc(_) => true,
            _ => false,
        }
    }

    /// Returns the kind of packet as text, such as `of link type 105 (IEEE802_11)`.
    fn what(self) -> String {
        match self {
            Self::Link(link) => {
                let known = LINKS.iter().find(|(number, _)| *number == link);
                let name = known.map(|(_, name)| format!(" ({name})")).unwrap_or_default();
                format!("of link type {link}{name}")
            }
            Self::EtherType(of) => {
                let name = known(of).map(|(name, _)| format!(" ({name})")).unwrap_or_default();
                format!("of EtherType {of:#06x}{name}")
            }
            Self::Ppp(protocol) => format!("of PPP protocol {protocol:#06x}"),
            Self::Llc(point) => format!("of 802.2 service access point {point:#04x}"),
            Self::Family(family) => format!("of address family {family}"),
            Self::Deep => "with too many headers in each other".to_owned(),
            Self::Cut => "of which too few bytes were kept".to_owned(),
            Self::Malformed => "without a valid IP header".to_owned(),
            Self::Interface => "of an interface that the file does not describe".to_owned(),
            Self::Time => "without a time (simple packet blocks)".to_owned(),
            Self::Further => "of further kinds".to_owned(),
        }
    }
}

fn known(ethertype: u16) -> Option<(&'static str, bool)> {
    let found = ETHERTYPES.iter().find(|(number, ..)| *number == ethertype);
    found.map(|(_, name, may_have_ip)| (*name, *may_have_ip))
}

/// Numbers of skipped packets by kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SkipCounts {
    counts: BTreeMap<SkipReason, u64>,
}

impl SkipCounts {
    /// Counts one skipped packet.
    pub fn add(&mut self, other: SkipReason) {
        self.add_many(other, 1);
    }

    /// Adds the numbers of `others` to these numbers.
    pub fn absorb(&mut self, others: &Self) {
        others.counts.iter().for_each(|(other, count)| self.add_many(*other, *count));
    }

    fn add_many(&mut self, other: SkipReason, count: u64) {
        let has_place = self.counts.len() < KINDS_MAX - 1 || self.counts.contains_key(&other);
        *self.counts.entry(if has_place { other } else { SkipReason::Further }).or_default() +=
            count;
    }

    /// Returns the number of all skipped packets.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the number of skipped packets that may have an IP packet inside.
    pub fn unread(&self) -> u64 {
        let unread = self.counts.iter().filter(|(other, _)| !other.is_without_ip());
        unread.map(|(_, count)| count).sum()
    }

    /// Returns a line of text for each kind.
    pub fn lines(&self) -> Vec<String> {
        self.counts.iter().map(|(other, count)| line(*other, *count)).collect()
    }
}

/// Returns a line such as `1,234 packets of link type 105 (IEEE802_11) are not read`.
fn line(other: SkipReason, count: u64) -> String {
    let (noun, is) = if count == 1 { ("packet", "is") } else { ("packets", "are") };
    let (count, what) = (grouped(count), other.what());
    match other.is_without_ip() {
        true => format!("{count} {noun} {what}: no IP"),
        false => format!("{count} {noun} {what} {is} not read"),
    }
}

impl fmt::Display for SkipCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_is_named_and_counted() {
        let mut others = SkipCounts::default();
        (0..1234).for_each(|_| others.add(SkipReason::Link(105)));
        assert_eq!(others.to_string(), "1,234 packets of link type 105 (IEEE802_11) are not read");
        assert_eq!((others.total(), others.unread()), (1234, 1234));
        others.add(SkipReason::EtherType(0x0806));
        assert_eq!((others.total(), others.unread()), (1235, 1234));
        assert_eq!(others.lines()[1], "1 packet of EtherType 0x0806 (ARP): no IP");
    }

    #[test]
    fn kinds_are_bounded() {
        let mut others = SkipCounts::default();
        (0..1000).for_each(|n| others.add(SkipReason::EtherType(n)));
        assert_eq!((others.lines().len(), others.total()), (KINDS_MAX, 1000));
        let mut sum = SkipCounts::default();
        sum.absorb(&others);
        assert_eq!(sum, others);
    }
}

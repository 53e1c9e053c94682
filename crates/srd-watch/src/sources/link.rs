//! Headers before an IP packet: the link header of a packet in a capture file, and the headers
//! between the link header and IP.
//!
//! ```text
//!  Ethernet (14) | tags of VLANs (4 each) | labels of MPLS (4 each)        | IP
//!                | 802.2 (3), SNAP (5)    | PPPoE (6), PPP (1 or 2)        |
//!  PPP           | 0xff 0x03, or Cisco's HDLC header (4) | protocol (1, 2) | IP, MPLS
//!  Linux SLL     | 16 or 20 bytes with an EtherType                        |
//! NFLOG | family, version, attributes: one attribute has the packet | IP
//! ```
//!
//! Nothing in a packet is trusted. A packet that does not have one of the forms above is counted by
//! the kind of its header ([`SkipReason`]). Limit: [`LAYERS_MAX`] consecutive headers.

use crate::sources::arrival::PacketDirection;
use crate::sources::other::SkipReason;

/// Largest number of headers between the link header and IP; each VLAN tag and each MPLS label
/// counts as one.
pub(crate) const LAYERS_MAX: usize = 32;
pub(crate) const ETHERTYPE_V4: u16 = 0x0800;
pub(crate) const ETHERTYPE_V6: u16 = 0x86dd;
/// EtherTypes of VLAN tags: 802.1Q, 802.1ad, and its predecessors.
const ETHERTYPES_VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
const ETHERTYPES_MPLS: [u16; 2] = [0x8847, 0x8848];
const ETHERTYPE_PPPOE: u16 = 0x8864;
const ETHERTYPE_PPP: u16 = 0x880b;
/// Smallest EtherType. A smaller number in the field is the length of the frame, and an 802.2
/// header follows.
const ETHERTYPE_LEAST: u16 = 0x0600;
const LLC_SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];
const LLC_IP: [u8; 3] = [0x06, 0x06, 0x03];
/// Organization codes (OUI) whose SNAP headers contain an EtherType: RFC 1042, and bridge tunnels.
const SNAP_ETHERTYPE: [[u8; 3]; 2] = [[0, 0, 0], [0, 0, 0xf8]];
/// PPP protocol number of IPv4. [`PPP_V6`] is that of IPv6, and [`PPP_MPLS`] those of MPLS unicast
/// and multicast.
const PPP_V4: u16 = 0x0021;
const PPP_V6: u16 = 0x0057;
const PPP_MPLS: [u16; 2] = [0x0281, 0x0283];
/// Address families of IP: `AF_INET`, and `AF_INET6` of Linux, Windows, NetBSD, FreeBSD and macOS.
const FAMILIES: [u32; 6] = [2, 10, 23, 24, 28, 30];
const NFLOG_PAYLOAD: u16 = 9;
/// Packet type that Linux packet sockets give to outgoing packets (`PACKET_OUTGOING`).
const OUTGOING: u16 = 4;

/// Kind of the next header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Ethernet,
    EtherType(u16),
    /// 802.2 logical link control.
    Llc,
    /// PPP, from its protocol field on, or with HDLC's address and control fields before it.
    Ppp,
    /// IP; its first four bits contain the version.
    Ip,
    Mpls,
}

/// Result of parsing a link header: the kind and the offset of the next header, and the fields of
/// the link header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Begin {
    pub(crate) next: Next,
    pub(crate) at: usize,
    /// The direction of the packet; `None` if the link header does not contain the direction.
    pub(crate) way: Option<PacketDirection>,
    /// Number of bytes after the offset `at`; `None` if the link header does not contain this
    /// number.
    pub(crate) length: Option<u32>,
    /// Number of bytes at the end of the packet that belong to the link, such as a check sequence.
    pub(crate) trailer_bytes: u8,
}

impl Begin {
    fn at(next: Next, at: usize) -> Self {
        Self { next, at, way: None, length: None, trailer_bytes: 0 }
    }

    fn sent(self, is_sent: bool) -> Self {
        Self { way: is_sent.then_some(PacketDirection::Out), ..self }
    }
}

/// Parses a link header of the type `link` (LINKTYPE_ of tcpdump.org), and returns the position
/// after it.
pub(crate) fn begin(link: u16, is_big_endian: bool, bytes: &[u8]) -> Result<Begin, SkipReason> {
    let byte = |at: usize| bytes.get(at).copied().ok_or(SkipReason::Cut);
    let plain = |next, at| Ok(Begin::at(next, at));
    match link {
        1 => plain(Next::Ethernet, 0),
        12 | 14 | 101 | 228 | 229 => plain(Next::Ip, 0),
        // The address family is in the byte order of the capturing machine.
        0 => family(host_u32(bytes, 0, is_big_endian)?, 4),
        108 => family(host_u32(bytes, 0, true)?, 4),
        109 => family(host_u32(bytes, 0, is_big_endian)?, 12),
        9 => plain(Next::Ppp, 0),
        50 if byte(0)? & 0x7f == 0x0f => plain(Next::EtherType(u16_at(bytes, 2)?), 4),
        50 => plain(Next::Ppp, 0),
        51 => plain(Next::EtherType(ETHERTYPE_PPPOE), 0),
        104 => plain(Next::EtherType(u16_at(bytes, 2)?), 4),
        // One byte with the direction precedes HDLC's address field, or replaces it.
        166 | 204 => {
            let begin = Begin::at(Next::Ppp, if byte(1)? == 0x03 { 2 } else { 1 });
            Ok(Begin {
                way: Some(if byte(0)? == 0 { PacketDirection::In } else { PacketDirection::Out }),
                ..begin
            })
        }
        113 => {
            let begin = Begin::at(Next::EtherType(u16_at(bytes, 14)?), 16);
            Ok(begin.sent(u16_at(bytes, 0)? == OUTGOING))
        }
        276 => {
            let begin = Begin::at(Next::EtherType(u16_at(bytes, 0)?), 20);
            Ok(begin.sent(u16::from(byte(10)?) == OUTGOING))
        }
        117 => plain(Next::Ip, usize::from(byte(0)?).next_multiple_of(4)),
        219 => plain(Next::Mpls, 0),
        239 => nflog(bytes, is_big_endian),
        // netANALYZER: Ethernet frames with their check sequence. Type 241 also has the preamble.
        240 => Ok(Begin { trailer_bytes: 4, ..Begin::at(Next::Ethernet, 4) }),
        241 => Ok(Begin { trailer_bytes: 4, ..Begin::at(Next::Ethernet, 12) }),
        other => Err(SkipReason::Link(other)),
    }
}

/// Returns the offset of the IP packet behind the headers that begin at `at`. `next` is the kind of
/// the first of these headers.
pub(crate) fn find(bytes: &[u8], mut next: Next, mut at: usize) -> Result<usize, SkipReason> {
    for _ in 0..LAYERS_MAX {
        (next, at) = match next {
            Next::Ip => {
                return if has_version(bytes, at)? { Ok(at) } else { Err(SkipReason::Malformed) };
            }
            Next::Ethernet => (Next::EtherType(u16_at(bytes, at + 12)?), at + 14),
            Next::EtherType(ETHERTYPE_V4 | ETHERTYPE_V6) => return Ok(at),
            Next::EtherType(of) if ETHERTYPES_VLAN.contains(&of) => {
                (Next::EtherType(u16_at(bytes, at + 2)?), at + 4)
            }
            Next::EtherType(of) if ETHERTYPES_MPLS.contains(&of) => (Next::Mpls, at),
            Next::EtherType(ETHERTYPE_PPPOE) => {
                // Version and type are both 1. The code is 0 in packets of a PPPoE session.
                let is_session = u16_at(bytes, at)? == 0x1100;
                if !is_session {
                    return Err(SkipReason::EtherType(ETHERTYPE_PPPOE));
                }
                (Next::Ppp, at + 6)
            }
            Next::EtherType(ETHERTYPE_PPP) => (Next::Ppp, at),
            Next::EtherType(of) if of < ETHERTYPE_LEAST => (Next::Llc, at),
            Next::EtherType(of) => return Err(SkipReason::EtherType(of)),
            Next::Llc => llc(bytes, at)?,
            Next::Ppp => ppp(bytes, at)?,
            Next::Mpls => mpls(bytes, at)?,
        };
    }
    Err(SkipReason::Deep)
}

/// Parses an MPLS label. Returns the kind and the offset of the next header, which is another label
/// or IP. MPLS does not name its content, so only the first bits of the content identify IP.
fn mpls(bytes: &[u8], at: usize) -> Result<(Next, usize), SkipReason> {
    let is_last = bytes.get(at + 2).ok_or(SkipReason::Cut)? & 1 == 1;
    if !is_last {
        return Ok((Next::Mpls, at + 4));
    }
    if has_version(bytes, at + 4)? {
        Ok((Next::Ip, at + 4))
    } else {
        Err(SkipReason::EtherType(ETHERTYPES_MPLS[0]))
    }
}

fn llc(bytes: &[u8], at: usize) -> Result<(Next, usize), SkipReason> {
    let header: [u8; 3] = at_least(bytes, at)?;
    match header {
        LLC_IP => Ok((Next::EtherType(ETHERTYPE_V4), at + 3)),
        LLC_SNAP if SNAP_ETHERTYPE.contains(&at_least(bytes, at + 3)?) => {
            Ok((Next::EtherType(u16_at(bytes, at + 6)?), at + 8))
        }
        [point, ..] => Err(SkipReason::Llc(point)),
    }
}

fn ppp(bytes: &[u8], mut at: usize) -> Result<(Next, usize), SkipReason> {
    if bytes.get(at) == Some(&0xff) && *bytes.get(at + 1).ok_or(SkipReason::Cut)? == 0x03 {
        at += 2;
    }
    // PPP may compress a protocol number to its second byte, which is odd.
    let first = *bytes.get(at).ok_or(SkipReason::Cut)?;
    let (protocol, at) = match first & 1 {
        1 => (u16::from(first), at + 1),
        _ => (u16_at(bytes, at)?, at + 2),
    };
    match protocol {
        PPP_V4 => Ok((Next::EtherType(ETHERTYPE_V4), at)),
        PPP_V6 => Ok((Next::EtherType(ETHERTYPE_V6), at)),
        of if PPP_MPLS.contains(&of) => Ok((Next::Mpls, at)),
        of => Err(SkipReason::Ppp(of)),
    }
}

fn family(family: u32, at: usize) -> Result<Begin, SkipReason> {
    if FAMILIES.contains(&family) {
        Ok(Begin::at(Next::Ip, at))
    } else {
        Err(SkipReason::Family(family))
    }
}

/// Parses an NFLOG header up to the attribute that contains the packet. The numbers are in the byte
/// order of the capturing machine.
fn nflog(bytes: &[u8], is_big_endian: bool) -> Result<Begin, SkipReason> {
    let of = u32::from(*bytes.first().ok_or(SkipReason::Cut)?);
    let inside = family(of, 0)?;
    let number = |at: usize| {
        let number: [u8; 2] = at_least(bytes, at)?;
        Ok(if is_big_endian { u16::from_be_bytes(number) } else { u16::from_le_bytes(number) })
    };
    let mut at = 4;
    loop {
        let (length, kind) = (number(at)?, number(at + 2)?);
        // An attribute is at least as long as its header, so the loop ends.
        let Some(value_bytes) = length.checked_sub(4) else { return Err(SkipReason::Malformed) };
        if kind == NFLOG_PAYLOAD {
            return Ok(Begin { at: at + 4, length: Some(value_bytes.into()), ..inside });
        }
        at += usize::from(length).next_multiple_of(4);
    }
}

fn has_version(bytes: &[u8], at: usize) -> Result<bool, SkipReason> {
    Ok(matches!(bytes.get(at).ok_or(SkipReason::Cut)? >> 4, 4 | 6))
}

fn at_least<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], SkipReason> {
    let found = bytes.get(at..at + N).and_then(|found| found.try_into().ok());
    found.ok_or(SkipReason::Cut)
}

/// Returns the EtherType of the IP packet at offset `at`.
pub(crate) fn ethertype_of(bytes: &[u8], at: usize) -> Result<u16, SkipReason> {
    let is_v6 = bytes.get(at).ok_or(SkipReason::Cut)? >> 4 == 6;
    Ok(if is_v6 { ETHERTYPE_V6 } else { ETHERTYPE_V4 })
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, SkipReason> {
    Ok(u16::from_be_bytes(at_least(bytes, at)?))
}

fn host_u32(bytes: &[u8], at: usize, is_big_endian: bool) -> Result<u32, SkipReason> {
    let number = at_least(bytes, at)?;
    Ok(if is_big_endian { u32::from_be_bytes(number) } else { u32::from_le_bytes(number) })
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;

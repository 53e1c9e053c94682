//! Inner packets in a capture: their kinds, and the number of wire packets that each of them
//! represents.

const IP_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const SYN: u8 = 2;
const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;
const OPTION_MSS: u8 = 2;

/// Kind of an inner packet, which decides whether it may use SRD.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// TCP.
    Tcp,
    /// UDP that fits the inner MTU.
    Udp,
    /// ICMP.
    Icmp,
    /// UDP that is larger than the inner MTU.
    Oversize,
    /// A fragment of an IP datagram.
    Fragment,
}

/// An inner IPv4 packet of a capture.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Kind of the packet.
    pub(crate) kind: Kind,
    /// Length of the whole packet, in bytes.
    pub(crate) bytes: usize,
    /// Length of the TCP payload, in bytes; 0 if the packet is not TCP.
    pub(crate) tcp_payload_bytes: usize,
    /// Maximum TCP payload of one segment, in bytes; 0 if the packet is not TCP.
    segment_bytes: usize,
}

impl Inner {
    /// Parses an inner packet; returns `None` if it is not IPv4. `mtu` is the inner MTU, and `mss`
    /// is the TCP MSS of the receiver.
    pub(crate) fn read(packet: &[u8], mtu: usize, mss: usize) -> Option<Self> {
        if packet[0] >> 4 != 4 {
            return None;
        }
        assert_eq!(packet[0], 0x45, "the kernel sends no IP options here");
        let bytes = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        assert_eq!(bytes, packet.len(), "headers and capture agree");
        let is_fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
        let kind = match packet[9] {
            _ if is_fragment => Kind::Fragment,
            1 => Kind::Icmp,
            6 => Kind::Tcp,
            17 if bytes > mtu => Kind::Oversize,
            17 => Kind::Udp,
            other => panic!("nobody sends protocol {other} here"),
        };
        assert!(kind != Kind::Udp || bytes > IP_BYTES + UDP_BYTES);
        let (mut tcp_payload_bytes, mut segment_bytes) = (0, 0);
        if kind == Kind::Tcp {
            let header_bytes = tcp_header_bytes(packet);
            tcp_payload_bytes = bytes - IP_BYTES - header_bytes;
            segment_bytes = mss + TCP_BYTES - header_bytes;
        }
        Some(Self { kind, bytes, tcp_payload_bytes, segment_bytes })
    }

    /// Returns the sizes of the packets that the packet represents, in bytes: its own size, or the
    /// size of each segment of a TSO super-packet.
    pub(crate) fn segments(&self) -> Vec<usize> {
        if self.tcp_payload_bytes <= self.segment_bytes {
            return vec![self.bytes];
        }
        let headers = self.bytes - self.tcp_payload_bytes;
        let starts = (0..self.tcp_payload_bytes).step_by(self.segment_bytes);
        starts.map(|at| headers + self.segment_bytes.min(self.tcp_payload_bytes - at)).collect()
    }
}

/// Returns the MSS in the first TCP SYN among the packets that have arrived; `None` if no such
/// packet or no such option exists.
pub(crate) fn mss_asked_for<'a>(mut arrived: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    let is_syn = |p: &&[u8]| p[0] == 0x45 && p[9] == 6 && p[IP_BYTES + 13] & SYN != 0;
    let syn = arrived.find(is_syn)?;
    let mut options = &syn[IP_BYTES + TCP_BYTES..IP_BYTES + tcp_header_bytes(syn)];
    loop {
        match options {
            [OPTION_END, ..] | [] => return None,
            [OPTION_NOTHING, rest @ ..] => options = rest,
            [OPTION_MSS, 4, high, low, ..] => {
                return Some(usize::from(u16::from_be_bytes([*high, *low])));
            }
            [_, length, ..] => options = &options[usize::from(*length)..],
            [_] => return None,
        }
    }
}

fn tcp_header_bytes(packet: &[u8]) -> usize {
    usize::from(packet[IP_BYTES + 12] >> 4) * 4
}

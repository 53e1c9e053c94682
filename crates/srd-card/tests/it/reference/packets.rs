//! Packets for the comparison of the card with the naive card, written byte by byte, without use of
//! the code under test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use srd_proto::rng::Rng;

/// Bytes of the offload header before each packet.
pub(crate) const OFFLOAD_BYTES: usize = 10;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMP_V6: u8 = 58;
/// Tunnels without ports: IP in IP, GRE, ESP.
pub(crate) const TUNNELS: [u8; 4] = [4, 41, 47, 50];

/// Returns the ones' complement sum of `start` and the big-endian 16-bit words of `bytes`.
pub(crate) fn sum(bytes: &[u8], start: u32) -> u32 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    words.fold(start, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    })
}

fn low(sum: u32) -> [u8; 2] {
    u16::try_from(sum).unwrap().to_be_bytes()
}

/// Returns the ones' complement sum of a pseudo-header; `bytes` is the length of transport header
/// and payload.
pub(crate) fn pseudo_sum(addresses: &[u8], protocol: u8, bytes: usize) -> u32 {
    sum(addresses, sum(&[0, protocol], sum(&u32::try_from(bytes).unwrap().to_be_bytes(), 0)))
}

/// Returns the address of a host at a machine: machine 0 has the card under test, the other
/// machines are its peers.
pub(crate) fn address(machine: usize, host: u8, v6: bool) -> IpAddr {
    let machine = u8::try_from(machine).unwrap();
    if v6 {
        let mut octets = [0; 16];
        (octets[0], octets[3], octets[15]) = (0xfd, machine, host);
        Ipv6Addr::from(octets).into()
    } else {
        Ipv4Addr::new(10, 0, machine, host).into()
    }
}

/// Description of a packet, from which its bytes are built.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) ports: (u16, u16),
    pub(crate) payload: Vec<u8>,
    /// MSS that the packet announces, if it is a SYN.
    pub(crate) syn: Option<u16>,
    pub(crate) may_fragment: bool,
    /// Payload bytes of each segment, for a super-packet of TCP.
    pub(crate) step: Option<u16>,
}

impl Spec {
    pub(crate) fn new(protocol: u8, source: IpAddr, destination: IpAddr, payload: &[u8]) -> Self {
        let (ports, payload) = ((7, 80), payload.to_vec());
        let (syn, step, may_fragment) = (None, None, false);
        Self { source, destination, protocol, ports, payload, syn, may_fragment, step }
    }

    /// Builds the packet with its offload header.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let transport = self.transport();
        let (mut ip, field) = match (self.source, self.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let fragment = if self.may_fragment { 0 } else { 0x40 };
                let mut ip = vec![0x45, 0, 0, 0, 0, 7, fragment, 0, 64, self.protocol, 0, 0];
                ip.extend([from.octets(), to.octets()].concat());
                (ip, 2)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut ip = vec![0x60, 0, 0, 0, 0, 0, self.protocol, 64];
                ip.extend([from.octets(), to.octets()].concat());
                (ip, 4)
            }
            _ => panic!("addresses of two families"),
        };
        let length = transport.len() + if field == 2 { 20 } else { 0 };
        ip[field..field + 2].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        if field == 2 {
            let checksum = low(!sum(&ip, 0) & 0xffff);
            ip[10..12].copy_from_slice(&checksum);
        }
        [self.offload(ip.len()).to_vec(), ip, transport].concat()
    }

    fn transport(&self) -> Vec<u8> {
        let mut out = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        match self.protocol {
            TCP => {
                out.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
                if let Some(mss) = self.syn {
                    (out[12], out[13]) = (0x60, 0x02);
                    out.extend([2, 4]);
                    out.extend(mss.to_be_bytes());
                }
            }
            UDP => {
                let bytes = u16::try_from(8 + self.payload.len()).unwrap();
                out.extend([bytes.to_be_bytes(), [0, 0]].concat());
            }
            // An echo request.
            ICMP_V6 => out = vec![128, 0, 0, 0, 0, 0, 0, 0],
            _ => out = vec![8, 0, 0, 0, 0, 0, 0, 0],
        }
        out.extend(&self.payload);
        out
    }

    fn offload(&self, transport_at: usize) -> [u8; OFFLOAD_BYTES] {
        let mut header = [0; OFFLOAD_BYTES];
        if let Some(step) = self.step {
            header[0] = 1;
            header[1] = if self.source.is_ipv4() { 1 } else { 4 };
            let headers = u16::try_from(transport_at + 20).unwrap();
            header[2..4].copy_from_slice(&headers.to_le_bytes());
            header[4..6].copy_from_slice(&step.to_le_bytes());
            header[6..8].copy_from_slice(&u16::try_from(transport_at).unwrap().to_le_bytes());
            header[8] = 16;
        }
        header
    }
}

/// Returns a random frame from one machine to another. One of the two is machine 0; `host` selects
/// an address of the other machine. The frame contains `number`, so that no two frames are equal.
pub(crate) fn random(rng: &mut Rng, (from, to): (usize, usize), host: u8, number: u32) -> Vec<u8> {
    let v6 = rng.below(8) == 0;
    let icmp = if v6 { ICMP_V6 } else { ICMP };
    let tunnel = TUNNELS[number as usize % TUNNELS.len()];
    let protocol = [TCP, TCP, UDP, UDP, icmp, tunnel][rng.below(6) as usize];
    let hosts = if from == 0 { (1, host) } else { (host, 1) };
    let (source, destination) = (address(from, hosts.0, v6), address(to, hosts.1, v6));
    let sizes: &[u32] = &[4, 40, 700, 1200, 1360, 1385, 3000];
    let mut bytes = sizes[rng.below(7) as usize];
    if protocol == TCP {
        bytes = bytes.min(1300);
    }
    let mut spec = Spec::new(protocol, source, destination, &number.to_be_bytes());
    let port = u16::try_from(1 + rng.below(2)).unwrap();
    spec.ports = if from == 0 { (port, 80) } else { (80, port) };
    spec.may_fragment = rng.below(2) == 0;
    match rng.below(12) {
        0 if protocol == TCP => spec.syn = Some(u16::try_from(1000 + rng.below(1000)).unwrap()),
        1 if protocol == TCP => (spec.step, bytes) = (Some(1300), 1301 + rng.below(20_000)),
        _ => {}
    }
    spec.payload.resize(bytes as usize, u8::try_from(number & 0x7f).unwrap());
    let mut frame = spec.frame();
    match rng.below(40) {
        // Some frames are malformed: no packet; a checksum beyond the end; TCP segments in any
        // packet.
        0 => frame[OFFLOAD_BYTES] = 0xff,
        1 => (frame[0], frame[7]) = (1, 0xff),
        2 => (frame[1], frame[4]) = (1, 0),
        _ => {}
    }
    frame
}

//! Source ports of envelopes: by which of them a packet leaves, and which of them are believed.
//!
//! A tunnel's source port is to tell the flows in it apart (RFC 8926, 3.3), so that what is on the
//! way (`srd up`, switches) can share its queues fairly, use several paths and processors, and
//! keep order for each flow alone. Here an interface has [`FLOWS_EACH`] ports, by a hash of the
//! flow, and the next interface has others as long as there are others: one that floods, by many
//! flows even, shares its ports with few.
//!
//! The ports are privileged, so that of a machine's users root alone has them, also while no card
//! runs there. What comes from other ports is a stranger's.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::net::{IpAddr, UdpSocket};
use std::ops::RangeInclusive;

use anyhow::{Result, bail};
use siphasher::sip::SipHasher13;
use srd_card::FlowKey;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::packet::Packet;
use srd_card::vpc::Envelope;
use srd_proto::Secret;

/// Ports that envelopes leave by. All cards of a cloud have the same.
pub(crate) const PORTS: RangeInclusive<u16> = 960..=1023;
/// Ports of one interface.
const FLOWS_EACH: u16 = 8;
/// Interfaces after which ports are shared.
const INTERFACES: u16 = 8;
/// Interfaces whose ports are remembered. If there are more, all are forgotten, and a flow may go
/// on by another port.
const REMEMBERED_MAX: usize = 4096;

/// Where Linux says which ports are not privileged.
const UNPRIVILEGED: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// The choice of a source port for each envelope.
#[derive(Debug)]
pub(crate) struct Spread {
    /// Guests choose what is hashed.
    secret: Secret,
    /// The place of each interface, in the order in which they came.
    places: BTreeMap<u64, u16>,
    next: u16,
}

impl Spread {
    pub(crate) fn new(secret: Secret) -> Self {
        Self { secret, places: BTreeMap::new(), next: 0 }
    }

    /// The number of an envelope's flow. Fragments of a packet have the same one.
    pub(crate) fn flow_of(&mut self, envelope: &Envelope, frame: &[u8]) -> u16 {
        let interface = match envelope {
            Envelope::Between { from, .. }
            | Envelope::Leaving { from, .. }
            | Envelope::ByNat { from, .. }
            | Envelope::Translated { from, .. }
            | Envelope::ToNat { from, .. } => from.0,
            Envelope::FromNat { to, .. } => to.0,
            Envelope::Arriving => 0,
        };
        let packet = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
        let hash = packet.map_or(0, |packet| self.hash(&FlowKey::of(&packet)));
        let own = u16::try_from(hash % u64::from(FLOWS_EACH)).unwrap_or(0);
        self.place_of(interface) * FLOWS_EACH + own
    }

    fn place_of(&mut self, interface: u64) -> u16 {
        if let Some(place) = self.places.get(&interface) {
            return *place;
        }
        if self.places.len() == REMEMBERED_MAX {
            self.places.clear();
        }
        let place = self.next;
        self.next = (place + 1) % INTERFACES;
        self.places.insert(interface, place);
        place
    }

    fn hash(&self, key: &FlowKey) -> u64 {
        let mut hasher = SipHasher13::new_with_key(self.secret.bytes());
        for address in [key.source, key.destination] {
            match address {
                IpAddr::V4(address) => hasher.write(&address.octets()),
                IpAddr::V6(address) => hasher.write(&address.octets()),
            }
        }
        hasher.write_u16(key.ports.0);
        hasher.write_u16(key.ports.1);
        hasher.write_u8(key.protocol);
        hasher.finish()
    }
}

/// A socket at each of the ports that no other program has. At least one is there.
pub(crate) fn open(address: IpAddr) -> Result<Vec<UdpSocket>> {
    let (mut sockets, mut error) = (Vec::new(), None);
    for port in PORTS {
        match UdpSocket::bind((address, port)) {
            Ok(socket) => sockets.push(socket),
            Err(failed) => error = Some(failed),
        }
    }
    if let (true, Some(error)) = (sockets.is_empty(), error) {
        bail!(
            "none of the UDP ports {} to {} of {address}, by one of which packets leave for other \
             hosts: {error} (ports below 1024 need CAP_NET_BIND_SERVICE; `ss -ulnp` shows programs \
             that have them)",
            PORTS.start(),
            PORTS.end()
        );
    }
    Ok(sockets)
}

/// Finds out whether any user of this machine may have these ports.
pub(crate) fn check_privileged(plain: bool) -> Result<()> {
    // A file that cannot be read means the usual value.
    let start = std::fs::read_to_string(UNPRIVILEGED).ok();
    let start = start.and_then(|text| text.trim().parse::<u16>().ok()).unwrap_or(1024);
    let Some(what) = unprivileged(start) else { return Ok(()) };
    if plain {
        tracing::warn!("{what}");
        return Ok(());
    }
    bail!("{what}");
}

fn unprivileged(start: u16) -> Option<String> {
    (start <= *PORTS.end()).then(|| {
        format!(
            "any user of this machine may have the UDP ports {} to {} and so speak for its \
             instances, since net.ipv4.ip_unprivileged_port_start is {start}: set it to 1024 \
             (sysctl -w net.ipv4.ip_unprivileged_port_start=1024)",
            PORTS.start(),
            PORTS.end()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_vpc::id::EniId;
    use std::collections::BTreeSet;

    /// A frame with a packet of UDP, or a later fragment of it.
    fn frame(source_port: u16, fragment: bool) -> Vec<u8> {
        let mut packet = vec![0; OFFLOAD_BYTES + 28];
        let ip = &mut packet[OFFLOAD_BYTES..];
        (ip[0], ip[3], ip[8], ip[9]) = (0x45, 28, 64, 17);
        ip[7] = u8::from(fragment);
        ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        ip[20..22].copy_from_slice(&source_port.to_be_bytes());
        packet
    }

    #[test]
    fn an_interface_has_few_ports_and_the_next_one_has_others() {
        let mut spread = Spread::new(Secret::known(7));
        let mut flows = |interface: u64| -> BTreeSet<u16> {
            let envelope = Envelope::Between { from: EniId(interface), to: EniId(99) };
            (0..1000).map(|port| spread.flow_of(&envelope, &frame(port, false))).collect()
        };
        let all: Vec<BTreeSet<u16>> = (1..=8).map(|n| flows(n * 1000)).collect();
        assert!(all.iter().all(|flows| flows.len() == usize::from(FLOWS_EACH)));
        let whole: BTreeSet<u16> = all.iter().flatten().copied().collect();
        assert_eq!(whole.len(), PORTS.len(), "eight interfaces share none");
        assert_eq!(flows(3), all[0]);
        assert_eq!(flows(2000), all[1], "an interface keeps its ports");
        // One flow keeps its port, whatever is behind its headers; so do all fragments.
        let envelope = Envelope::Between { from: EniId(1), to: EniId(2) };
        let mut of = |frame: &[u8]| spread.flow_of(&envelope, frame);
        assert_eq!(of(&frame(5, false)), of(&[&frame(5, false)[..], b"more"].concat()));
        assert_eq!(of(&frame(5, true)), of(&frame(6, true)));
        assert!(PORTS.contains(&(PORTS.start() + of(&[]))));
        // The number of places that are remembered is bounded.
        for from in 0..2 * REMEMBERED_MAX as u64 {
            spread.flow_of(&Envelope::Between { from: EniId(from), to: EniId(2) }, &[]);
            assert!(spread.places.len() <= REMEMBERED_MAX);
        }
    }

    #[test]
    fn ports_that_any_user_may_have_are_said() {
        assert!(unprivileged(1024).is_none());
        for start in [0, 80, 1023] {
            assert!(unprivileged(start).unwrap().contains("ip_unprivileged_port_start"));
        }
    }
}

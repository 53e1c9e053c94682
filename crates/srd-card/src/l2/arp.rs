//! ARP (RFC 826): every address of the subnet resolves to the gateway.

use core::net::Ipv4Addr;

use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};

use super::dhcp::mask;
use super::{ARP, Framed, GATEWAY, Link};

/// First bytes of the addresses of the network's own services, such as instance metadata.
const SERVICES: [u8; 3] = [169, 254, 169];

impl Link {
    /// Returns the answer to an ARP request of the guest. A request for the guest's own address
    /// gets no answer; otherwise the guest would detect an address conflict. Such requests are also
    /// probes and announcements of its secondary addresses (RFC 5227): a probe has no sender
    /// address, and an announcement has its target as the sender. // E3
    pub(super) fn arp(&self, bytes: &[u8]) -> Option<Framed> {
        let asked = ArpRepr::parse(&ArpPacket::new_checked(bytes).ok()?).ok()?;
        let ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        } = asked
        else {
            return None;
        };
        let (own, length) = self.ipv4?;
        let subnet = |address: Ipv4Addr| u32::from(address) & mask(length);
        let here = subnet(target_protocol_addr) == subnet(own)
            || target_protocol_addr.octets().starts_with(&SERVICES);
        let is_own = target_protocol_addr == own
            || target_protocol_addr == source_protocol_addr
            || source_protocol_addr.is_unspecified();
        if is_own || !here || source_hardware_addr.as_bytes() != self.mac {
            return None;
        }
        let said = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: EthernetAddress(GATEWAY),
            source_protocol_addr: target_protocol_addr,
            target_hardware_addr: source_hardware_addr,
            target_protocol_addr: source_protocol_addr,
        };
        Some(self.answer(ARP, said.buffer_len(), |bytes| {
            said.emit(&mut ArpPacket::new_unchecked(bytes));
        }))
    }
}

//! ICMP errors about connections through a gateway (RFC 5508). The gateway also translates the
//! packet that an error quotes, so that the receiver of the error finds its own address and port in
//! it, and correct checksums. An error does not prolong a connection.

use core::net::{IpAddr, Ipv4Addr};

use srd_proto::time::Instant;
use srd_vpc::id::{EniId, NatGatewayId};

use super::quoted::{End, Quoted};
use super::{IDLE, Inside, Nat, NatConnection, NatError, NotArrived, Outside, remote};
use crate::vpc::frames::read::Read;
use crate::vpc::frames::translate;

impl Nat {
    /// Translates an ICMP error from an interface behind a gateway, about a packet that the
    /// interface received through the gateway.
    pub(super) fn error_leaves(
        &self,
        now: Instant,
        (nat, eni, public): (NatGatewayId, EniId, Ipv4Addr),
        read: &Read,
        bytes: &mut [u8],
    ) -> Result<(), NatError> {
        let none = NatError::ErrorAboutNothing;
        let quoted = Quoted::of(read, bytes).ok_or(none)?;
        let (far, port) = quoted.source;
        let inside = Inside {
            eni,
            nat,
            source: quoted.destination,
            remote: remote(far, port, quoted.protocol),
            protocol: quoted.protocol,
        };
        let found = self.by_inside.get(&inside).filter(|(_, used_at)| now < *used_at + IDLE);
        let (outside, _) = found.ok_or(none)?;
        if outside.public.0 != public || read.packet.destination != IpAddr::V4(far) {
            return Err(none);
        }
        quoted.write(read, bytes, End::Destination, outside.public);
        translate::write(bytes, &read.layout, translate::SOURCE_AT, public);
        Ok(())
    }

    /// Translates an ICMP error for a gateway's address, about a packet that left through the
    /// gateway. `may_send` decides whether the sender of the error may send to an interface.
    /// Returns the connection of the packet that the error quotes.
    pub(super) fn error_arrives<E>(
        &self,
        now: Instant,
        public: Ipv4Addr,
        read: &Read,
        bytes: &mut [u8],
        may_send: impl FnOnce(EniId) -> Result<(), NotArrived<E>>,
    ) -> Result<NatConnection, NotArrived<E>> {
        let none = || NotArrived::NoConnection;
        let quoted = Quoted::of(read, bytes).filter(|quoted| quoted.source.0 == public);
        let quoted = quoted.ok_or_else(none)?;
        let (far, port) = quoted.destination;
        let remote = remote(far, port, quoted.protocol);
        let outside = Outside { public: quoted.source, remote, protocol: quoted.protocol };
        let inside = self.by_outside.get(&outside).ok_or_else(none)?;
        let is_alive = self.by_inside.get(inside).is_some_and(|(_, at)| now < *at + IDLE);
        if !is_alive {
            return Err(none());
        }
        may_send(inside.eni)?;
        quoted.write(read, bytes, End::Source, inside.source);
        translate::write(bytes, &read.layout, translate::DESTINATION_AT, inside.source.0);
        Ok(NatConnection { nat: inside.nat, eni: inside.eni, port: 0 })
    }
}

//! NAT gateways between interfaces of clouds (V20): a private gateway in front of a peered cloud,
//! whose interfaces see only the address of the gateway.
//!
//! ```text
//!  A --> rules --> limits --> gateway: its address --> rules --> B
//!  A <-- rules <-- gateway: lists of its subnet, routes <-- limits <-- rules <-- B
//! ```
//!
//! Each host whose interfaces use a gateway runs the gateway, with its own connections. The host of
//! the remote end stores to which host answers have to be sent. Gateways of two hosts may have
//! taken the same port for connections to one remote end. Then the port belongs to the first host,
//! and packets of the second host are dropped and counted. However, if the interface at the first
//! host has far more connections, the port goes to the second host.
//!
//! Bound: connections as in [`Nat`](crate::vpc::tables::nat), and connections of other hosts as in
//! [`Returns`](crate::vpc::tables::returns).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use srd_proto::time::Instant;
use srd_vpc::compile::{NoSender, Rules, SenderPlace};
use srd_vpc::id::{EniId, NatGatewayId, VpcId};
use srd_vpc::judge::Exit;

use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::track::Key;
use crate::vpc::asking::PendingPacket;
use crate::vpc::card::Card;
use crate::vpc::drops::Cause;
use crate::vpc::envelope::Envelope;
use crate::vpc::frames::onward::carried_bytes;
use crate::vpc::frames::read::Read;
use crate::vpc::port::{Environment, FrameRoute, PortId};
use crate::vpc::records::trace::Followed;
use crate::vpc::tables::flow::{Sender, Via};
use crate::vpc::tables::nat::{self, NatError, NotArrived};

impl Card {
    /// Translates a packet of a guest by a NAT gateway, and sends it to an interface; in fragments
    /// if it is too large for the gateway. // V7
    pub(in crate::vpc) fn leave_by_nat(
        &mut self,
        now: Instant,
        port: PortId,
        by: (NatGatewayId, Ipv4Addr),
        (host, to): (Option<Arc<str>>, EniId),
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) -> Result<(), Cause> {
        if fits_gateway(&frame) {
            return self.leave_translated(now, port, by, (host, to), frame, around);
        }
        let mut left = Ok(());
        for frame in self.fitting(now, port, nat::MTU.into(), frame, around)? {
            let to = (host.clone(), to);
            left = left.and(self.leave_translated(now, port, by, to, frame, around));
        }
        left
    }

    fn leave_translated(
        &mut self,
        now: Instant,
        port: PortId,
        (nat, private): (NatGatewayId, Ipv4Addr),
        (host, to): (Option<Arc<str>>, EniId),
        mut frame: Vec<u8>,
        around: &mut impl Environment,
    ) -> Result<(), Cause> {
        let from = self.ports[port.0 as usize].eni;
        let translated = self.nat.leave(now, nat, private, from, &mut frame);
        if let Err(error) = translated {
            if error == NatError::NoConnection
                && let Some(reset) = nat::reset(&frame)
            {
                around.to_guest(port, reset);
            }
            return Err(Cause::Nat(error));
        }
        match host {
            Some(host) => {
                let envelope = Envelope::Translated { from, to };
                self.send_to_host(now, port, (&host, envelope, false), frame, around)
            }
            None => {
                let sender = Sender { host: None, eni: Some(from), via: Via::Nat };
                self.arrive_at(now, sender, to, frame, around);
                Ok(())
            }
        }
    }

    /// Sends a packet of a guest to the edge, where a NAT gateway translates it for the internet.
    pub(in crate::vpc) fn leave_by_edge(
        &mut self,
        now: Instant,
        port: PortId,
        (nat, exit): (NatGatewayId, Exit),
        edge: &Arc<str>,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) -> Result<(), Cause> {
        let there = &self.ports[port.0 as usize];
        let envelope = Envelope::ByNat { from: there.eni, nat };
        let way = FrameRoute { host: edge, instance: there.instance, envelope, express: false };
        let mut left = Ok(());
        for frame in self.fitting(now, port, carried_bytes(exit), frame, around)? {
            let translated = around.to_nat(way, frame);
            left = left.and(translated.map_err(Cause::Nat));
        }
        left
    }

    /// Sends a packet of a guest to a NAT gateway. If the gateway of this host has the packet's
    /// connection, the packet goes to the interface of the connection, otherwise to the host whose
    /// gateway has it. A packet that is too large for the gateway is sent in fragments. // V7
    ///
    /// # Errors
    /// [`Cause::NoNatConnection`] if the packet belongs to no known connection; [`Cause::TooBig`]
    /// if it is too large and may not be fragmented.
    pub(in crate::vpc) fn leave_to_nat(
        &mut self,
        now: Instant,
        port: PortId,
        nat: NatGatewayId,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) -> Result<(), Cause> {
        if fits_gateway(&frame) {
            return self.leave_for_nat(now, port, nat, frame, around);
        }
        let mut left = Ok(());
        for frame in self.fitting(now, port, nat::MTU.into(), frame, around)? {
            left = left.and(self.leave_for_nat(now, port, nat, frame, around));
        }
        left
    }

    fn leave_for_nat(
        &mut self,
        now: Instant,
        port: PortId,
        nat: NatGatewayId,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) -> Result<(), Cause> {
        let from = self.ports[port.0 as usize].eni;
        let sender = Sender { host: None, eni: Some(from), via: Via::NatBack };
        let Err(frame) = self.back_by_nat(now, sender, frame, around) else { return Ok(()) };
        let none = Cause::NoNatConnection;
        let read = self.known_read(now, port, None, &frame).ok_or(none)?;
        let bytes = &frame[OFFLOAD_BYTES..];
        let there = &mut self.ports[port.0 as usize];
        let own = || read.key(bytes, Direction::Egress, there.index);
        let about = Key::of_error(&read.packet, bytes, Direction::Egress, there.index);
        let key = about.unwrap_or_else(own);
        let host = there.returns.get(now, &key).ok_or(none)?;
        self.send_to_host(now, port, (&host, Envelope::ToNat { from, nat }, false), frame, around)
    }

    /// Takes an answer for a gateway of this host that another host has sent, and sends it to the
    /// interface of its connection. Before that, it checks whether the host may send for the
    /// packet's sender. // V6
    pub(in crate::vpc) fn arrive_for_nat(
        &mut self,
        now: Instant,
        sender: Sender,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) {
        if self.back_by_nat(now, sender, frame, around).is_err() {
            self.drop_of(None, Cause::NoNatConnection, 1);
        }
    }

    /// Sends an answer for a gateway of this host to the interface of its connection, or drops it
    /// if its sender may not send to this interface.
    ///
    /// # Errors
    /// The gateways of this host have no such connection. The unchanged frame is returned.
    pub(in crate::vpc) fn back_by_nat(
        &mut self,
        now: Instant,
        sender: Sender,
        mut frame: Vec<u8>,
        around: &mut impl Environment,
    ) -> Result<(), Vec<u8>> {
        let Self { nat, rules, host, .. } = self;
        let may_send = |to: EniId, source: IpAddr| {
            let Some(from) = sender.eni else { return Ok(()) };
            let vpc = match sender.host {
                Some(_) => sent_from(rules, host, &sender, (from, to), source)?.vpc,
                // The card has checked the source of a packet of its own interfaces already.
                None => rules.vpc_of(from).ok_or(Cause::NotItsHost)?,
            };
            // The connection may be with an interface of another cloud that has the same address.
            let is_foreign = rules.lead_elsewhere(to, source, vpc);
            if is_foreign { Err(Cause::NoNatConnection) } else { Ok(()) }
        };
        let back = match nat.arrive_from(now, Some(&sender), &mut frame, may_send) {
            Ok(back) => back,
            Err(NotArrived::NoConnection) => return Err(frame),
            Err(NotArrived::Refused(to, cause)) => {
                self.refuse_for_nat(now, sender, (to, cause), frame);
                return Ok(());
            }
        };
        let nat::NatConnection { nat, eni, port } = back;
        if self.passes_back(now, (nat, eni, port), &sender, &frame) {
            self.arrive_at(now, sender, eni, frame, around);
        }
        Ok(())
    }

    /// Drops an answer for a gateway that its sender may not send to the interface `to`; or keeps
    /// it until the location of the sender is known.
    #[cold]
    fn refuse_for_nat(
        &mut self,
        now: Instant,
        sender: Sender,
        (to, cause): (EniId, Cause),
        frame: Vec<u8>,
    ) {
        let (Some(port), Some(read)) = (self.port_of(to), Read::frame(&frame)) else {
            return self.drop_of(None, Cause::NotHere, 1);
        };
        if cause == Cause::Unanswered {
            let waiting = PendingPacket {
                frame,
                port,
                eni: to,
                sender: Some(sender),
                for_nat: true,
                followed: Followed::NO,
                by_srd: self.by_srd,
            };
            return self.wait(now, waiting, read.layout.packets());
        }
        self.drop_before(now, port, &read, &frame[OFFLOAD_BYTES..], cause);
    }

    /// Whether the network ACLs and routes of a NAT gateway's subnet admit an answer to an
    /// interface. A refused answer is counted as dropped.
    pub(in crate::vpc) fn passes_back(
        &mut self,
        now: Instant,
        (nat, to, port): (NatGatewayId, EniId, u16),
        sender: &Sender,
        frame: &[u8],
    ) -> bool {
        let Some(there) = self.port_of(to) else {
            self.drop_of(None, Cause::NotHere, 1);
            return false;
        };
        let Some(read) = self.known_read(now, there, Some(sender), frame) else {
            self.drop_of(Some(there), Cause::Malformed, 1);
            return false;
        };
        let packet = read.for_rules(&frame[OFFLOAD_BYTES..]);
        let judged = self.rules.back_by_nat(nat, to, &packet, port, sender.eni);
        if let Err(reason) = judged {
            let cause = read.cause(Cause::Rule(reason));
            self.drop_before(now, there, &read, &frame[OFFLOAD_BYTES..], cause);
        }
        judged.is_ok()
    }

    /// Returns the cloud of the interface that has sent a packet through a NAT gateway, and whether
    /// the packet enters the receiver's subnet from outside.
    ///
    /// # Errors
    /// [`Cause::NotItsHost`] if the interface that sent the packet is not on the host from which
    /// the packet came; [`Cause::Unanswered`] if its location has to be requested first. // V6
    pub(in crate::vpc) fn is_sent_by_nat(
        &self,
        sender: &Sender,
        to: EniId,
        from: EniId,
        source: IpAddr,
    ) -> Result<(VpcId, bool), Cause> {
        let found = self.rules.sender_by_nat(to, from, source);
        let (SenderPlace { place, vpc }, crosses) = found.map_err(cause_of)?;
        let host = sender.host.as_ref().unwrap_or(&self.host);
        if place.host.as_ref() == Some(host) { Ok((vpc, crosses)) } else { Err(Cause::NotItsHost) }
    }
}

/// Whether the packets of a frame certainly fit a NAT gateway, whatever the frame contains.
fn fits_gateway(frame: &[u8]) -> bool {
    frame.len() <= OFFLOAD_BYTES + usize::from(nat::MTU)
}

fn cause_of(none: NoSender) -> Cause {
    match none {
        NoSender::Ask(_) => Cause::Unanswered,
        NoSender::NotIts => Cause::NotItsHost, // V6
    }
}

/// Returns the interface that has sent a packet to an interface of this host.
/// `own` is the name of this host.
///
/// # Errors
/// [`Cause::NotItsHost`] if the host from which the packet came may not send it for this interface;
/// [`Cause::Unanswered`] if the interface's location has to be requested first. // V6
pub(in crate::vpc) fn sent_from<'a>(
    rules: &'a Rules,
    own: &Arc<str>,
    sender: &Sender,
    (from, to): (EniId, EniId),
    source: IpAddr,
) -> Result<SenderPlace<'a>, Cause> {
    let found = rules.sender(to, from, source).map_err(cause_of)?;
    let host = sender.host.as_ref().unwrap_or(own);
    if found.place.host.as_ref() == Some(host) { Ok(found) } else { Err(Cause::NotItsHost) }
}

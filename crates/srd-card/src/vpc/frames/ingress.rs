//! Packets that arrive for guests: from interfaces of this host and of other hosts, and from the
//! internet.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::Instant;
use srd_vpc::compile::{self, Arrival};
use srd_vpc::id::{EniId, VpcId};
use srd_vpc::judge::{Reason, Tracking};

use crate::limits::{LimitDecision, Offer};
use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::track::{FlowEntry, Key, PacketKind, TrackId, is_error};
use crate::vpc::asking::PendingPacket;
use crate::vpc::card::Card;
use crate::vpc::drops::Cause;
use crate::vpc::envelope::Envelope;
use crate::vpc::frames::onward_by_nat::sent_from;
use crate::vpc::frames::parcel::{Going, Parcel};
use crate::vpc::frames::read::{Read, bytes_of};
use crate::vpc::frames::translate;
use crate::vpc::frames::with_first::after_refused;
use crate::vpc::port::{Environment, PortId};
use crate::vpc::tables::flow::{FlowLookup, NOBODY, Sender, Side, Verdict, Via};
use crate::vpc::tables::nat::{QuotedEnd, readdress};

impl Card {
    /// Takes a frame that another host, or the edge of a gateway, has sent.
    pub fn from_host(
        &mut self,
        now: Instant,
        host: &Arc<str>,
        envelope: Envelope,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) {
        match envelope {
            Envelope::Between { from, to } => {
                let sender = self.sender(host, Some(from));
                self.arrive_at(now, sender, to, frame, around);
            }
            Envelope::Arriving | Envelope::FromNat { .. } if !self.is_edge(host) => {
                self.drop_of(None, Cause::NotItsHost, 1);
            }
            Envelope::Arriving => self.arrive_from_internet(now, host, frame, around),
            Envelope::FromNat { nat, to, port } => {
                let sender = self.sender(host, None);
                if self.passes_back(now, (nat, to, port), &sender, &frame) {
                    self.arrive_at(now, sender, to, frame, around);
                }
            }
            Envelope::Translated { from, to } => {
                let sender = Sender { via: Via::Nat, ..self.sender(host, Some(from)) };
                self.arrive_at(now, sender, to, frame, around);
            }
            Envelope::ToNat { from, .. } => {
                let sender = Sender { via: Via::NatBack, ..self.sender(host, Some(from)) };
                self.arrive_for_nat(now, sender, frame, around);
            }
            // This card is the edge of no gateway; the edge of the program handles such frames.
            Envelope::Leaving { .. } | Envelope::ByNat { .. } => {
                self.drop_of(None, Cause::NoEdge, 1);
            }
        }
        self.run(now, around);
    }

    /// Takes a frame that a service of the network itself sends to a guest. Security groups and
    /// network ACLs are not applied, the connection is not tracked, and the limits do not delay the
    /// frame (V11).
    pub fn from_service(&mut self, port: PortId, frame: Vec<u8>, around: &mut impl Environment) {
        if self.port(port).is_none() {
            return self.drop_of(None, Cause::NotHere, 1);
        }
        let Some(read) = Read::frame(&frame) else {
            return self.drop_of(Some(port), Cause::Malformed, 1);
        };
        let counts = &mut self.ports[port.0 as usize].counts;
        counts.rx_packets += read.layout.packets();
        counts.rx_bytes += u64::from(bytes_of(&read.layout));
        around.to_guest(port, frame);
    }

    pub(in crate::vpc) fn sender(&self, host: &Arc<str>, eni: Option<EniId>) -> Sender {
        Sender { host: (*host != self.host).then(|| host.clone()), eni, via: Via::Direct }
    }

    pub(in crate::vpc) fn is_edge(&self, host: &Arc<str>) -> bool {
        let (publics, returns) = &self.publics;
        (!publics.is_empty() && returns == host) || self.edges.values().any(|edge| edge == host)
    }

    pub(in crate::vpc) fn arrive_at(
        &mut self,
        now: Instant,
        sender: Sender,
        to: EniId,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) {
        match self.port_of(to) {
            Some(port) => self.arrive(now, sender, port, frame, around),
            None => self.drop_of(None, Cause::NotHere, 1),
        }
    }

    /// Takes a frame from the internet. The private destination is written before the flow is
    /// looked up, because the keys of flows contain private addresses.
    fn arrive_from_internet(
        &mut self,
        now: Instant,
        host: &Arc<str>,
        mut frame: Vec<u8>,
        around: &mut impl Environment,
    ) {
        let Some(read) = Read::arriving(&frame) else {
            return self.drop_of(None, Cause::Malformed, 1);
        };
        let bytes = &mut frame[OFFLOAD_BYTES..];
        let arrival = self.rules.arrive(&read.for_rules(bytes));
        let Arrival { eni, packet, begins } = match arrival {
            Ok(arrival) => arrival,
            Err(reason) => return self.drop_of(None, Cause::Rule(reason), read.layout.packets()),
        };
        if let (IpAddr::V4(before), IpAddr::V4(private)) =
            (read.packet.destination, packet.destination)
            && before != private
        {
            translate::write(bytes, &read.layout, translate::DESTINATION_AT, private);
            readdress(&read, bytes, QuotedEnd::Source, (before, private));
        }
        let Some(port) = self.port_of(eni) else {
            return self.drop_of(None, Cause::NotHere, read.layout.packets());
        };
        let sender = self.sender(host, None);
        if begins.is_err() && !self.is_answer(now, port, &sender, &frame) {
            let cause = Cause::Rule(begins.err().unwrap_or(Reason::Detached));
            let read = self.known_read(now, port, Some(&sender), &frame).unwrap_or(read);
            return self.drop_before(now, port, &read, &frame[OFFLOAD_BYTES..], cause);
        }
        self.arrive(now, sender, port, frame, around);
    }

    /// Whether a frame belongs to a connection that the receiving interface tracks, or is an ICMP
    /// error about such a connection.
    fn is_answer(&mut self, now: Instant, port: PortId, from: &Sender, frame: &[u8]) -> bool {
        let Some(read) = Read::frame(frame) else { return false };
        let bytes = &frame[OFFLOAD_BYTES..];
        let (read, key) = self.with_first(now, port, Some(from), &read, bytes);
        let there = &self.ports[port.0 as usize];
        let flows = &mut self.instances[there.instance as usize].flows;
        let found = flows.related(now, &key);
        found.and_then(|id| flows.value(id)).is_some_and(|(_, tracked, _)| tracked)
            || self.is_related(now, port, &read, bytes, Direction::Ingress)
    }

    /// Takes a frame for an interface of this host.
    pub(in crate::vpc) fn arrive(
        &mut self,
        now: Instant,
        sender: Sender,
        port: PortId,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) {
        let Some(read) = Read::frame(&frame) else {
            return self.drop_of(Some(port), Cause::Malformed, 1);
        };
        let key = self.key_at(port, &read, &frame);
        self.arrive_read(now, &sender, port, frame, (&read, &key), around);
    }

    /// Returns the key of a frame's flow at the interface that receives the frame.
    pub(in crate::vpc) fn key_at(&self, port: PortId, read: &Read, frame: &[u8]) -> Key {
        let index = self.ports[port.0 as usize].index;
        read.key(&frame[OFFLOAD_BYTES..], Direction::Ingress, index)
    }

    /// Takes a frame whose headers have been read. `key` is the flow at the receiving interface.
    pub(in crate::vpc) fn arrive_read(
        &mut self,
        now: Instant,
        sender: &Sender,
        port: PortId,
        frame: Vec<u8>,
        (read, key): (&Read, &Key),
        around: &mut impl Environment,
    ) {
        let packets = read.layout.packets();
        let bytes = &frame[OFFLOAD_BYTES..];
        let of_first;
        let (read, key) = if read.packet.fragment {
            of_first = self.with_first(now, port, Some(sender), read, bytes);
            (&of_first.0, &of_first.1)
        } else {
            (read, key)
        };
        let there = &self.ports[port.0 as usize];
        let (index, number) = (there.index, there.instance);
        let seen = PacketKind::of(&read.packet, bytes);
        let followed = self.follow(now, port, read, bytes, Direction::Ingress, key);
        let judged = self.ports[port.0 as usize].counts.judged;
        let taken = self.take(now, sender, port, read, bytes, key, seen);
        let taken = taken.and_then(|()| self.note_return(now, sender, port, key));
        // A host must not change what is known of other hosts' fragments. // V6
        let is_note = !matches!(taken, Err(Cause::Unanswered | Cause::NotItsHost));
        if read.packet.fragment && is_note {
            self.note_first(now, port, Some(sender), (read, bytes), taken.is_ok());
        }
        if taken == Err(Cause::Unanswered) {
            let eni = self.ports[port.0 as usize].eni;
            let (sender, by_srd) = (Some(sender.clone()), self.by_srd);
            let for_nat = false;
            let waiting = PendingPacket { frame, port, eni, sender, for_nat, followed, by_srd };
            return self.wait(now, waiting, packets);
        }
        let verdict = taken.map(|()| None).map_err(|cause| read.cause(cause));
        self.note_judged(now, followed, port, key, judged, verdict);
        if let Err(cause) = taken {
            self.log_refusal(now, port, read, bytes, Direction::Ingress, cause);
            let cause = read.cause(cause);
            if cause == Cause::Tracking {
                let instance = &mut self.instances[number as usize];
                let packets = u32::try_from(packets).unwrap_or(u32::MAX);
                instance.limits.count_refused_connection(index, packets);
            }
            return self.drop_of(Some(port), cause, packets);
        }
        if self.by_srd && sender.host.is_some() {
            self.ports[port.0 as usize].counts.express_rx_packets += packets;
        }
        let offer = Offer {
            direction: Direction::Ingress,
            bytes: bytes_of(&read.layout),
            packets: u32::try_from(packets).unwrap_or(u32::MAX),
            eni: index,
            gateway: sender.eni.is_none(),
            link_local: false,
            fragment: read.packet.fragment,
        };
        let asked = self.ask(now, number, &offer, None);
        if asked == LimitDecision::Through {
            return self.gone_in(now, &offer, port, followed, frame, around);
        }
        let (epoch, going) = (self.epochs.now(), Going::In(sender.clone()));
        let parcel = Parcel { frame, port, epoch, going, followed };
        self.keep(now, number, asked, offer, parcel);
    }

    /// Stores the host to which the answers to a packet have to be sent, if the packet came through
    /// a NAT gateway of another host.
    #[inline]
    fn note_return(
        &mut self,
        now: Instant,
        sender: &Sender,
        port: PortId,
        key: &Key,
    ) -> Result<(), Cause> {
        let Some(host) = sender.host.as_ref().filter(|_| sender.via == Via::Nat) else {
            return Ok(());
        };
        self.ports[port.0 as usize].returns.put(now, key, host, sender.eni).map_err(Cause::Nat)
    }

    /// Decides whether a packet may reach a guest: by the verdict of its flow, or by the rules.
    /// Updates state and time of the flow, except for a packet from a host that may not send for
    /// its sender (V6), because this host must not change flows of other hosts.
    #[allow(clippy::too_many_arguments)] // one packet and its state
    fn take(
        &mut self,
        now: Instant,
        sender: &Sender,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        key: &Key,
        seen: PacketKind,
    ) -> Result<(), Cause> {
        if read.follows_refused {
            self.ports[port.0 as usize].counts.judged += read.layout.packets();
            let flow = self.flow_of(now, port, read, bytes, Direction::Ingress);
            return Err(after_refused(self.ask_received(sender, port, read, bytes, flow)));
        }
        let there = &self.ports[port.0 as usize];
        let since = self.since(there, key);
        let flows = &mut self.instances[there.instance as usize].flows;
        let mut known = FlowLookup::NOTHING;
        if let Some(FlowEntry { id, value, tracked, local_first }) =
            flows.known_flow(now, key, seen)
        {
            let into = value.received();
            // The verdict on a packet that came through a NAT gateway also depends on the interface
            // behind the gateway, which the flow does not show. So it holds until the next change.
            let holds = sender.via != Via::Nat || into.epoch == self.epochs.kept();
            if since.holds(into.epoch, tracked)
                && holds
                && read.is_cacheable()
                && self.ends.senders.get(value.sender) == Some(sender)
            {
                flows.moved(id, false, seen);
                match into.verdict {
                    Verdict::Refuse(reason) => return Err(Cause::Rule(reason)),
                    Verdict::Take => return Ok(()),
                    Verdict::Go(_) => {}
                }
            }
            known = FlowLookup { id: Some(id), tracked, first_way: !local_first };
        }
        self.judge_received(now, sender, port, read, bytes, key, seen, known)
    }

    /// Evaluates a packet that arrives for a guest by the rules, and stores the verdict with its
    /// flow. This is the slow path, for packets without a valid verdict.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)] // one packet and its state
    fn judge_received(
        &mut self,
        now: Instant,
        sender: &Sender,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        key: &Key,
        seen: PacketKind,
        mut known: FlowLookup,
    ) -> Result<(), Cause> {
        let number = self.ports[port.0 as usize].instance;
        self.ports[port.0 as usize].counts.judged += read.layout.packets();
        // An ICMP error belongs to the connection that it quotes, and to no other one.
        // T7: ICMP errors
        let is_error = is_error(&read.packet, bytes);
        if is_error {
            known = FlowLookup::NOTHING;
        }
        if known.id.is_none() {
            known.tracked = self.is_related(now, port, read, bytes, Direction::Ingress);
        }
        let related = known.id.is_none() && known.tracked;
        let from = self.origin_of(sender, port, read.packet.source);
        let is_foreign = from.is_ok_and(|from| from.is_foreign);
        if is_foreign {
            known = FlowLookup::NOTHING;
        }
        let packet = read.for_rules(bytes);
        let asked = from.and_then(|from| self.admit(from, port, &packet, known.flow()));
        if let (Some(id), Ok(_) | Err(Cause::Rule(_))) = (known.id, &asked) {
            self.instances[number as usize].flows.moved(id, false, seen);
        }
        let tracking = match asked {
            Ok(tracking) => tracking,
            Err(cause) => {
                if let (Some(id), Cause::Rule(reason)) = (known.id, cause) {
                    self.keep_into(number, id, sender, Verdict::Refuse(reason));
                }
                return Err(cause);
            }
        };
        if related || is_error || is_foreign {
            return Ok(());
        }
        let id = self.admitted_flow(now, number, (read, key, seen), known, tracking, false)?;
        if let Some(id) = id {
            self.keep_into(number, id, sender, Verdict::Take);
        }
        Ok(())
    }

    /// Stores the verdict of the rules with the flow. The caller does not store the verdict that a
    /// host may not send for the sender, because packets from the right host belong to the same
    /// flow.
    fn keep_into(&mut self, instance: u32, id: TrackId, sender: &Sender, verdict: Verdict) {
        let (epoch, number) = (self.epochs.kept(), self.ends.senders.number_of(sender));
        if let Some((flow, ..)) = self.instances[instance as usize].flows.value(id) {
            flow.set_into(Side { epoch, verdict });
            flow.sender = if number == NOBODY { NOBODY } else { number };
        }
    }

    /// Evaluates a packet that arrives for a guest by the rules, without any change of state.
    pub(in crate::vpc) fn ask_received(
        &self,
        sender: &Sender,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        flow: compile::Flow,
    ) -> Result<Option<Tracking>, Cause> {
        let from = self.origin_of(sender, port, read.packet.source)?;
        let flow = if from.is_foreign { compile::Flow::New } else { flow };
        self.admit(from, port, &read.for_rules(bytes), flow)
    }

    fn admit(
        &self,
        from: Origin,
        port: PortId,
        packet: &srd_vpc::packet::Packet,
        flow: compile::Flow,
    ) -> Result<Option<Tracking>, Cause> {
        let to = self.ports[port.0 as usize].eni;
        self.rules.receive(to, packet, from.vpc, from.crosses, flow).map_err(Cause::Rule)
    }

    /// Returns where a packet for an interface comes from, after a check that its host may send it
    /// (V6).
    fn origin_of(&self, sender: &Sender, port: PortId, source: IpAddr) -> Result<Origin, Cause> {
        let port = &self.ports[port.0 as usize];
        let to = port.eni;
        let (vpc, crosses) = match sender.eni {
            None => return Ok(Origin { vpc: None, crosses: true, is_foreign: false }),
            Some(from) if sender.via == Via::Nat => {
                self.is_sent_by_nat(sender, to, from, source)?
            }
            Some(from) => {
                let found = sent_from(&self.rules, &self.host, sender, (from, to), source)?;
                // Packets that return through a NAT gateway come from its subnet, which differs
                // from the receiver's.
                let crosses = sender.via == Via::NatBack || self.rules.crosses(found.place, to);
                (found.vpc, crosses)
            }
        };
        let is_foreign = vpc != port.vpc && self.rules.lead_elsewhere(to, source, vpc);
        Ok(Origin { vpc: Some(vpc), crosses, is_foreign })
    }
}

/// Origin of a packet that arrives for an interface.
#[derive(Clone, Copy)]
struct Origin {
    /// Cloud of the interface that has sent the packet; `None` if it comes from outside.
    vpc: Option<VpcId>,
    /// Whether the packet enters the receiver's subnet from outside.
    crosses: bool,
    /// Whether packets of the receiver to the packet's source go to another cloud. Such a packet
    /// belongs to none of the receiver's connections, and opens none. // V1
    is_foreign: bool,
}

//! The state of the card as bytes, for the process that takes over: connections, levels of the
//! limits, counters, windows of flow logs, first fragments, and packets that wait for a limit.
//!
//! Verdicts are not included. The next card has its own rules, and evaluates each flow once more,
//! as after a change of rules (V4, V14). A packet from the internet that waits for a limit is then
//! dropped and counted. Traces end.

use alloc::vec::Vec;

use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::id::EniId;

use super::{Card, Instance, Port};
use crate::limits::{Ceiling, FlowMeter, Limits, Offer};
use crate::meta::key::Direction;
use crate::observe::Aggregator;
use crate::profile::Profile;
use crate::rewrite::too_big;
use crate::store::{Reader, Stored, StoredError, write_count};
use crate::track::Table;
use crate::vpc::drops::Drops;
use crate::vpc::frames::parcel::{Going, Parcel};
use crate::vpc::frames::read::Read;
use crate::vpc::port::{PortCounts, PortId};
use crate::vpc::records::trace::Followed;
use crate::vpc::tables::firsts::Firsts;
use crate::vpc::tables::flow::{Flow, Sender};
use crate::vpc::tables::nat::Nat;
use crate::vpc::tables::returns::Returns;
use crate::vpc::tables::stored::{Kind, body, head};

/// State of an interface, without the part that is stored with its instance.
struct PortState {
    counts: PortCounts,
    drops: Drops,
    logs: Vec<Aggregator>,
    answers: too_big::Limit,
    firsts: Firsts,
    returns: Returns,
}

impl PortState {
    fn export(port: &Port, out: &mut Vec<u8>) {
        port.counts.write(out);
        port.drops.write(out);
        port.answers.write(out);
        port.firsts.write(out);
        port.returns.write(out);
        write_count(port.logs.len(), out);
        port.logs.iter().for_each(|log| log.export(out));
    }

    fn import(from: &mut Reader<'_>, secret: Secret) -> Result<Self, StoredError> {
        let (counts, drops) = Stored::read(from)?;
        let answers = Stored::read(from)?;
        let (firsts, returns) = Stored::read(from)?;
        let count = from.count()?;
        let logs =
            (0..count).map(|_| Aggregator::import(from, secret)).collect::<Result<_, _>>()?;
        Ok(Self { counts, drops, logs, answers, firsts, returns })
    }
}

impl Instance {
    /// Creates an instance with the limits of this instance, but without flows and waiting packets.
    fn without_flows(&self) -> Self {
        let (limits, flows) = (self.limits.unused(), self.flows.unused());
        let without_entry = FlowMeter::new(Instant::ZERO);
        Self { limits, flows, without_entry, ceilings: self.ceilings, timer: None }
    }

    /// Creates an instance into which the state of an instance is read that this card does not
    /// have; the state is then discarded.
    fn of_nothing(enis: u16) -> Self {
        Self {
            limits: Limits::new(&Profile::of_nothing(), enis, Instant::ZERO),
            // The table is empty, and stays empty.
            flows: Table::new(0, &[], Secret::known(0), Instant::ZERO),
            without_entry: FlowMeter::new(Instant::ZERO),
            ceilings: [Ceiling::new(0, Duration::ZERO); 3],
            timer: None,
        }
    }
}

/// An instance that this card has, with the state that it had on the previous card.
struct ImportedInstance {
    number: u32,
    ports: Vec<PortId>,
    states: Vec<PortState>,
    instance: Instance,
}

/// Epoch of packets of the previous card: it is before all changes of this card's rules, so this
/// card evaluates the packets again.
const NO_EPOCH: u64 = 0;

impl Card {
    /// Returns all state that another card needs in order to continue with [`Card::import`].
    /// Windows of flow logs that are over are not included: the caller has to take them before.
    pub fn export(&self) -> Vec<u8> {
        let mut out = head(Kind::Card);
        self.drops.write(&mut out);
        self.logs.lost.write(&mut out);
        self.nat.export().write(&mut out);
        let mut of: Vec<Vec<&Port>> = Vec::new();
        of.resize_with(self.instances.len(), Vec::new);
        for port in self.ports.iter().filter(|port| !port.is_gone) {
            of[port.instance as usize].push(port);
        }
        of.iter_mut().for_each(|ports| ports.sort_by_key(|port| port.index));
        write_count(of.iter().filter(|ports| !ports.is_empty()).count(), &mut out);
        for (instance, ports) in self.instances.iter().zip(of) {
            if ports.is_empty() {
                continue;
            }
            ports.iter().map(|port| port.eni).collect::<Vec<EniId>>().write(&mut out);
            ports.iter().for_each(|port| PortState::export(port, &mut out));
            instance.flows.export(&mut out, |flow, out| flow.meter.write(out));
            instance.without_entry.write(&mut out);
            instance.limits.export(&mut out, |parcel, out| self.export_parcel(parcel, out));
        }
        out
    }

    fn export_parcel(&self, parcel: &Parcel, out: &mut Vec<u8>) {
        let Parcel { frame, port, epoch: _, going, followed: _ } = parcel;
        self.ports[port.0 as usize].index.write(out);
        let sender = match going {
            Going::Out(_) => None,
            Going::In(sender) => Some(sender.clone()),
        };
        sender.write(out);
        write_count(frame.len(), out);
        out.extend_from_slice(frame);
    }

    /// Continues with the state of another card. An instance that both cards have, with the same
    /// interfaces in the same order, gets its earlier state, with the limits of this card. Other
    /// instances of this card begin without earlier state.
    ///
    /// Returns the number of instances that continue.
    ///
    /// # Errors
    /// [`StoredError`] if the bytes are not valid state of a card. The card is unchanged then.
    pub fn import(&mut self, bytes: &[u8]) -> Result<usize, StoredError> {
        let mut from = Reader(body(Kind::Card, bytes)?); // V14
        let (drops, lost) = (Drops::read(&mut from)?, from.counter()?);
        let nat = Nat::import(&Vec::<u8>::read(&mut from)?)?.like(&self.nat);
        let mut known = Vec::new();
        for _ in 0..from.count()? {
            known.push(self.read_instance(&mut from)?);
        }
        from.end()?;
        let mut count = 0;
        (self.drops, self.logs.lost, self.nat) = (drops, lost, nat);
        for ImportedInstance { number, ports, states, mut instance } in known.into_iter().flatten()
        {
            for (id, state) in ports.into_iter().zip(states) {
                let port = &mut self.ports[id.0 as usize];
                let PortState { counts, drops, logs, answers, firsts, returns } = state;
                (port.counts, port.drops, port.logs, port.answers) = (counts, drops, logs, answers);
                (port.firsts, port.returns) = (firsts, returns);
            }
            let place = &mut self.instances[number as usize];
            instance.timer = place.timer;
            *place = instance;
            self.arm(number);
            count += 1;
        }
        self.forget_verdicts();
        self.arm_logs();
        Ok(count)
    }

    /// Reads the state of an instance; returns `None` if this card does not have the instance.
    fn read_instance(
        &mut self,
        from: &mut Reader<'_>,
    ) -> Result<Option<ImportedInstance>, StoredError> {
        let enis = Vec::<EniId>::read(from)?;
        let here = self.instance_of(&enis);
        let count = u16::try_from(enis.len()).unwrap_or(u16::MAX);
        let mut states = Vec::new();
        for _ in &enis {
            let secret = self.secret_of_log();
            states.push(PortState::import(from, secret)?);
        }
        let mut instance = match &here {
            Some((number, _)) => self.instances[*number as usize].without_flows(),
            None => Instance::of_nothing(count),
        };
        let flow = |from: &mut Reader<'_>| {
            let mut flow = Flow::new(Instant::ZERO);
            flow.meter = Stored::read(from)?;
            Ok(flow)
        };
        instance.flows.import(from, count, flow)?;
        instance.without_entry = Stored::read(from)?;
        let ports = here.as_ref().map_or(&[][..], |(_, ports)| ports);
        instance.limits.import(from, |from, offer| read_parcel(from, offer, ports))?;
        Ok(here.map(|(number, ports)| ImportedInstance { number, ports, states, instance }))
    }

    /// Returns the instance with exactly these interfaces in this order, and the interfaces'
    /// slots.
    fn instance_of(&self, enis: &[EniId]) -> Option<(u32, Vec<PortId>)> {
        let ports: Option<Vec<PortId>> = enis.iter().map(|eni| self.port_of(*eni)).collect();
        let ports = ports?;
        let number = self.port(*ports.first()?)?.instance;
        let are_its = (0..).zip(&ports).all(|(index, id)| {
            self.port(*id).is_some_and(|port| port.instance == number && port.index == index)
        });
        let own = self.ports.iter().filter(|port| port.instance == number && !port.is_gone);
        (are_its && own.count() == ports.len()).then_some((number, ports))
    }
}

/// Reads a packet that waited for a limit in the previous card. It has been evaluated by the rules
/// of that card only, so its epoch is [`NO_EPOCH`]: this card evaluates it again.
fn read_parcel(
    from: &mut Reader<'_>,
    offer: Option<&Offer>,
    ports: &[PortId],
) -> Result<Parcel, StoredError> {
    let index = u16::read(from)?;
    let sender = Option::<Sender>::read(from)?;
    let count = from.count()?;
    let frame = from.bytes(count)?.to_vec();
    let way = if sender.is_some() { Direction::Ingress } else { Direction::Egress };
    let fits = offer.is_none_or(|offer| offer.eni == index && offer.direction == way);
    if !fits || Read::frame(&frame).is_none() {
        return Err(StoredError::Wrong("a packet that waits"));
    }
    // If this card does not have the instance, the packet is dropped, whatever interface it names.
    let port = ports.get(usize::from(index)).or(ports.first()).copied().unwrap_or(PortId(0));
    let going = sender.map_or(Going::Out(0), Going::In);
    Ok(Parcel { frame, port, epoch: NO_EPOCH, going, followed: Followed::NO })
}

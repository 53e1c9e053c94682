//! The oracle of the soak tests of clouds. The reference evaluation ([`judge_flow`]) reads all
//! objects of the clouds (routes, security groups, network ACLs, gateways), and gives a verdict for
//! each packet. The oracle checks that the cards applied the verdict.
//!
//! The oracle also checks which connections the cards remember at the end: those that the rules
//! demand, no others, and each for its idle time.
//!
//! The oracle's data are the packets that guests sent and received, the rules in force at each
//! time, and the connections that a card may remember. A card may remember a connection if it let a
//! packet of the connection pass, and if the security groups track the connection.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use srd_vpc::id::{EniId, NatGatewayId};
use srd_vpc::judge::{Direction, Judgement, Origin, Reason, Step, Translator, Verdict, judge_flow};
use srd_vpc::object::World;
use srd_vpc::packet::{Inner, Packet};

use super::LAST_PORT;

/// A connection at an interface: interface, address of the peer, protocol, and ports.
pub(super) type Connection = (EniId, IpAddr, u8, (u16, u16));

/// Origin of a packet: a guest or the internet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    Guest(EniId),
    /// A host in the internet, which sends to an elastic address.
    Internet,
    /// A host in the internet, which replies through a NAT gateway to this interface.
    Nat(EniId),
}

/// A packet that was sent, and what has happened to it.
struct Probe {
    from: From,
    packet: Packet,
    /// Index in `Judge::worlds` of the rules in force when the packet was sent.
    epoch: usize,
    arrived: u32,
    left: u32,
    /// Verdicts that were valid before the sender's card forgot its connections. The card may have
    /// applied them to this packet.
    before: Vec<Verdict>,
    /// Required verdict; `None` for packets that were sent during the faults.
    must: Option<Verdict>,
}

/// Numbers of packets by what happened to them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PacketCounts {
    pub(super) arrived: u64,
    pub(super) left: u64,
    /// Packets sent after all faults: `through` were delivered as required, `refused` were dropped
    /// as required.
    pub(super) through: u64,
    pub(super) refused: u64,
    /// Packets that passed because their connection was tracked.
    pub(super) remembered: u64,
    /// Packets between hosts: `by_srd` came over SRD, `plainly` came without it.
    pub(super) by_srd: u64,
    pub(super) plainly: u64,
}

pub(super) struct Judge {
    worlds: Vec<World>,
    probes: Vec<Probe>,
    tracked: BTreeSet<Connection>,
    /// Connections that cards must remember at the end of the run, because their first packet was
    /// sent after the faults and was tracked.
    required: BTreeSet<Connection>,
    /// Number of packets of each connection that arrived at an interface or left the cloud after
    /// the faults, by the port of the end that began the connection.
    exchanged: BTreeMap<u16, u32>,
    /// Interfaces whose card has restarted and forgotten connections.
    forgetful: BTreeSet<EniId>,
    duplicates: bool,
    /// Description of the first violation.
    pub(super) wrong: Option<String>,
    pub(super) ends: PacketCounts,
}

fn connection(eni: EniId, direction: Direction, packet: &Packet) -> Connection {
    let ports = match packet.inner {
        Inner::Tcp(from, to) | Inner::Udp(from, to) => (from, to),
        _ => (0, 0),
    };
    match direction {
        Direction::Egress => (eni, packet.destination, packet.protocol(), ports),
        Direction::Ingress => (eni, packet.source, packet.protocol(), (ports.1, ports.0)),
    }
}

/// Port of the end that began the connection of a packet: source ports are higher than all other
/// ports. Zero for a protocol without ports.
fn began_at(packet: &Packet) -> u16 {
    match packet.inner {
        Inner::Tcp(from, to) | Inner::Udp(from, to) => from.max(to),
        _ => 0,
    }
}

fn tracked_in(judgement: &Judgement, wanted: Direction) -> bool {
    judgement.steps.iter().any(|step| {
        matches!(step, Step::Groups { direction, tracking: Some(tracking), .. }
            if *direction == wanted && tracking.is_tracked())
    })
}

/// Whether the evaluation reached the security groups in a direction.
fn judges(judgement: &Judgement, wanted: Direction) -> bool {
    let step = |step: &Step| matches!(step, Step::Groups { direction, .. } if *direction == wanted);
    judgement.steps.iter().any(step)
}

/// Whether a packet passes a NAT gateway on its path to an interface, or may pass it as a reply.
/// The gateway changes the addresses of the packet, and the reference evaluation does not contain
/// the gateway's connections.
fn by_nat(judgement: &Judgement) -> bool {
    let step = |step: &Step| matches!(step, Step::Source4 { by: Translator::NatGateway(_), .. });
    judgement.verdict == Verdict::Dropped(Reason::OutwardsOnly)
        || matches!(judgement.verdict, Verdict::Delivered(_)) && judgement.steps.iter().any(step)
}

impl Judge {
    pub(super) fn new(world: World, duplicates: bool) -> Self {
        Self {
            worlds: vec![world],
            probes: Vec::new(),
            tracked: BTreeSet::new(),
            required: BTreeSet::new(),
            exchanged: BTreeMap::new(),
            forgetful: BTreeSet::new(),
            duplicates,
            wrong: None,
            ends: PacketCounts::default(),
        }
    }

    /// Returns the objects and rules of the clouds that are in force now.
    pub(super) fn world(&self) -> &World {
        &self.worlds[self.epoch()]
    }

    fn epoch(&self) -> usize {
        self.worlds.len() - 1
    }

    /// Puts new rules into force.
    pub(super) fn change(&mut self, world: World) {
        self.worlds.push(world);
        // A packet that still waits in a card is evaluated by the new rules.
        for number in 0..self.probes.len() {
            let probe = &self.probes[number];
            if probe.arrived + probe.left == 0 {
                self.remember_sent(number, self.epoch());
            }
        }
    }

    /// Records that a card has forgotten the connections of an interface. A packet that the card
    /// let out because of such a connection may still be in the network.
    pub(super) fn forget(&mut self, eni: EniId) {
        for number in 0..self.probes.len() {
            if self.probes[number].from == From::Guest(eni) {
                let before = self.verdicts(&self.probes[number], eni).collect::<Vec<_>>();
                self.probes[number].before.extend(before);
            }
        }
        self.tracked.retain(|(of, ..)| *of != eni);
        self.forgetful.insert(eni);
    }

    fn judge(&self, epoch: usize, origin: Origin, packet: &Packet) -> Judgement {
        let remembers = |eni: EniId, direction: Direction, packet: &Packet| {
            self.tracked.contains(&connection(eni, direction, packet))
        };
        judge_flow(&self.worlds[epoch], origin, packet, &remembers)
    }

    fn remember_sent(&mut self, number: usize, epoch: usize) {
        let Probe { from: From::Guest(eni), packet, .. } = self.probes[number] else { return };
        let judgement = self.judge(epoch, Origin::Eni(eni), &packet);
        if tracked_in(&judgement, Direction::Egress) {
            self.tracked.insert(connection(eni, Direction::Egress, &packet));
        }
    }

    /// Records a packet that is sent, and returns its number. If `last`, all faults have ended, and
    /// the packet must be delivered or dropped as the reference evaluation requires.
    pub(super) fn send(&mut self, from: From, packet: Packet, last: bool) -> u32 {
        let epoch = self.epoch();
        let origin = match from {
            From::Guest(eni) => Some(Origin::Eni(eni)),
            From::Internet => Some(Origin::Internet),
            // The evaluation does not include replies through a NAT gateway: no verdict is
            // required.
            From::Nat(_) => None,
        };
        let must = origin.filter(|_| last);
        let must = must.map(|origin| self.judge(epoch, origin, &packet));
        let must = must.filter(|judgement| !by_nat(judgement));
        if let Some(judgement) = &must {
            self.require(from, &packet, judgement);
        }
        let must = must.map(|judgement| judgement.verdict);
        let number = self.probes.len();
        self.probes.push(Probe {
            from,
            packet,
            epoch,
            arrived: 0,
            left: 0,
            before: Vec::new(),
            must,
        });
        self.remember_sent(number, epoch);
        u32::try_from(number).expect("few packets")
    }

    /// Records the connections that the cards of both ends of a request must remember. A reply does
    /// not make an untracked flow a tracked one.
    fn require(&mut self, from: From, packet: &Packet, judgement: &Judgement) {
        let Verdict::Delivered(to) = judgement.verdict else { return };
        if !matches!(packet.inner, Inner::Tcp(port, _) | Inner::Udp(port, _) if port >= LAST_PORT) {
            return;
        }
        if let From::Guest(eni) = from
            && tracked_in(judgement, Direction::Egress)
        {
            self.required.insert(connection(eni, Direction::Egress, packet));
        }
        if tracked_in(judgement, Direction::Ingress) {
            self.required.insert(connection(to, Direction::Ingress, packet));
        }
    }

    /// Checks the TCP and UDP connections that the card of an interface tracks when no packet is in
    /// the network: each of them was tracked by the rules, and no required one is missing.
    pub(super) fn check_tracked(
        &self,
        eni: EniId,
        tracked: &BTreeSet<Connection>,
    ) -> Result<(), String> {
        if let Some(more) = tracked.difference(&self.tracked).next() {
            return Err(format!("{more:?} is tracked, though no rule demands it"));
        }
        match self.required_of(eni, |_| true).difference(tracked).next() {
            Some(missing) => Err(format!("{missing:?} is not tracked, though the rules demand it")),
            None => Ok(()),
        }
    }

    /// Returns those connections of an interface that its card must track and that `chosen` selects
    /// by protocol and by whether there were two requests with their replies.
    pub(super) fn required_of(
        &self,
        eni: EniId,
        chosen: impl Fn((u8, bool)) -> bool,
    ) -> BTreeSet<Connection> {
        let own = |(of, _, protocol, ports): &&Connection| {
            let packets = self.exchanged.get(&ports.0.max(ports.1));
            *of == eni && chosen((*protocol, packets.is_some_and(|packets| *packets == 4)))
        };
        self.required.iter().filter(own).copied().collect()
    }

    /// Whether the sender's side lets a packet go to an interface (or out of the cloud, if `to` is
    /// `None`) under any rules that were in force since the packet was sent.
    fn may_leave(&self, probe: &Probe, to: Option<EniId>) -> bool {
        let From::Guest(eni) = probe.from else { return true };
        let mut verdicts = probe.before.iter().copied().chain(self.verdicts(probe, eni));
        verdicts.any(|verdict| match (verdict, to) {
            (Verdict::Delivered(at), Some(to)) => at == to,
            (
                Verdict::Dropped(Reason::GroupsIn | Reason::AclIn | Reason::OutwardsOnly),
                Some(_),
            )
            | (Verdict::Left(_), None) => true,
            _ => false,
        })
    }

    /// Returns the verdicts on a packet of an interface: one for each state of the rules since the
    /// packet was sent.
    fn verdicts<'a>(&'a self, probe: &'a Probe, eni: EniId) -> impl Iterator<Item = Verdict> + 'a {
        let epochs = probe.epoch..=self.epoch();
        epochs.map(move |epoch| self.judge(epoch, Origin::Eni(eni), &probe.packet).verdict)
    }

    /// Checks the probe `number`, which has arrived at the interface `eni`. `as_it_is` is the
    /// packet with the addresses and ports that it had there.
    pub(super) fn arrived(&mut self, number: u32, eni: EniId, as_it_is: &Packet) {
        let Some(probe) = self.probes.get_mut(number as usize) else {
            return self.is_wrong(number, "was never sent");
        };
        probe.arrived += 1;
        self.ends.arrived += 1;
        if probe.arrived > 1 && !self.duplicates {
            return self.is_wrong(number, "arrived twice");
        }
        let probe = &self.probes[number as usize];
        let packet = probe.packet;
        let required = probe.must.is_some();
        *self.exchanged.entry(began_at(&packet)).or_default() += u32::from(required);
        let probe = &self.probes[number as usize];
        if !self.may_leave(probe, Some(eni)) {
            return self.is_wrong(number, &format!("arrived at {eni}, though its sender may not"));
        }
        // Only the present rules apply at the receiver. // V4
        let ingress = connection(eni, Direction::Ingress, as_it_is);
        let judgement = match probe.from {
            From::Guest(from) => {
                let remembers = |at: EniId, direction: Direction, packet: &Packet| {
                    direction == Direction::Egress
                        || self.tracked.contains(&connection(at, direction, packet))
                };
                judge_flow(self.world(), Origin::Eni(from), &packet, &remembers)
            }
            From::Internet => self.judge(self.epoch(), Origin::Internet, &packet),
            From::Nat(of) => {
                // The groups of the interface may admit the packet without a remembered connection.
                let asked = self.tracked.contains(&ingress) || self.forgetful.contains(&eni);
                if of != eni || !asked {
                    self.is_wrong(number, &format!("came by NAT to {eni}, which asked nobody"));
                }
                self.tracked.insert(ingress);
                return;
            }
        };
        if let Verdict::Dropped(reason @ (Reason::GroupsIn | Reason::AclIn)) = judgement.verdict {
            let what = format!("arrived at {eni}, which does not take it: {reason:?}");
            return self.is_wrong(number, &what);
        }
        self.ends.remembered += u64::from(self.tracked.contains(&ingress));
        // The packet may have waited for its host until a change of the rules forbade its sender to
        // send it. The evaluation then ends at the sender, and it is unknown whether the receiver's
        // groups track the packet. So the connection counts as tracked.
        if tracked_in(&judgement, Direction::Ingress) || !judges(&judgement, Direction::Ingress) {
            self.tracked.insert(ingress);
        }
        let changes = by_nat(&judgement);
        if matches!(self.probes[number as usize].from, From::Guest(_))
            && !changes
            && *as_it_is != packet
        {
            self.is_wrong(number, "arrived changed");
        }
    }

    /// Checks the transport of a packet that a host received from an interface of another host. The
    /// packet must use SRD if both interfaces have ENA Express for its protocol, and must not use
    /// SRD otherwise. Changes of the rules have no effect on this.
    pub(super) fn came(
        &mut self,
        number: u32,
        (from, to): (EniId, EniId),
        packet: &Packet,
        by_srd: bool,
    ) {
        let of = |eni: EniId| {
            self.world().enis[&eni].attachment.as_ref().map(|at| at.express).unwrap_or_default()
        };
        let wanted = [of(from), of(to)].iter().all(|express| match packet.inner {
            Inner::Tcp(..) => express.enabled,
            Inner::Udp(..) => express.enabled && express.udp,
            _ => false,
        });
        if by_srd != wanted {
            let how = if by_srd { "by SRD" } else { "plainly" };
            self.is_wrong(number, &format!("came {how} from {from} to {to}"));
        }
        *(if by_srd { &mut self.ends.by_srd } else { &mut self.ends.plainly }) += 1;
    }

    /// Checks a packet that has arrived at the edge, on its way out of the cloud.
    pub(super) fn left(&mut self, number: u32, nat: Option<NatGatewayId>) {
        let Some(probe) = self.probes.get_mut(number as usize) else {
            return self.is_wrong(number, "was never sent");
        };
        probe.left += 1;
        self.ends.left += 1;
        if probe.left > 1 && !self.duplicates {
            return self.is_wrong(number, "left twice");
        }
        let probe = &self.probes[number as usize];
        let (began_at, required) = (began_at(&probe.packet), probe.must.is_some());
        *self.exchanged.entry(began_at).or_default() += u32::from(required);
        if !self.may_leave(&self.probes[number as usize], None) {
            self.is_wrong(number, &format!("left, though it may not ({nat:?})"));
        }
    }

    fn is_wrong(&mut self, number: u32, what: &str) {
        if self.wrong.is_none() {
            let probe = self.probes.get(number as usize);
            let of = probe.map(|probe| format!("{:?} {:?}", probe.from, probe.packet));
            self.wrong = Some(format!("packet {number} {what}: {}", of.unwrap_or_default()));
        }
    }

    /// Checks that all packets sent after the faults were delivered or dropped as required.
    pub(super) fn check_last(&mut self) -> Result<(), String> {
        for (number, probe) in self.probes.iter().enumerate() {
            let Some(must) = probe.must else { continue };
            let is = (probe.arrived > 0, probe.left > 0);
            let wanted = match must {
                Verdict::Delivered(_) => (true, false),
                Verdict::Left(_) => (false, true),
                Verdict::Served(_) | Verdict::Dropped(_) => (false, false),
            };
            if is != wanted {
                let Probe { from, packet, .. } = probe;
                return Err(format!(
                    "packet {number} of {from:?} must be {must:?}, arrived {}, left {}: {packet:?}",
                    probe.arrived, probe.left
                ));
            }
            let ends = &mut self.ends;
            *(if is == (false, false) { &mut ends.refused } else { &mut ends.through }) += 1;
        }
        Ok(())
    }
}

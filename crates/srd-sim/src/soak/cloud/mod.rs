//! Soak tests of virtual private clouds: each host of the simulated network runs a card with
//! guests. Guests send to each other and to the internet while rules change, hosts restart and
//! cards hand over to successors.
//!
//! The seed of the test determines a [`Plan`] with the network and its faults. The clouds, the
//! packets of guests and the changes are drawn from a second seed.
//!
//! The oracle is [`judge`]. For each packet it evaluates all objects of the clouds (routes,
//! security groups, network ACLs, gateways). A packet must not arrive if the oracle's verdict
//! forbids it; at the receiver, the rules at the time of arrival apply. After the faults each
//! packet of a new connection, and each reply, must be delivered or dropped as the verdict
//! requires. At the end each card must remember the connections that the rules track, for their
//! idle times. Frames between hosts are packets of the transport: a frame must use SRD if both
//! interfaces have ENA Express for its protocol, and must not use SRD otherwise. Each card must
//! account for all packets that it received. In half of the worlds the tables query the directory
//! for missing entries and follow deltas; in the other half they are compiled completely.
//!
//! | file | contents |
//! |---|---|
//! | `make` | clouds and their changes |
//! | `frames` | packets |
//! | `node` | hosts |
//! | `judge` | the oracle |

mod frames;
mod judge;
mod make;
mod node;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use srd_card::profile::{InstanceType, Profile};
use srd_proto::{Config, Duration, Instant};
use srd_vpc::compile::Directory;
use srd_vpc::id::EniId;
use srd_vpc::object::World as Cloud;
use srd_vpc::packet::{Inner, Packet};

use self::judge::{From, Judge};
use self::make::{CLOUDS, INTERFACES, Knobs, Places};
use self::node::{CloudNode, Common, Send, Shared};
use super::dice::Dice;
use super::layers;
use super::passed::Passed;
use super::plan::Plan;
use crate::engine::fault::Fault;
use crate::engine::hash::mix;
use crate::engine::node::HostId;
use crate::engine::world::{PortRules, QueueSize, US, World, WorldConfig};

/// Number of packets that guests send during the faults, and after the faults.
const SENDS: [u32; 2] = [150, 60];
/// Number of connections to which the packets during the faults belong.
const CONNECTIONS: u32 = 40;
/// Source port of the first connection, and of the first connection after the faults.
const FIRST_PORT: u16 = 40_000;
const LAST_PORT: u16 = 41_000;
/// Time from the end of the faults until the packets whose delivery is checked strictly. Hosts that
/// lost contact retry every second.
const CALM: Duration = Duration::from_millis(1500);
/// Shortest keepalive interval. With a shorter interval, idle hosts would exchange many keepalives
/// during a run.
const KEEPALIVE_MIN: Duration = Duration::from_millis(50);
/// Number of checks in each of the two phases: during and after the faults.
const STEPS: u64 = 15;
/// Queue limit of each port in bytes: enough for all packets of the guests.
const QUEUE_BYTES: u64 = 1_000_000;
/// Address of the simulated host in the internet.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const ELASTIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// Runs the plan of a seed, in which the hosts are cards of clouds.
///
/// # Errors
/// A description of the first violation.
pub(super) fn run(plan: &Plan) -> Result<Passed, String> {
    let common = Rc::new(common(plan));
    let config = WorldConfig {
        seed: plan.seed,
        rules: rules(plan),
        faults: plan.faults.clone(),
        convergence_us: None,
        // Unencrypted packets are protected only by the checksum of their datagram.
        corruption_undetected: plan.corruption_undetected,
        ..WorldConfig::default()
    };
    let node = |host| CloudNode::new(HostId(host), Rc::clone(&common));
    let made = World::new(plan.topology.clone(), plan.workload(), config, node);
    let mut world = made.map_err(|e| format!("the plan makes no world: {e}"))?;
    let end_ps = common.sends.iter().flatten().map(|send| send.at.as_nanos() * 1000).max();
    let end_ps = end_ps.unwrap_or_default() + 30_000 * US;
    go_on(&mut world, &common, common.healed.as_nanos() * 1000)?;
    let lost = world.counters().dropped_total();
    go_on(&mut world, &common, end_ps)?;
    match world.counters().dropped_total() - lost {
        0 => {}
        n => return Err(format!("the network lost {n} packets after the faults")),
    }
    world.nodes().iter().try_for_each(CloudNode::check)?;
    let mut shared = common.shared.borrow_mut();
    shared.judge.check_last().map_err(|wrong| {
        let drops: Vec<_> = world.nodes().iter().map(CloudNode::drops).collect();
        format!("{wrong}; {}", drops.join("; "))
    })?;
    let ends = shared.judge.ends;
    drop(shared);
    let now = Instant::from_nanos(world.now_ps() / 1000);
    (0..common.edge).try_for_each(|host| world.node_mut(host).check_tracked(now))?;
    let counters = world.counters();
    let sums = [
        counters.injected,
        counters.delivered,
        counters.dropped_total(),
        ends.arrived,
        ends.left,
        ends.through,
        ends.refused,
        ends.remembered,
        ends.by_srd,
        ends.plainly,
    ];
    Ok(Passed {
        digest: sums.iter().fold(plan.seed, |digest, n| mix(digest ^ n)),
        packets: counters.injected,
        delivered: ends.arrived + ends.left,
        by_srd: ends.by_srd,
        ..Passed::default()
    })
}

/// Runs until `until_ps`, with checks at several times in between.
fn go_on(world: &mut World<CloudNode>, common: &Common, until_ps: u64) -> Result<(), String> {
    let step_ps = until_ps.saturating_sub(world.now_ps()) / STEPS + 1;
    while world.now_ps() < until_ps {
        world.run_until((world.now_ps() + step_ps).min(until_ps));
        let at = |what| format!("{what} (at {:.3} us)", world.now_ps() as f64 / US as f64);
        if let Some(wrong) = &common.shared.borrow().judge.wrong {
            return Err(at(wrong.clone()));
        }
        let lost = |e| at(format!("packets are lost: {e}"));
        world.check_conservation().map_err(lost)?;
        if world.counters().timer_livelocks > 0 {
            return Err(at(format!("{} timer livelocks", world.counters().timer_livelocks)));
        }
    }
    Ok(())
}

/// Returns the rules of the ports. No layer retransmits a packet that a queue drops, so queues are
/// long. Then only faults lose packets, and faults end.
fn rules(plan: &Plan) -> PortRules {
    PortRules { queue: QueueSize::Bytes(QUEUE_BYTES), trim: false, ..plan.rules }
}

/// Returns the plan's configuration of endpoints, with a keepalive interval of at least
/// [`KEEPALIVE_MIN`].
fn endpoint(plan: &Plan) -> Config {
    let config = layers::endpoint(plan);
    Config { keepalive: config.keepalive.max(KEEPALIVE_MIN), ..config }
}

fn common(plan: &Plan) -> Common {
    let dice = &mut Dice::new(mix(plan.seed ^ 0xc10d_0000));
    let hosts = plan.topology.hosts;
    let edge = hosts - 1;
    let interfaces = u32::try_from(CLOUDS.len()).expect("three") * INTERFACES;
    let others = &mut Dice::new(mix(plan.seed ^ 0xe59_0000));
    let places = Places {
        hosts: (0..interfaces).map(|_| dice.between(0, edge - 1)).collect(),
        express: (0..interfaces).map(|_| [others.percent(60), others.percent(60)]).collect(),
    };
    let mut knobs = Knobs::new(dice);
    let first = knobs.world(&places);
    let heal = Duration::from_nanos(plan.heal_ps() / 1000);
    let within =
        |dice: &mut Dice| Instant::ZERO + heal.over(1000).times(dice.between(0, 1000).into());
    let mut times: Vec<Instant> = (0..dice.between(0, 12)).map(|_| within(dice)).collect();
    times.sort();
    let changes = times.into_iter().map(|at| {
        knobs.change(dice);
        (at, knobs.world(&places))
    });
    let changes: Vec<(Instant, Cloud)> = changes.collect();
    let mut handovers = vec![Vec::new(); hosts as usize];
    for _ in 0..dice.pick(&[0, 1, 4]) {
        handovers[dice.between(0, edge - 1) as usize].push(within(dice));
    }
    handovers.iter_mut().for_each(|times| times.sort());
    let healed = Instant::ZERO + heal + CALM;
    let sends = sends(dice, &first, &places, edge, heal, healed);
    let duplicates = plan.faults.iter().any(|fault| matches!(fault, Fault::Duplicate { .. }));
    let kind = InstanceType::find("c7i.48xlarge").expect("a type that there is");
    let shared = Shared {
        judge: Judge::new(first.clone(), duplicates),
        directory: Directory::new(first),
        deltas: Vec::new(),
        answers: BTreeMap::new(),
    };
    Common {
        seed: plan.seed,
        profile: Profile::of(kind),
        endpoint: endpoint(plan),
        edge,
        changes,
        sends,
        handovers,
        question: dice.percent(50).then(|| Duration::from_micros(dice.log_between(1, 500))),
        healed,
        shared: RefCell::new(shared),
    }
}

/// Draws the first packet of a random connection. Its source address may be forged.
fn connection(dice: &mut Dice, world: &Cloud, number: u16) -> (From, Packet) {
    let ends: Vec<(EniId, Ipv4Addr)> =
        world.enis.iter().map(|(id, eni)| (*id, eni.ipv4[0])).collect();
    let one = |dice: &mut Dice| {
        ends[dice.between(0, u32::try_from(ends.len()).expect("few") - 1) as usize]
    };
    let port = FIRST_PORT + number;
    let inner = match dice.between(0, 4) {
        0 => Inner::Udp(port, 53),
        1 => Inner::Udp(port, 5000),
        2 => Inner::Tcp(port, 5000),
        _ => Inner::Tcp(port, 80),
    };
    let (eni, own) = one(dice);
    if dice.percent(6) {
        let packet = Packet { source: OUTSIDE.into(), destination: ELASTIC.into(), inner };
        return (From::Internet, packet);
    }
    let mut other = one(dice).1;
    while other == own {
        other = one(dice).1;
    }
    let source = if dice.percent(8) { other } else { own };
    let destination = match dice.between(0, 9) {
        0 | 1 => OUTSIDE,
        2 => Ipv4Addr::new(10, 0, 1, 99),
        _ if source == other => own,
        _ => other,
    };
    (From::Guest(eni), Packet { source: source.into(), destination: destination.into(), inner })
}

fn sends(
    dice: &mut Dice,
    world: &Cloud,
    places: &Places,
    edge: u32,
    heal: Duration,
    healed: Instant,
) -> Vec<Vec<Send>> {
    let mut sends: Vec<Vec<Send>> = vec![Vec::new(); edge as usize + 1];
    let mut put = |of: Send| {
        let host = match of.from {
            From::Guest(eni) => place(world, places, eni),
            From::Internet | From::Nat(_) => edge,
        };
        sends[host as usize].push(of);
    };
    let connections: Vec<(From, Packet)> = (0..CONNECTIONS)
        .map(|n| {
            let (from, mut packet) = connection(dice, world, u16::try_from(n).expect("few"));
            if dice.percent(15) {
                packet.inner = Inner::Icmp(8, 0);
            }
            (from, packet)
        })
        .collect();
    for _ in 0..SENDS[0] {
        let at = Instant::ZERO + heal.over(1000).times(dice.between(0, 1000).into());
        let (from, packet) = connections[dice.between(0, CONNECTIONS - 1) as usize];
        let is_echo = matches!(packet.inner, Inner::Icmp(..));
        put(Send { at, from, packet, answers: u8::from(!is_echo && dice.percent(70)) });
    }
    for n in 0..SENDS[1] {
        let at = healed + Duration::from_micros(40).times(n.into());
        let number = u16::try_from(n).expect("few") + LAST_PORT - FIRST_PORT;
        let (from, packet) = connection(dice, world, number);
        // One of three connections has two requests with their replies.
        put(Send { at, from, packet, answers: if n.is_multiple_of(3) { 3 } else { 1 } });
    }
    sends.iter_mut().for_each(|of_host| of_host.sort_by_key(|send| send.at));
    sends
}

/// Returns the host of an interface.
fn place(world: &Cloud, places: &Places, eni: EniId) -> u32 {
    let instance = world.enis[&eni].attachment.as_ref().map(|attachment| attachment.instance);
    let host = instance.and_then(|id| world.instances[&id].host.as_deref());
    let number = host.and_then(|host| host.strip_prefix("host")?.parse().ok());
    number.unwrap_or(places.hosts[0])
}

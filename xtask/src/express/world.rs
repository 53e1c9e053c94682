//! The simulated network with the nodes on it, what is broken in it, and the account of all that
//! guests gave and got.
//!
//! Each node has a leaf switch of its own; eight spines between them, no two equally far, make
//! packets of different paths overtake each other.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use srd_card::Reach;
use srd_proto::rng::Rng;
use srd_proto::time::{Duration, Instant};
use srd_sim::fault::Fault;
use srd_sim::topology::clos::{ClosSpec, Links};
use srd_sim::topology::{End, Topology};
use srd_sim::workload::Workload;
use srd_sim::world::{Counters, NS, PortRules, QueueSize, World as Network, WorldConfig};

use super::NODES;
use super::ledger::Ledger;
use super::node::{Inbox, Node, Wanted};

/// Spines, and so paths between two nodes: source ports share them.
pub(super) const PATHS: u32 = 8;
/// Speed of links.
const LINK_BPS: u64 = 2_000_000_000;
/// Room of a port's queue.
const QUEUE_BYTES: u64 = 60_000;
/// Delay of a link, and by how much the links of each spine are longer than those of the last.
const LATENCY_PS: u64 = 5_000_000;
const LATENCY_STEP_PS: u64 = 7_500_000;
/// Time between two looks at the books.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// What all nodes write into.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub ledger: Ledger,
    /// Most flows that a table held, both ways, and most percent of any limit.
    pub flows_most: (usize, usize),
    pub utilization_most: u64,
}

/// Everything.
pub(super) struct World {
    network: Network<Node>,
    pub wanted: Vec<Wanted>,
    books: Rc<RefCell<Books>>,
    pub rng: Rng,
    /// Lives of nodes so far: a later life has a higher number.
    life: u64,
    seed: u64,
    /// Faults that have begun.
    broken: Vec<Fault>,
}

/// What the links of a spine take longer than those of the spine before.
fn lengthen(topology: &mut Topology) {
    let spines_from = topology.tiers.last().map_or(0, |tier| tier.first);
    for port in &mut topology.ports {
        for end in [port.from, port.to] {
            if let End::Switch(switch) = end
                && let Some(spine) = switch.checked_sub(spines_from)
            {
                port.latency_ps += LATENCY_STEP_PS * u64::from(spine);
            }
        }
    }
}

fn network(seed: u64, node: impl FnMut(u32) -> Node) -> Network<Node> {
    let links = Links {
        host_bps: LINK_BPS,
        up_bps: LINK_BPS,
        latency_ps: LATENCY_PS,
        switch_latency_ps: 0,
        bundle: 1,
    };
    let leaves = u32::try_from(NODES).expect("few nodes");
    let built = ClosSpec::leaf_spine(leaves, PATHS, 1, &links).build();
    let mut topology = built.expect("a network");
    lengthen(&mut topology);
    let queue = QueueSize::Bytes(QUEUE_BYTES);
    let config = WorldConfig {
        seed,
        rules: PortRules { queue, packet_bytes: 1536, ..PortRules::default() },
        ..WorldConfig::default()
    };
    Network::new(topology, Workload::default(), config, node).expect("links that there are")
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let wanted = vec![Wanted::all(1); NODES];
        let books = Rc::new(RefCell::new(Books::default()));
        let network = network(seed ^ 0x31, |index| {
            let (index, life) = (index as usize, u64::from(index) + 1);
            Node::new(index, life, seed, Instant::ZERO, &wanted[index], &books)
        });
        let (rng, life) = (Rng::new(seed), NODES as u64);
        Self { network, wanted, books, rng, life, seed, broken: Vec::new() }
    }

    /// The clock.
    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(self.network.now_ps() / NS)
    }

    /// The nodes.
    pub(super) fn nodes(&self) -> &[Node] {
        self.network.nodes()
    }

    /// The account.
    pub(super) fn books(&self) -> RefMut<'_, Books> {
        self.books.borrow_mut()
    }

    /// What happened to packets.
    pub(super) fn counters(&self) -> &Counters {
        self.network.counters()
    }

    /// Something changes: order is not promised across this moment.
    fn disturb(&mut self) {
        self.books().ledger.era += 1;
    }

    fn with<R>(&mut self, index: usize, call: impl FnOnce(&mut Node, Instant) -> R) -> R {
        self.network.with_node(u32::try_from(index).expect("few nodes"), call)
    }

    /// Looks at the books of every node.
    ///
    /// # Errors
    /// What is wrong first.
    pub(super) fn check(&mut self) -> Result<(), String> {
        (0..NODES).try_for_each(|index| self.with(index, |node, _| node.check()))?;
        self.network.check_conservation()?;
        match self.network.counters().timer_livelocks {
            0 => self.books().ledger.wrong(),
            n => Err(format!("{n} times a timer stayed due, at {:?}", self.now())),
        }
    }

    /// A node ends as a crash ends it, and begins anew.
    pub(super) fn restart(&mut self, index: usize) {
        self.life += 1;
        let (life, seed, books) = (self.life, self.seed, Rc::clone(&self.books));
        let wanted = self.wanted[index].clone();
        self.with(index, |node, now| {
            if let Err(why) = node.check() {
                books.borrow_mut().ledger.blame(now, &why);
            }
            *node = Node::new(index, life, seed, now, &wanted, &books);
        });
        self.disturb();
    }

    /// Makes every node as it is wanted.
    pub(super) fn apply(&mut self) {
        for index in 0..NODES {
            let wanted = self.wanted[index].clone();
            self.with(index, |node, now| {
                node.apply_own(now, &wanted);
                for other in (0..NODES).filter(|other| *other != index) {
                    node.apply(now, other, &wanted);
                }
            });
        }
        self.disturb();
    }

    /// Whether every node sees all others, with SRD for everything.
    pub(super) fn is_whole(&self) -> bool {
        self.nodes().iter().all(|node| {
            let mut others = (0..NODES).filter(|other| *other != node.index);
            others.all(|other| node.reach[other] == Some(Reach::Express { udp: true }))
        })
    }

    /// A guest gives a frame.
    pub(super) fn give(&mut self, index: usize, frame: Vec<u8>, cells: u32) {
        self.with(index, |node, now| {
            node.given += u64::from(cells);
            let mut books = node.books.borrow_mut();
            let ledger = &mut books.ledger;
            let mut inbox = Inbox { ledger, now, node: index, got: &mut node.got };
            node.express.from_guest(now, frame, &mut inbox);
        });
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// What is wrong first.
    pub(super) fn run(&mut self, time: Duration) -> Result<(), String> {
        let until_ps = self.network.now_ps() + time.as_nanos() * NS;
        let step_ps = CHECK_EVERY.as_nanos() * NS;
        while self.network.now_ps() < until_ps {
            self.network.run_until(until_ps.min(self.network.now_ps() + step_ps));
            self.books().ledger.wrong()?;
        }
        self.check()
    }

    /// Lets any time pass, less than so much.
    ///
    /// # Errors
    /// What is wrong first.
    pub(super) fn run_up_to_ms(&mut self, ms: u32) -> Result<(), String> {
        let ms = self.rng.below(ms);
        self.run(Duration::from_millis(ms.into()))
    }

    /// Something in the network breaks, until it is mended.
    pub(super) fn break_now(&mut self, fault: Fault) {
        self.network.begin_fault(&fault).expect("links that there are");
        self.broken.push(fault);
    }

    /// Mends what is chosen of what is broken. Returns whether that was anything.
    pub(super) fn mend(&mut self, chosen: impl Fn(&Fault) -> bool) -> bool {
        let (ended, left) = std::mem::take(&mut self.broken).into_iter().partition(chosen);
        self.broken = left;
        let ended: Vec<Fault> = ended;
        for fault in &ended {
            self.network.end_fault(fault).expect("links that there are");
        }
        !ended.is_empty()
    }

    /// From now on the network loses and repeats so many of a thousand packets.
    pub(super) fn lose(&mut self, loss_permille: u32, repeat_permille: u32) {
        self.mend(|fault| matches!(fault, Fault::Loss { .. } | Fault::Duplicate { .. }));
        let share = |permille: u32| f64::from(permille) / 1000.0;
        let (links, at_us, until_us) = ("leaf->spine".to_owned(), 0.0, None);
        let probability = share(loss_permille);
        self.break_now(Fault::Loss { links: links.clone(), probability, at_us, until_us });
        let probability = share(repeat_permille);
        self.break_now(Fault::Duplicate { links, probability, at_us, until_us });
    }
}

/// Links that swallow everything.
pub(super) fn dead(links: String) -> Fault {
    Fault::LinkDown { links, at_us: 0.0, until_us: None }
}

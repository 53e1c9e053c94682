//! Waste of incasts whose senders have not communicated with the receiver before. Three quantities
//! are measured: packets that are sent again, datagrams that are dropped more than once, and the
//! delay of another flow.
//!
//! The network of every case is a three-tier tree of 128 hosts with drop-tail queues of five
//! bandwidth-delay products, without trimming or marks. The completion time of an incast shows
//! little of its waste: as long as the receiver's link is busy, further dropped packets do not
//! prolong the incast.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use srd_proto::wire::data::Data;
use srd_proto::wire::greeting::GREETING_BYTES;
use srd_proto::wire::{FLAG_GREETING, Header, Kind};

use crate::engine::node::{Body, Delivered, Failed, FlowId, Packet};
use crate::engine::world::Observer;
use crate::runs::run::{FlowRecord, Job, run_observed};
use crate::scenario::{Scenario, ScenarioError, Transport};

/// The network, the queues and the packets of every case.
const NETWORK: &str = "packet_bytes = 4150\n[topology]\nkind = \"fat-tree\"\nk = 8\n\
                       [queue]\nbdp = 5.0\n";
/// Number of hosts of the network.
const HOSTS: u32 = 128;
/// Receiver of each crowd, which is the set of senders of an incast.
const RECEIVER: u32 = 0;
/// Receiver of the bystander's flow: a host beside the receiver of the crowd, at the same switch.
const NEIGHBOUR: u32 = 1;
/// Sender of the bystander's flow, which is the flow that the incast delays.
const BYSTANDER: u32 = 70;
/// First host that may belong to a crowd.
const CROWD_FROM: u32 = 4;
/// Bytes of the bystander's flow. The flow begins before the crowd, and ends after it.
const BYSTANDER_BYTES: u64 = 16 << 20;
/// Start time of a crowd in microseconds.
const CROWD_START_US: f64 = 100.0;
/// Largest number of senders in a crowd.
pub const CROWD_MAX: u32 = HOSTS - CROWD_FROM - 1;

/// Figures of one run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Waste {
    /// Data packets that were sent again, divided by all data packets.
    pub sent_again: f64,
    /// Datagrams of which two or more packets were dropped, divided by all datagrams.
    pub dropped_again: f64,
    /// Number of dropped packets of any kind.
    pub drops: u64,
    /// Largest ratio of a flow's completion time to its ideal time for the payload alone.
    pub max_over_ideal: f64,
    /// Completion time in microseconds of the flow to the neighbour of the receiver; absent if the
    /// case has no such flow.
    pub bystander_us: Option<f64>,
}

/// A case that is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// Name of the case in tables.
    pub name: String,
    /// Network and workload.
    pub scenario: Scenario,
}

impl Case {
    /// Returns the case with this workload, which is written in TOML.
    fn new(name: String, workload: &str, directory: &Path) -> Result<Self, ScenarioError> {
        let scenario = Scenario::read(&name, &format!("{NETWORK}{workload}"), directory, &[])?;
        Ok(Self { name, scenario })
    }

    /// Returns an incast: `senders` hosts send `bytes` each to one host at the same moment. With a
    /// bystander, a flow of 16 MiB to the receiver's neighbour begins 100 us earlier.
    ///
    /// # Errors
    /// If there are more senders than [`CROWD_MAX`].
    pub fn crowd(senders: u32, bytes: u64, bystander: bool) -> Result<Self, ScenarioError> {
        let kib = bytes >> 10;
        let beside = if bystander { ", bystander" } else { "" };
        let (start_us, other) =
            if bystander { (CROWD_START_US, bystander_flow()) } else { (0.0, String::new()) };
        let workload = format!(
            "[[workload]]\nkind = \"incast\"\nsenders = {:?}\nreceiver = {RECEIVER}\n\
             bytes = {bytes}\nstart_us = {start_us:?}\n{other}",
            crowd(senders)
        );
        Self::new(format!("{senders} x {kib} KiB{beside}"), &workload, Path::new("."))
    }

    /// Returns the flow of the bystander alone.
    ///
    /// # Errors
    /// Never: the workload is valid.
    pub fn bystander_alone() -> Result<Self, ScenarioError> {
        Self::new("bystander alone".to_owned(), &bystander_flow(), Path::new("."))
    }

    /// Returns the flows of a connection matrix of 128 hosts in htsim's format, with start times in
    /// microseconds.
    ///
    /// # Errors
    /// If the name of the file is not valid Unicode.
    pub fn matrix(path: &Path) -> Result<Self, ScenarioError> {
        let absolute = std::path::absolute(path).map_err(|e| ScenarioError(e.to_string()))?;
        let shown = absolute.to_str().ok_or_else(|| ScenarioError(format!("{path:?}: a name")))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let workload = format!("[[workload]]\nkind = \"matrix\"\npath = {shown:?}\n");
        Self::new(name, &workload, Path::new("."))
    }

    /// Sets the initial window of each sender, in percent of the bandwidth-delay product.
    #[must_use]
    pub fn with_first_window(mut self, percent: u32) -> Self {
        self.scenario.srd.unsolicited_percent = Some(percent);
        self
    }

    /// Runs the case.
    ///
    /// # Errors
    /// If the network cannot be built, or if a flow was incomplete at the end.
    pub fn measure(&self, seed: u64) -> Result<Waste, ScenarioError> {
        let drops = Drops::default();
        let job = Job { scenario: self.scenario.clone(), transport: Transport::Srd, seed };
        let result = run_observed(&job, Box::new(drops.clone()))?;
        if let Some(complaint) = result.complaints().first() {
            return Err(ScenarioError(format!("{}: {complaint}", self.name)));
        }
        let again = drops.0.borrow().values().filter(|times| **times > 1).count();
        let datagrams = result.sent.data_packets - result.sent.retransmitted_packets;
        let bystander = |flow: &&FlowRecord| (flow.src, flow.dst) == (BYSTANDER, NEIGHBOUR);
        Ok(Waste {
            sent_again: result.retransmitted_share,
            dropped_again: again as f64 / datagrams.max(1) as f64,
            drops: result.drops,
            max_over_ideal: result.over_ideal.max,
            bystander_us: result.flow_records.iter().find(bystander).and_then(|f| f.fct_us),
        })
    }
}

/// Returns the hosts of a crowd, spread evenly over those that may belong to it.
fn crowd(senders: u32) -> Vec<u32> {
    let hosts: Vec<u32> = (CROWD_FROM..HOSTS).filter(|host| *host != BYSTANDER).collect();
    let place = |i: u32| u64::from(i) * u64::from(CROWD_MAX) / u64::from(senders.max(1));
    let at = |i: u32| usize::try_from(place(i)).ok().and_then(|i| hosts.get(i)).copied();
    (0..senders).filter_map(at).collect()
}

fn bystander_flow() -> String {
    format!(
        "[[workload]]\nkind = \"pairs\"\npairs = [[{BYSTANDER}, {NEIGHBOUR}]]\n\
         bytes = {BYSTANDER_BYTES}\n"
    )
}

/// Number of drops of each datagram, by the 64-bit immediate in its header. In the simulator, the
/// immediate consists of the number of the flow and the index of the datagram.
#[derive(Clone, Default)]
struct Drops(Rc<RefCell<BTreeMap<u64, u32>>>);

impl Observer for Drops {
    fn delivered(&mut self, _now_ps: u64, _piece: &Delivered) {}
    fn failed(&mut self, _now_ps: u64, _piece: &Failed) {}
    fn completed(&mut self, _now_ps: u64, _flow: FlowId) {}

    fn dropped(&mut self, _now_ps: u64, packet: &Packet) {
        if let Some(imm) = datagram(packet) {
            *self.0.borrow_mut().entry(imm).or_default() += 1;
        }
    }
}

/// Returns the immediate of the datagram in a packet; `None` if the packet carries no datagram.
fn datagram(packet: &Packet) -> Option<u64> {
    let Body::Srd(body) = &packet.body else { return None };
    let (header, rest) = Header::decode(body.head()).ok()?;
    let greeting = if header.flags & FLAG_GREETING != 0 { GREETING_BYTES } else { 0 };
    let data = (header.kind == Kind::Data).then(|| Data::decode(rest.get(greeting..)?).ok())??;
    Some(data.0.imm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_has_distinct_hosts_and_neither_receiver_nor_bystander() {
        for senders in [1, 20, 48, CROWD_MAX] {
            let mut hosts = crowd(senders);
            hosts.dedup();
            assert_eq!(hosts.len(), senders as usize);
            assert!(!hosts.contains(&RECEIVER) && !hosts.contains(&BYSTANDER), "{hosts:?}");
        }
        assert_eq!(crowd(CROWD_MAX + 9).last(), Some(&(HOSTS - 1)));
    }

    #[test]
    fn a_single_sender_wastes_nothing() {
        let waste = Case::crowd(1, 64 << 10, false).unwrap().measure(1).unwrap();
        assert_eq!((waste.sent_again, waste.dropped_again, waste.drops), (0.0, 0.0, 0));
        assert_eq!(waste.bystander_us, None);
    }

    #[test]
    fn drops_of_a_crowd_are_counted_by_datagram() {
        let drops = Drops::default();
        let case = Case::crowd(60, 64 << 10, false).unwrap();
        let job = Job { scenario: case.scenario, transport: Transport::SrdBlind, seed: 1 };
        let result = run_observed(&job, Box::new(drops.clone())).unwrap();
        let counted: u32 = drops.0.borrow().values().sum();
        assert!(u64::from(counted) <= result.drops && counted > 0, "{counted} {}", result.drops);
    }
}

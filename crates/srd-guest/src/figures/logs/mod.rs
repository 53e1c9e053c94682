//! Flow logs: their assignment to interfaces, and the threads that write their files.
//!
//! ```text
//!  loop: card --> windows --> queue (bounded) --> thread of a log: records --> files
//!                         \-> queue           --> thread of another
//! ```
//!
//! The loop never waits for a disk. If more than [`RECORDS_QUEUED_MAX`] flows wait for a thread,
//! the flows of an aggregation window are dropped and counted, and a record with the status
//! SKIPDATA is written for the window. // F7
//!
//! | file | content |
//! |---|---|
//! | `lines` | one thread for each flow log |
//! | `writer` | the thread that writes windows to files |
//! | `files` | files, with names in the format of EC2 |
//! | `text`, `parquet` | the two forms of a file |

pub(crate) mod files;
mod lines;
mod parquet;
mod text;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use srd_card::observe::{InterfaceAttributes, Window};
use srd_card::profile::InstanceType;
use srd_card::profile::catalogue::Hypervisor;
use srd_card::vpc::LoggedWindow;
use srd_proto::time::Duration;
use srd_vpc::id::{EniId, FlowLogId};
use srd_vpc::object::{FlowLog, Logged, World};

use crate::control::protocol;
use files::Files;
pub(crate) use lines::FlowLogs;
use writer::Writer;

/// Maximum number of flows that wait for a thread that writes files.
const RECORDS_QUEUED_MAX: u64 = 1 << 18;
/// Maximum number of aggregation windows and plans that wait for a thread that writes files.
const MESSAGES_MAX: usize = 4096;
/// Length of aggregation windows of Nitro instances in seconds, whatever interval the log has.
const NITRO_INTERVAL_S: u16 = 60;
/// Longest wait, at the end of the card, for aggregation windows that have to be written.
pub(crate) const END_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// Counters of a log's records.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) written: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// Error of the last write; `None` if the last write was successful.
    pub(crate) failure: Mutex<Option<String>>,
}

impl Counts {
    pub(crate) fn write(&self, records: u64) {
        self.written.fetch_add(records, Ordering::Relaxed);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Counts records that could not be written. Logs the first of several failures.
    pub(crate) fn fail(&self, records: u64, log: &FlowLog, error: &std::io::Error) {
        self.dropped.fetch_add(records, Ordering::Relaxed);
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() {
            tracing::warn!(
                "the flow log `{}` cannot write to {}: {error}; its records are dropped",
                log.name,
                log.directory
            );
        }
        *failure = Some(error.to_string());
    }
}

/// A flow log and its counters.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    pub(crate) log: FlowLog,
    pub(crate) counts: Arc<Counts>,
}

/// Assignment of the aggregation windows of interfaces to flow logs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) logs: BTreeMap<FlowLogId, Active>,
    pub(crate) windows: BTreeMap<(EniId, Duration), Vec<FlowLogId>>,
    pub(crate) facts: BTreeMap<EniId, InterfaceAttributes>,
}

impl Plan {
    /// Returns the plan for interfaces of this host. Counters of existing logs continue.
    pub(crate) fn new(world: &World, enis: &BTreeSet<EniId>, before: &Self) -> Self {
        let mut plan = Self::default();
        for (id, log) in &world.flow_logs {
            let counts = before.logs.get(id).map(|active| Arc::clone(&active.counts));
            let counts = counts.unwrap_or_default();
            plan.logs.insert(*id, Active { log: log.clone(), counts });
        }
        for eni in enis {
            let Some((facts, subnet, vpc)) = facts(world, *eni) else { continue };
            for (id, log) in &world.flow_logs {
                if !log.covers(*eni, subnet, vpc) {
                    continue;
                }
                let seconds = if facts.is_nitro { NITRO_INTERVAL_S } else { log.interval };
                let length = Duration::from_secs(seconds.into());
                plan.windows.entry((*eni, length)).or_default().push(*id);
            }
            plan.facts.insert(*eni, facts);
        }
        plan
    }

    pub(crate) fn lengths(&self) -> BTreeMap<EniId, BTreeSet<Duration>> {
        let mut lengths: BTreeMap<EniId, BTreeSet<Duration>> = BTreeMap::new();
        for (eni, length) in self.windows.keys() {
            lengths.entry(*eni).or_default().insert(*length);
        }
        lengths
    }

    fn of(&self, eni: EniId, length: Duration) -> impl Iterator<Item = &Active> {
        let ids = self.windows.get(&(eni, length)).into_iter().flatten();
        ids.filter_map(|id| self.logs.get(id))
    }
}

/// Returns the fields of records that describe an interface.
fn facts(
    world: &World,
    id: EniId,
) -> Option<(InterfaceAttributes, srd_vpc::id::SubnetId, srd_vpc::id::VpcId)> {
    let eni = world.enis.get(&id)?;
    let subnet = world.subnets.get(&eni.subnet)?;
    let instance = eni.attachment.as_ref().map(|at| at.instance);
    let kind = instance.and_then(|id| world.instances.get(&id));
    let kind = kind.and_then(|instance| InstanceType::find(&instance.instance_type).ok());
    let first_v6 = eni.ipv6.first().map(|address| IpAddr::V6(*address));
    let facts = InterfaceAttributes {
        account: world.account.clone().unwrap_or_default(),
        interface: id.to_string(),
        vpc: subnet.vpc.to_string(),
        subnet: eni.subnet.to_string(),
        instance: instance.map(|id| id.to_string()).unwrap_or_default(),
        region: world.region.clone().unwrap_or_default(),
        zone: subnet.zone.clone(),
        addresses: [eni.ipv4.first().map(|address| IpAddr::V4(*address)), first_v6],
        // The thread that writes the record replaces this value, by the wall clock at that time.
        unix_ns: 0,
        is_nitro: kind.is_none_or(|kind| kind.hypervisor != Hypervisor::Xen),
    };
    Some((facts, eni.subnet, subnet.vpc))
}

/// A message to a thread that writes files.
pub(crate) enum Message {
    Plan(Box<Plan>),
    Window(Box<LoggedWindow>),
}

/// The flow logs of one thread, and the queue to that thread.
#[derive(Debug)]
pub(crate) struct Logs {
    pub(crate) plan: Plan,
    /// Whether the plan still has to be sent to the thread.
    pub(crate) owes_plan: bool,
    pub(crate) queue: Option<SyncSender<Message>>,
    /// Number of flows that wait for the thread.
    queued: Arc<AtomicU64>,
    /// Packets of dropped windows. The next window of the interface counts them as skipped.
    owed: BTreeMap<(EniId, Duration), u64>,
    pub(crate) ended: Receiver<()>,
}

impl Logs {
    /// Starts a thread that writes files. `unix_ns_at_zero` returns the Unix time in nanoseconds at
    /// which the clock of packets was zero, by the current wall clock.
    pub(crate) fn start(unix_ns_at_zero: fn() -> u64, files: Files) -> Result<Self> {
        let (queue, messages) = sync_channel(MESSAGES_MAX);
        // Nothing is ever sent: the channel closes when the thread ends.
        let (end, ended) = sync_channel(1);
        let queued = Arc::new(AtomicU64::new(0));
        let writer = Writer::new(Arc::clone(&queued), unix_ns_at_zero, files);
        let work = move || {
            writer.run(&messages);
            drop(end);
        };
        thread::Builder::new().name("srd-card-logs".into()).spawn(work).context("a thread")?;
        let (plan, owed) = (Plan::default(), BTreeMap::new());
        Ok(Self { plan, owes_plan: false, queue: Some(queue), queued, owed, ended })
    }

    /// Replaces the plan, which [`Self::send_plan`] sends to the thread.
    pub(crate) fn set_plan(&mut self, plan: Plan) {
        self.owed.retain(|window, _| plan.windows.contains_key(window));
        (self.plan, self.owes_plan) = (plan, true);
    }

    /// Sends an aggregation window to the thread. If the queue has no space, its records are
    /// dropped and counted.
    pub(crate) fn offer(&mut self, mut logged: LoggedWindow) {
        let owed = self.owed.remove(&(logged.eni, logged.length)).unwrap_or_default();
        let skipped = &mut logged.window.skipped_packets;
        *skipped = skipped.saturating_add(owed);
        let flows = logged.window.len() as u64;
        let (eni, length) = (logged.eni, logged.length);
        if self.queued.load(Ordering::Relaxed) + flows > RECORDS_QUEUED_MAX {
            self.drop_records(eni, length, flows);
            logged.window.forget_flows();
        }
        let (flows, packets) = (logged.window.len() as u64, logged.window.packets());
        self.queued.fetch_add(flows, Ordering::Relaxed);
        if !self.send(Message::Window(Box::new(logged))) {
            self.queued.fetch_sub(flows, Ordering::Relaxed);
            self.drop_records(eni, length, flows.max(1));
            self.owed.insert((eni, length), packets);
        }
    }

    /// Sends the plan to the thread, unless it was sent already. The queue may be full while the
    /// disk hangs, so this function is called repeatedly until it succeeds.
    pub(crate) fn send_plan(&mut self) {
        if self.owes_plan {
            self.owes_plan = !self.send(Message::Plan(Box::new(self.plan.clone())));
        }
    }

    fn drop_records(&self, eni: EniId, length: Duration, records: u64) {
        for active in self.plan.of(eni, length) {
            active.counts.dropped.fetch_add(records, Ordering::Relaxed);
        }
    }

    pub(crate) fn send(&self, message: Message) -> bool {
        let sent = self.queue.as_ref().map(|queue| queue.try_send(message));
        !matches!(sent, None | Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))))
    }
}

/// Returns the flow logs of a plan for `srd card logs`.
pub(crate) fn report(plan: &Plan) -> Vec<protocol::FlowLog> {
    let of = |id: &FlowLogId| {
        let windows = plan.windows.iter();
        windows.filter(|(_, logs)| logs.contains(id)).count()
    };
    let logs = plan.logs.iter().map(|(id, Active { log, counts })| protocol::FlowLog {
        name: log.name.clone(),
        id: id.to_string(),
        resource: match log.resource {
            Logged::Vpc(id) => id.to_string(),
            Logged::Subnet(id) => id.to_string(),
            Logged::Eni(id) => id.to_string(),
        },
        traffic: log.traffic.name().to_owned(),
        directory: log.directory.clone(),
        files: log.format.name().to_owned(),
        interfaces: of(id),
        records_written: counts.written.load(Ordering::Relaxed),
        records_dropped: counts.dropped.load(Ordering::Relaxed),
        failure: counts.failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
    });
    logs.collect()
}

/// Returns the number of records that a flow log contains for an aggregation window.
fn records_of(facts: &InterfaceAttributes, window: &Window, log: &FlowLog) -> u64 {
    srd_card::observe::records(facts, window, log.traffic).count() as u64
}

#[cfg(test)]
mod tests;

//! Chakra execution traces: the calculations and messages of ranks in a training step.
//!
//! A trace is a file for each rank, `PREFIX.RANK.et` ([`trace`]). A node is a calculation, a
//! message or a collective. It begins when all nodes are done on whose data it depends. As in
//! Chakra's own reader, `ctrl_deps` are ignored: in traces of PyTorch they are parents in the call
//! stack.
//!
//! Nodes that send and receive become messages. Collectives become the messages of an algorithm
//! (`collective`). All other nodes occupy a processor for their duration: the rank's processor if
//! they have the attribute `is_cpu_op`, otherwise its accelerator. Each executes one node at a
//! time. If an accelerator executes a collective, the host may have a record of it without the
//! attributes of a collective. Such a record occupies the processor for its duration.
//!
//! The collectives of a process group are matched by their order in the files of its ranks. A file
//! of groups lists the members of each group. If a group is not in this file, its members are the
//! ranks whose traces have collectives of the group.

pub mod attribute;
mod collective;
pub mod trace;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::Workload;
use super::messages::{
    Alone, BYTES_MAX, CALC_NS_MAX, End, Messages, Mismatch, OPERATIONS_MAX, circle,
};
use super::pattern::FLOWS_MAX;
use super::schedule::Action;
use attribute::Attribute;
use collective::{Kind, Member, expand};
use trace::{Node, node_type};

/// Largest number of ranks in a trace.
const RANKS_MAX: usize = 1 << 16;
/// Largest size of all files of a trace together, in bytes.
const FILES_BYTES_MAX: u64 = 1 << 30;
/// Largest number of bytes of memory for the data that is created from a trace, in addition to its
/// files.
const MEMORY_BYTES_MAX: usize = 2 << 30;
/// Approximate number of bytes that a table in memory needs for an entry, in addition to the entry.
const ENTRY_BYTES: usize = 64;
/// Processors of a rank: the host's, its accelerator, and a third for operations without duration.
const HOST: u32 = 0;
const ACCELERATOR: u32 = 1;
const NONE: u32 = 2;

/// The ranks of process groups, by name.
pub type Groups = BTreeMap<String, Vec<u32>>;

/// Reason why a trace was refused: position and description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceError {
    /// Rank whose file contains the error; `None` if it concerns the whole trace.
    pub rank: Option<u32>,
    /// Number of the node that contains the error; `None` if it concerns a whole file.
    pub node: Option<u64>,
    /// Description of the error.
    pub what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.node) {
            (Some(rank), Some(node)) => write!(f, "rank {rank}, node {node}: {}", self.what),
            (Some(rank), None) => write!(f, "rank {rank}: {}", self.what),
            (None, _) => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for TraceError {}

/// Reads the files of a trace: `PREFIX.0.et`, `PREFIX.1.et` and so on.
///
/// # Errors
/// If there are no files, if they are too large, or if a file cannot be read.
pub fn files(prefix: &Path) -> Result<Vec<Vec<u8>>, TraceError> {
    files_within(prefix, FILES_BYTES_MAX)
}

fn files_within(prefix: &Path, bytes_max: u64) -> Result<Vec<Vec<u8>>, TraceError> {
    let mut all = Vec::new();
    let mut left = bytes_max;
    let fail = |what: String| TraceError { rank: None, node: None, what };
    while all.len() < RANKS_MAX {
        let file = file_of(prefix, all.len());
        let shown = file.display();
        match std::fs::metadata(&file) {
            Ok(facts) if !facts.is_file() => return Err(fail(format!("{shown} is no file"))),
            Ok(_) => {
                let mut bytes = Vec::new();
                let read = std::fs::File::open(&file)
                    .and_then(|opened| opened.take(left + 1).read_to_end(&mut bytes));
                read.map_err(|e| fail(format!("{shown}: {e}")))?;
                let Some(rest) = left.checked_sub(bytes.len() as u64) else {
                    return Err(fail(format!(
                        "the files up to {shown} have more than {bytes_max} bytes, the most of a \
                         trace: record fewer ranks or steps"
                    )));
                };
                left = rest;
                all.push(bytes);
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !all.is_empty() => break,
            Err(e) => {
                return Err(fail(format!(
                    "{shown}: {e}; a trace is PREFIX.0.et, PREFIX.1.et and so on, and is named by \
                     its PREFIX"
                )));
            }
        }
    }
    match beyond(prefix, all.len()) {
        Some(rank) => Err(fail(format!(
            "{} is missing, but rank {rank} has a file",
            file_of(prefix, all.len()).display()
        ))),
        None => Ok(all),
    }
}

/// Returns the smallest rank, not below `ranks`, for which there is a file.
fn beyond(prefix: &Path, ranks: usize) -> Option<usize> {
    let begin = format!("{}.", prefix.file_name()?.to_str()?);
    let directory = prefix.parent().filter(|path| !path.as_os_str().is_empty());
    let entries = std::fs::read_dir(directory.unwrap_or(Path::new("."))).ok()?;
    let rank = |name: &str| name.strip_prefix(&begin)?.strip_suffix(".et")?.parse::<usize>().ok();
    let found = entries.flatten().filter_map(|entry| rank(entry.file_name().to_str()?));
    found.filter(|rank| *rank >= ranks).min()
}

fn file_of(prefix: &Path, rank: usize) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(format!(".{rank}.et"));
    name.into()
}

/// Returns the prefix of the trace to which a file belongs; `None` if its name does not end in
/// `.et`.
pub fn prefix_of(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?.strip_suffix(".et")?;
    let prefix = match name.rsplit_once('.') {
        Some((prefix, rank)) if rank.parse::<u32>().is_ok() => prefix,
        _ => name,
    };
    Some(file.with_file_name(prefix))
}

/// Parses a file of process groups: a JSON object with a list of ranks for each group.
///
/// # Errors
/// If the text has another form, or if a group has a rank twice.
pub fn groups(text: &str) -> Result<Groups, TraceError> {
    let fail = |what: String| TraceError { rank: None, node: None, what };
    let groups: Groups = serde_json::from_str(text).map_err(|e| {
        fail(format!("no process groups: {e}; write {{\"NAME\": [RANK, ...], ...}}"))
    })?;
    for (name, ranks) in &groups {
        let mut seen = BTreeSet::new();
        if let Some(rank) = ranks.iter().find(|rank| !seen.insert(**rank)) {
            return Err(fail(format!("process group `{name}` has rank {rank} twice")));
        }
    }
    Ok(groups)
}

/// Parses a trace. The file of rank `n` is `files[n]`, and rank `n` is on host `hosts[n]`.
///
/// # Errors
/// A description of the first node that cannot be parsed or is not valid, and a solution.
pub fn read(files: &[Vec<u8>], groups: &Groups, hosts: &[u32]) -> Result<Workload, TraceError> {
    read_within(files, groups, hosts, MEMORY_BYTES_MAX)
}

fn read_within(
    files: &[Vec<u8>],
    groups: &Groups,
    hosts: &[u32],
    memory_bytes_max: usize,
) -> Result<Workload, TraceError> {
    let fail = |what: String| TraceError { rank: None, node: None, what };
    if files.len() > hosts.len() {
        let (ranks, have) = (files.len(), hosts.len());
        return Err(fail(format!(
            "{ranks} ranks, but the network has {have} hosts for them: take a larger network"
        )));
    }
    let far = |(name, ranks): (&String, &Vec<u32>)| {
        let rank = ranks.iter().find(|rank| **rank as usize >= files.len())?;
        Some(format!("process group `{name}` has rank {rank}, of which there is no file"))
    };
    if let Some(what) = groups.iter().find_map(far) {
        return Err(fail(what));
    }
    let messages = Messages::within(hosts[..files.len()].to_vec(), memory_bytes_max);
    let mut reader = Reader::new(groups, messages, files.len());
    for (rank, bytes) in (0..).zip(files) {
        reader.rank(rank, bytes)?;
    }
    reader.collectives()?;
    if let Some(group) = groups.keys().find(|group| !reader.met.contains(*group)) {
        return Err(fail(format!(
            "no collective of the trace is of process group `{group}`: its groups are {}",
            listed(&reader.met)
        )));
    }
    reader.finish()
}

/// The part of one rank in a collective, as its file describes it.
#[derive(Clone, Copy, Debug)]
struct Part {
    kind: Kind,
    bytes: u64,
    node: u64,
    member: Member,
}

/// Returns the names of groups as text. A long list is cut off.
fn listed(names: &BTreeSet<String>) -> String {
    const SHOWN: usize = 8;
    if names.is_empty() {
        return "none".to_owned();
    }
    let mut shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    shown.extend((names.len() > SHOWN).then(|| "and more".to_owned()));
    shown.join(", ")
}

struct Reader<'a> {
    groups: &'a Groups,
    ranks: u32,
    messages: Messages,
    /// By group and rank: the rank's parts in collectives, in the order of its file.
    parts: BTreeMap<String, BTreeMap<u32, Vec<Part>>>,
    /// Number of bytes of memory for `parts`.
    parts_bytes: usize,
    /// Names of groups that have collectives.
    met: BTreeSet<String>,
    /// For each operation, the rank and the node from which the operation was created. Operations
    /// of collectives' messages are not included.
    origin: Vec<(u32, u64)>,
}

impl<'a> Reader<'a> {
    fn new(groups: &'a Groups, messages: Messages, ranks: usize) -> Self {
        Self {
            groups,
            ranks: u32::try_from(ranks).unwrap_or(u32::MAX),
            messages,
            parts: BTreeMap::new(),
            parts_bytes: 0,
            met: BTreeSet::new(),
            origin: Vec::new(),
        }
    }

    /// Reads the nodes of a rank. The file is parsed twice, so that the nodes need not be stored.
    fn rank(&mut self, rank: u32, bytes: &[u8]) -> Result<(), TraceError> {
        let fail =
            |node: u64, what: String| Err(TraceError { rank: Some(rank), node: Some(node), what });
        let of_file = |what: String| TraceError { rank: Some(rank), node: None, what };
        // By node: the operations at its beginning and at its end.
        let mut ends: HashMap<u64, (u32, u32)> = HashMap::new();
        for node in trace::nodes(bytes).map_err(of_file)? {
            let node = node.map_err(of_file)?;
            self.messages.others_bytes = ends.capacity() * 2 * size_of::<(u64, (u32, u32))>()
                + self.origin.capacity() * size_of::<(u32, u64)>()
                + self.parts_bytes;
            let operations = self.node(rank, &node).map_err(|what| TraceError {
                rank: Some(rank),
                node: Some(node.id),
                what,
            })?;
            if ends.insert(node.id, operations).is_some() {
                return fail(node.id, "there are two nodes of this number".to_owned());
            }
        }
        for node in trace::nodes(bytes).map_err(of_file)? {
            let node = node.map_err(of_file)?;
            let (begin, _) = ends[&node.id];
            for &earlier in &node.data {
                let Some((_, end)) = ends.get(&earlier) else {
                    return fail(node.id, format!("it depends on node {earlier}: there is none"));
                };
                if !self.messages.wait(begin, *end) {
                    return fail(node.id, self.too_many("waits", OPERATIONS_MAX as u64));
                }
            }
        }
        Ok(())
    }

    /// Adds the operations for a node. Returns the operations at its beginning and at its end.
    fn node(&mut self, rank: u32, node: &Node) -> Result<(u32, u32), String> {
        let is_host = node.flag("is_cpu_op")? == Some(true);
        let says = |name| node.attribute(name).is_some();
        let is_record = is_host
            && match node.kind {
                node_type::SEND => !says("comm_dst"),
                node_type::RECEIVE => !says("comm_src"),
                node_type::COLLECTIVE => !says("comm_type"),
                _ => false,
            };
        match node.kind {
            node_type::SEND | node_type::RECEIVE if !is_record => {
                let operation = self.message(rank, node)?;
                Ok((operation, operation))
            }
            node_type::COLLECTIVE if !is_record => self.collective(rank, node),
            _ => {
                let ns = node.duration_micros.checked_mul(1000);
                let ns = ns.filter(|ns| *ns <= CALC_NS_MAX && node.kind > 0);
                let ns = ns.ok_or("it has no type, or takes longer than a day")?;
                let cpu = match is_host {
                    _ if node.kind == node_type::METADATA => NONE,
                    true => HOST,
                    false => ACCELERATOR,
                };
                let operation =
                    self.add(rank, node.id, Action::Calculate { ps: ns * 1000, cpu })?;
                Ok((operation, operation))
            }
        }
    }

    fn add(&mut self, rank: u32, node: u64, what: Action) -> Result<u32, String> {
        let operation = self.messages.operation(rank, what);
        let operation =
            operation.ok_or_else(|| self.too_many("operations", OPERATIONS_MAX as u64))?;
        self.origin.push((rank, node));
        Ok(operation)
    }

    /// Returns a description of the bound that was reached: memory, or the number of `what`.
    fn too_many(&self, what: &str, most: u64) -> String {
        if self.messages.is_full() {
            return format!(
                "with it the trace takes more memory than the {} MiB that there are for it: run \
                 fewer ranks, or fewer steps",
                MEMORY_BYTES_MAX >> 20
            );
        }
        format!("more than {most} {what}")
    }

    fn message(&mut self, rank: u32, node: &Node) -> Result<u32, String> {
        let is_send = node.kind == node_type::SEND;
        let name = if is_send { "comm_dst" } else { "comm_src" };
        let peer = node.number(name)?.ok_or_else(|| format!("it has no attribute `{name}`"))?;
        let peer = u32::try_from(peer).ok().filter(|peer| *peer < self.ranks);
        let peer = peer.ok_or_else(|| format!("`{name}` is none of {} ranks", self.ranks))?;
        let bytes = bytes_of(node)?;
        let tag = node.attribute("comm_tag").map_or(Ok(0), Attribute::mark)?;
        let operation = self.add(rank, node.id, Action::Calculate { ps: 0, cpu: NONE })?;
        let channel = if is_send { (rank, peer, tag) } else { (peer, rank, tag) };
        let end = End { operation, bytes, place: operation as usize };
        match self.messages.pair(is_send, channel, end) {
            Ok(()) => Ok(operation),
            Err(Mismatch::TooMany) => Err(format!("more than {FLOWS_MAX} messages")),
            Err(Mismatch::TooLarge { send, receive }) => {
                let (rank, node) = self.origin[send.place];
                let (bytes, room) = (send.bytes, receive.bytes);
                Err(format!(
                    "{bytes} bytes of rank {rank}, node {node} do not fit into a receive of {room}"
                ))
            }
        }
    }

    fn collective(&mut self, rank: u32, node: &Node) -> Result<(u32, u32), String> {
        let number = node.number("comm_type")?.ok_or("it has no attribute `comm_type`")?;
        let kind = Kind::of(number).ok_or_else(|| format!("`comm_type` {number} is not known"))?;
        let bytes = if kind == Kind::Barrier { 1 } else { bytes_of(node)? };
        let nothing = Action::Calculate { ps: 0, cpu: NONE };
        let begin = self.add(rank, node.id, nothing)?;
        let end = self.add(rank, node.id, nothing)?;
        let group = node.attribute("pg_name").map(Attribute::text).transpose()?.unwrap_or_default();
        if self.groups.get(&group).is_some_and(|ranks| !ranks.contains(&rank)) {
            return Err(format!("process group `{group}` has no rank {rank}"));
        }
        let part = Part { kind, bytes, node: node.id, member: Member { rank, begin, end } };
        // The estimate assumes that the group is new to this rank, because names may be long.
        self.parts_bytes += 2 * size_of::<Part>() + ENTRY_BYTES + group.len();
        if !self.met.contains(&group) {
            self.met.insert(group.clone());
            self.parts_bytes += ENTRY_BYTES + group.len();
        }
        self.parts.entry(group).or_default().entry(rank).or_default().push(part);
        Ok((begin, end))
    }

    /// Converts the collectives of all ranks to messages.
    fn collectives(&mut self) -> Result<(), TraceError> {
        for (group, by_rank) in std::mem::take(&mut self.parts) {
            let named = self.groups.get(&group);
            let ranks = named.cloned().unwrap_or_else(|| by_rank.keys().copied().collect());
            let rounds = by_rank.values().map(Vec::len).max().unwrap_or(0);
            for round in 0..rounds {
                let found = ranks.iter().map(|rank| {
                    by_rank.get(rank).and_then(|parts| parts.get(round)).copied().ok_or(*rank)
                });
                let parts = found.collect::<Result<Vec<Part>, u32>>().map_err(|rank| {
                    let what = format!(
                        "process group `{group}` has {rounds} collectives, and this rank fewer"
                    );
                    TraceError { rank: Some(rank), node: None, what }
                })?;
                self.round(&group, round, &parts)?;
            }
        }
        Ok(())
    }

    fn round(&mut self, group: &str, round: usize, parts: &[Part]) -> Result<(), TraceError> {
        let first = parts[0];
        for part in parts {
            if (part.kind, part.bytes) != (first.kind, first.bytes) {
                let what = format!(
                    "it is collective {round} of process group `{group}`, {:?} of {} bytes; that \
                     of rank {} is {:?} of {} bytes",
                    part.kind, part.bytes, first.member.rank, first.kind, first.bytes
                );
                let (rank, node) = (Some(part.member.rank), Some(part.node));
                return Err(TraceError { rank, node, what });
            }
        }
        let members: Vec<Member> = parts.iter().map(|part| part.member).collect();
        let expanded = expand(&mut self.messages, first.kind, &members, first.bytes);
        expanded.ok_or_else(|| TraceError {
            rank: Some(first.member.rank),
            node: Some(first.node),
            what: self.too_many("messages, or too many operations", FLOWS_MAX),
        })
    }

    fn finish(self) -> Result<Workload, TraceError> {
        let Self { messages, origin, .. } = self;
        let at = |operation: usize, what: String| {
            let origin = origin.get(operation).copied();
            TraceError { rank: origin.map(|(rank, _)| rank), node: origin.map(|(_, id)| id), what }
        };
        if messages.schedule.operations.is_empty() {
            let what = "no rank has a node".to_owned();
            return Err(TraceError { rank: None, node: None, what });
        }
        let workload = messages.finish().map_err(|Alone { place, channel, is_send }| {
            let other = if is_send { "receive" } else { "send" };
            let (sender, receiver, tag) = channel;
            at(place, format!("no {other} fits: rank {sender} to rank {receiver}, tag {tag}"))
        })?;
        match circle(&workload) {
            None => Ok(workload),
            Some(operation) => {
                let what = "nodes wait for each other in a circle: no run can end";
                Err(at(operation as usize, what.to_owned()))
            }
        }
    }
}

fn bytes_of(node: &Node) -> Result<u64, String> {
    let bytes = node.number("comm_size")?.ok_or("it has no attribute `comm_size`")?;
    if bytes > BYTES_MAX {
        return Err(format!("`comm_size` {bytes} is above {BYTES_MAX}, the most"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;

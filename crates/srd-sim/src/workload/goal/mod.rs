//! Schedules in GOAL, the text format of LogGOPSim and ATLAHS.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//!   l1: calc 100
//!   l2: send 1024b to 1 tag 7
//!   l2 requires l1
//! }
//! rank 1 {
//!   l1: recv 1024b from 0 tag 7
//! }
//! ```
//! `requires` waits for an operation's end, `irequires` for its begin; `calc` counts nanoseconds;
//! `cpu` chooses a processor, and `nic` is read and ignored, since a host has one link. A receive
//! takes the first send from its rank with its tag that no earlier receive took, in the order of
//! the file. A message of a rank to itself needs no network; a message of no bytes has one.

mod text;
pub mod write;

use std::collections::{HashMap, VecDeque};

use super::pattern::FLOWS_MAX;
use super::schedule::{Operation, Schedule, Wait, What};
use super::{FlowPlan, Start, Workload};
use crate::topology::topo_file::ParseError;
use text::{Text, Token};

/// The most ranks that a file may have.
const RANKS_MAX: u64 = 1 << 20;
/// The most bytes of a message: a terabyte.
const BYTES_MAX: u64 = 1 << 40;
/// The most nanoseconds of a calculation: a day.
const CALC_NS_MAX: u64 = 86_400_000_000_000;
/// The most operations that a file may have, and the most waits.
const OPERATIONS_MAX: usize = 60_000_000;

/// Reads a schedule. Rank `n` is on host `hosts[n]`; the flows are numbered from zero.
///
/// # Errors
/// The first line that is not understood or cannot be, with a remedy.
pub fn parse(text: &str, hosts: &[u32]) -> Result<Workload, ParseError> {
    let mut reader = Reader { text: Text::new(text), ..Reader::default() };
    reader.file(hosts)?;
    let line_of = std::mem::take(&mut reader.lines);
    let workload = reader.finish()?;
    if let Some(schedule) = &workload.schedule
        && let Err(stuck) = schedule.least_ps(workload.flows.len(), &NoCost)
    {
        let line = line_of.get(stuck as usize).copied().unwrap_or(0);
        let what = "this operation and others wait for each other in a circle: no run can end";
        return Err(ParseError { line, what: what.to_owned() });
    }
    Ok(workload)
}

struct NoCost;

impl super::schedule::LeastCost for NoCost {
    fn flow_ps(&self, _: u32) -> (u64, u64) {
        (0, 0)
    }
}

/// One end of a message that waits for its other end.
#[derive(Clone, Copy)]
struct End {
    operation: u32,
    bytes: u64,
    line: usize,
}

/// A sender, a receiver and a tag.
type Channel = (u32, u32, u64);

#[derive(Default)]
struct Reader<'a> {
    text: Text<'a>,
    ranks: u32,
    hosts: Vec<u32>,
    schedule: Schedule,
    flows: Vec<FlowPlan>,
    // The line of each operation.
    lines: Vec<usize>,
    sends: HashMap<Channel, VecDeque<End>>,
    receives: HashMap<Channel, VecDeque<End>>,
    described: Vec<bool>,
}

impl<'a> Reader<'a> {
    fn fail<T>(&self, what: String) -> Result<T, ParseError> {
        Err(ParseError { line: self.text.line(), what })
    }

    /// The next token, which must be there.
    fn token(&mut self, wanted: &str) -> Result<Token<'a>, ParseError> {
        let token = self.text.next();
        match token.map_err(|what| ParseError { line: self.text.line(), what })? {
            Some(token) => Ok(token),
            None => self.fail(format!("the file ends where {wanted} should stand")),
        }
    }

    fn number(&mut self, wanted: &str, most: u64) -> Result<u64, ParseError> {
        match self.token(wanted)? {
            Token::Number(number) if number <= most => Ok(number),
            Token::Number(number) => {
                self.fail(format!("{number} is above {most}, the most that {wanted} may be"))
            }
            Token::Any => self.fail(format!(
                "-1 stands for any {wanted}, which depends on what comes first: name it, as traces \
                 that were replayed do"
            )),
            other => self.fail(format!("`{other}` stands where {wanted} should")),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), ParseError> {
        match self.token(&format!("`{word}`"))? {
            Token::Word(found) if found == word => Ok(()),
            Token::Mark(found) if word.len() == 1 && word.starts_with(found) => Ok(()),
            other => self.fail(format!("`{other}` stands where `{word}` should")),
        }
    }

    fn file(&mut self, hosts: &[u32]) -> Result<(), ParseError> {
        self.word("num_ranks")?;
        let ranks = self.number("the number of ranks", RANKS_MAX)?;
        if ranks > hosts.len() as u64 {
            let have = hosts.len();
            return self.fail(format!(
                "{ranks} ranks, but the network has {have} hosts for them: take a larger network"
            ));
        }
        self.ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
        self.hosts = hosts.iter().copied().take(self.ranks as usize).collect();
        self.schedule.ranks = self.ranks;
        self.described = vec![false; self.hosts.len()];
        while let Some(token) =
            self.text.next().map_err(|what| ParseError { line: self.text.line(), what })?
        {
            match token {
                Token::Word("rank") => self.rank()?,
                other => return self.fail(format!("`{other}` stands where `rank` should")),
            }
        }
        Ok(())
    }

    fn rank(&mut self) -> Result<(), ParseError> {
        let rank = self.rank_number()?;
        if std::mem::replace(&mut self.described[rank as usize], true) {
            return self.fail(format!("rank {rank} is described twice"));
        }
        self.word("{")?;
        let mut labels: HashMap<&str, u32> = HashMap::new();
        // Waits by label, until all labels are known.
        let mut waits: Vec<(usize, &str, &str, bool)> = Vec::new();
        loop {
            let label = match self.token("an operation or `}`")? {
                Token::Mark('}') => break,
                Token::Word(kind @ ("send" | "recv" | "calc")) => {
                    self.operation(rank, kind)?;
                    continue;
                }
                Token::Word(label) => label,
                other => return self.fail(format!("`{other}` stands where an operation should")),
            };
            match self.token("`:`, `requires` or `irequires`")? {
                Token::Mark(':') => {
                    let Token::Word(kind @ ("send" | "recv" | "calc")) =
                        self.token("an operation")?
                    else {
                        return self.fail(format!("`{label}:` needs send, recv or calc after it"));
                    };
                    let operation = self.operation(rank, kind)?;
                    if labels.insert(label, operation).is_some() {
                        return self.fail(format!("rank {rank} has two operations `{label}`"));
                    }
                }
                Token::Word(kind @ ("requires" | "irequires")) => {
                    let Token::Word(earlier) = self.token("a label")? else {
                        return self.fail(format!("`{kind}` needs a label after it"));
                    };
                    waits.push((self.text.line(), label, earlier, kind == "requires"));
                }
                other => return self.fail(format!("`{other}` after `{label}`")),
            }
        }
        for (line, later, earlier, end) in waits {
            let find = |label: &str| {
                labels.get(label).copied().ok_or_else(|| ParseError {
                    line,
                    what: format!("rank {rank} has no operation `{label}`"),
                })
            };
            let wait = Wait { later: find(later)?, earlier: find(earlier)? };
            let schedule = &mut self.schedule;
            if end { &mut schedule.after_end } else { &mut schedule.after_begin }.push(wait);
        }
        if self.schedule.after_end.len().max(self.schedule.after_begin.len()) > OPERATIONS_MAX {
            return self.fail(format!("more than {OPERATIONS_MAX} waits"));
        }
        Ok(())
    }

    fn rank_number(&mut self) -> Result<u32, ParseError> {
        let number = self.number("a rank", u64::from(u32::MAX))?;
        match u32::try_from(number) {
            Ok(rank) if rank < self.ranks => Ok(rank),
            _ => self.fail(format!("rank {number}, but `num_ranks` is {}", self.ranks)),
        }
    }

    /// Reads what stands behind the kind, and adds the operation.
    fn operation(&mut self, rank: u32, kind: &str) -> Result<u32, ParseError> {
        if self.schedule.operations.len() >= OPERATIONS_MAX {
            return self.fail(format!("more than {OPERATIONS_MAX} operations"));
        }
        let line = self.text.line();
        let number = u32::try_from(self.schedule.operations.len()).unwrap_or(u32::MAX);
        self.lines.push(line);
        let nothing = Operation { rank, what: What::Calculate { ps: 0, cpu: 0 } };
        self.schedule.operations.push(nothing);
        if kind == "calc" {
            let ns = self.number("nanoseconds", CALC_NS_MAX)?;
            let (_, cpu) = self.options()?;
            let what = What::Calculate { ps: ns * 1000, cpu };
            self.schedule.operations[number as usize].what = what;
            return Ok(number);
        }
        let bytes = self.number("the bytes of a message", BYTES_MAX)?;
        self.word("b")?;
        self.word(if kind == "send" { "to" } else { "from" })?;
        let peer = self.rank_number()?;
        let (tag, _) = self.options()?;
        let end = End { operation: number, bytes, line };
        self.pair(kind == "send", rank, peer, tag, end)?;
        Ok(number)
    }

    /// The tag and the processor of an operation: zero where they are not given.
    fn options(&mut self) -> Result<(u64, u32), ParseError> {
        let (mut tag, mut cpu) = (0, 0);
        loop {
            match self.text.peek() {
                Some(Token::Word("tag")) => {
                    self.word("tag")?;
                    tag = self.number("tag", u64::MAX)?;
                }
                Some(Token::Word(word @ ("cpu" | "nic"))) => {
                    self.word(word)?;
                    let number = self.number("the number of a processor or link", 1 << 16)?;
                    if word == "cpu" {
                        cpu = u32::try_from(number).unwrap_or(u32::MAX);
                    }
                }
                _ => return Ok((tag, cpu)),
            }
        }
    }

    /// Finds the other end of a message, or remembers this one.
    fn pair(
        &mut self,
        is_send: bool,
        rank: u32,
        peer: u32,
        tag: u64,
        end: End,
    ) -> Result<(), ParseError> {
        let channel = if is_send { (rank, peer, tag) } else { (peer, rank, tag) };
        let (own, others) = if is_send {
            (&mut self.sends, &mut self.receives)
        } else {
            (&mut self.receives, &mut self.sends)
        };
        let Some(other) = others.get_mut(&channel).and_then(VecDeque::pop_front) else {
            own.entry(channel).or_default().push_back(end);
            return Ok(());
        };
        let (send, receive) = if is_send { (end, other) } else { (other, end) };
        if send.bytes > receive.bytes {
            let what = format!(
                "{} bytes of line {} do not fit into the {} of this receive",
                send.bytes, send.line, receive.bytes
            );
            return Err(ParseError { line: receive.line, what });
        }
        let (sender, receiver, _) = channel;
        if sender == receiver {
            // A copy in memory: the receive may end once the send has begun.
            let wait = Wait { later: receive.operation, earlier: send.operation };
            self.schedule.after_begin.push(wait);
            return Ok(());
        }
        let flow = u32::try_from(self.flows.len()).unwrap_or(u32::MAX);
        if u64::from(flow) >= FLOWS_MAX {
            return self.fail(format!("more than {FLOWS_MAX} messages"));
        }
        let host = |rank: u32| self.hosts[rank as usize];
        let mut plan = FlowPlan::at(0, host(sender), host(receiver), send.bytes.max(1));
        plan.start = Start::Scheduled;
        self.flows.push(plan);
        let operations = &mut self.schedule.operations;
        operations[send.operation as usize].what = What::Send { flow };
        operations[receive.operation as usize].what = What::Receive { flow };
        Ok(())
    }

    fn finish(self) -> Result<Workload, ParseError> {
        for (ends, kind, other) in
            [(&self.sends, "send", "receive"), (&self.receives, "receive", "send")]
        {
            // The first line of them, whatever the order of the table.
            let left =
                ends.iter().filter_map(|(channel, ends)| Some((ends.front()?.line, channel)));
            if let Some((line, (sender, receiver, tag))) = left.min() {
                let what = format!(
                    "no {other} fits this {kind} from rank {sender} to rank {receiver} with tag \
                     {tag}"
                );
                return Err(ParseError { line, what });
            }
        }
        if self.schedule.operations.is_empty() {
            return Err(ParseError { line: 0, what: "no rank has an operation".to_owned() });
        }
        let (flows, schedule) = (self.flows, Some(self.schedule));
        Ok(Workload { flows, schedule, ..Workload::default() })
    }
}

#[cfg(test)]
mod tests;

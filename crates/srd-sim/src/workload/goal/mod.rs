//! Schedules in GOAL, the format of LogGOPSim and ATLAHS, as text or in binary form ([`binary`]).
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
//! `requires` waits for the end of an operation, `irequires` for its start. `calc` is followed by
//! nanoseconds. `cpu` selects a processor; `nic` is read and ignored, because a host has one link.
//! A receive matches the first send, in the order of the file, that has its source rank and tag and
//! that no earlier receive matched. A message of a rank to itself does not use the network. An
//! empty message to another rank does.

pub mod binary;
mod text;
pub mod write;

use std::collections::HashMap;
use std::fmt;

use super::Workload;
use super::messages::{
    Alone, BYTES_MAX, CALC_NS_MAX, End, Messages, Mismatch, OPERATIONS_MAX, circle,
};
use super::pattern::FLOWS_MAX;
use super::schedule::{Action, Wait};
use crate::engine::topology::topo_file::ParseError;
use text::{Text, Token};

/// Largest number of ranks in a GOAL file.
const RANKS_MAX: u64 = 1 << 20;

/// Reason why a GOAL file was refused. The text contains the position and a solution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GoalError {
    /// Error in a line of a text file.
    Text(ParseError),
    /// Error in a byte of a binary file.
    Binary(binary::Fault),
    /// The file is neither text nor in the binary form.
    Neither,
}

impl fmt::Display for GoalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(error) => write!(f, "{error}"),
            Self::Binary(fault) => write!(f, "{fault}"),
            Self::Neither => f.write_str(
                "no schedule in GOAL: neither text (UTF-8) nor what LogGOPSim's txt2bin writes, \
                 which begins with the bytes 7f 10",
            ),
        }
    }
}

impl std::error::Error for GoalError {}

/// Parses a schedule, in text or binary form. Rank `n` is on host `hosts[n]`; the flows are
/// numbered from zero.
///
/// # Errors
/// A description of the first position that cannot be parsed or is not valid, and a solution.
pub fn read(bytes: &[u8], hosts: &[u32]) -> Result<Workload, GoalError> {
    if binary::begins(bytes) {
        return binary::parse(bytes, hosts).map_err(GoalError::Binary);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| GoalError::Neither)?;
    parse(text, hosts).map_err(GoalError::Text)
}

/// Parses a schedule as text. Rank `n` is on host `hosts[n]`; the flows are numbered from zero.
///
/// # Errors
/// A description of the first line that cannot be parsed or is not valid, and a solution.
pub fn parse(text: &str, hosts: &[u32]) -> Result<Workload, ParseError> {
    let mut reader = Reader { text: Text::new(text), ..Reader::default() };
    reader.file(hosts)?;
    let line_of = std::mem::take(&mut reader.lines);
    let workload = reader.finish()?;
    if let Some(stuck) = circle(&workload) {
        let line = line_of.get(stuck as usize).copied().unwrap_or(0);
        let what = "this operation and others wait for each other in a circle: no run can end";
        return Err(ParseError { line, what: what.to_owned() });
    }
    Ok(workload)
}

#[derive(Default)]
struct Reader<'a> {
    text: Text<'a>,
    ranks: u32,
    messages: Messages,
    // By operation: number of its line.
    lines: Vec<usize>,
    described: Vec<bool>,
}

impl<'a> Reader<'a> {
    fn fail<T>(&self, what: String) -> Result<T, ParseError> {
        Err(ParseError { line: self.text.line(), what })
    }

    /// Removes and returns the next token. The end of the file is an error.
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
        self.messages = Messages::new(hosts[..self.ranks as usize].to_vec());
        self.described = vec![false; self.ranks as usize];
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
        // Waits between operations, by label. They are resolved when all labels of the rank are
        // read.
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
            let schedule = &mut self.messages.schedule;
            if end { &mut schedule.after_end } else { &mut schedule.after_begin }.push(wait);
        }
        let schedule = &self.messages.schedule;
        if schedule.after_end.len().max(schedule.after_begin.len()) > OPERATIONS_MAX {
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

    /// Parses an operation from the token after its kind, and adds it. Returns the number of the
    /// operation.
    fn operation(&mut self, rank: u32, kind: &str) -> Result<u32, ParseError> {
        let place = self.text.line();
        let nothing = Action::Calculate { ps: 0, cpu: 0 };
        let Some(number) = self.messages.operation(rank, nothing) else {
            return self.fail(format!("more than {OPERATIONS_MAX} operations"));
        };
        self.lines.push(place);
        if kind == "calc" {
            let ns = self.number("nanoseconds", CALC_NS_MAX)?;
            let (_, cpu) = self.options()?;
            let what = Action::Calculate { ps: ns * 1000, cpu };
            self.messages.schedule.operations[number as usize].what = what;
            return Ok(number);
        }
        let bytes = self.number("the bytes of a message", BYTES_MAX)?;
        self.word("b")?;
        self.word(if kind == "send" { "to" } else { "from" })?;
        let peer = self.rank_number()?;
        let (tag, _) = self.options()?;
        let end = End { operation: number, bytes, place };
        let is_send = kind == "send";
        let channel = if is_send { (rank, peer, tag) } else { (peer, rank, tag) };
        match self.messages.pair(is_send, channel, end) {
            Ok(()) => Ok(number),
            Err(Mismatch::TooMany) => self.fail(format!("more than {FLOWS_MAX} messages")),
            Err(Mismatch::TooLarge { send, receive }) => Err(ParseError {
                line: receive.place,
                what: format!(
                    "{} bytes of line {} do not fit into the {} of this receive",
                    send.bytes, send.place, receive.bytes
                ),
            }),
        }
    }

    /// Parses the tag and the processor of an operation; each is 0 if absent.
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

    fn finish(self) -> Result<Workload, ParseError> {
        if self.messages.schedule.operations.is_empty() {
            return Err(ParseError { line: 0, what: "no rank has an operation".to_owned() });
        }
        self.messages.finish().map_err(|Alone { place, channel, is_send }| {
            let (kind, other) = if is_send { ("send", "receive") } else { ("receive", "send") };
            let (sender, receiver, tag) = channel;
            let what = format!(
                "no {other} fits this {kind} from rank {sender} to rank {receiver} with tag {tag}"
            );
            ParseError { line: place, what }
        })
    }
}

#[cfg(test)]
mod tests;

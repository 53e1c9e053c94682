//! Schedules in the binary form of GOAL: LogGOPSim's program `txt2bin` creates it from text, and
//! ATLAHS executes it.
//!
//! ```text
//! u64 4223                                      2342: used up by LogGOPSim with --save-mem
//! u32 ranks, u8 highest cpu, u8 highest nic
//! (u64 begin, u64 end) of each rank             counted from behind the first eight bytes
//! each rank:
//!   u32 operations, u32 roots, u32 of each root
//!   each operation, 39 bytes:
//!     u32 waits, u8 kind, u32 peer, u64 size, u32 tag, u8 cpu, u8 nic,
//!     u32 number and u32 first of those that begin after its end,
//!     u32 number and u32 first of those that begin after its start
//!   u32 of each of those: the appendix
//! ```
//! Numbers are little-endian, without padding. A size is the number of bytes of a message or of
//! nanoseconds. The kinds are 1 send, 2 receive, 3 calculation. The value -1 as the peer of a
//! receive, or as a tag, means "any".
//!
//! # Bound
//! Every count is compared with the file's length before memory is allocated for it. Ranks do not
//! overlap, and neither do the entries of operations in the appendix. So the memory is proportional
//! to the size of the file.

use std::fmt;

use super::RANKS_MAX;
use crate::workload::Workload;
use crate::workload::messages::{
    Alone, BYTES_MAX, CALC_NS_MAX, End, Messages, Mismatch, OPERATIONS_MAX, circle,
};
use crate::workload::pattern::FLOWS_MAX;
use crate::workload::schedule::{Action, Wait};

const MAGIC: [u8; 8] = 4223_u64.to_le_bytes();
const SPOILT: [u8; 8] = 2342_u64.to_le_bytes();
/// Position in the file from which offsets in its table are counted.
const ORIGIN: usize = MAGIC.len();
const TABLE_AT: usize = ORIGIN + 6;
const TABLE_ENTRY_BYTES: usize = 16;
const RANK_HEAD_BYTES: usize = 8;
const OPERATION_BYTES: usize = 39;
const ANY: u32 = u32::MAX;

/// Reason why a binary file was refused: position and description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Offset of the invalid byte in the file, from 0.
    pub offset: usize,
    /// Description of the error, with a solution.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for Fault {}

fn fault<T>(offset: usize, what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { offset, what: what.into() })
}

/// Converts an offset to an index. The offset was checked to be inside the file, which is in
/// memory.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Whether a file begins with the first bytes of the binary form.
pub(super) fn begins(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) || bytes.starts_with(&SPOILT)
}

/// Parses a schedule in binary form. Rank `n` is on host `hosts[n]`; the flows are numbered from
/// zero.
///
/// # Errors
/// A description of the first byte that is not valid, and a solution.
pub(super) fn parse(bytes: &[u8], hosts: &[u32]) -> Result<Workload, Fault> {
    if bytes.starts_with(&SPOILT) {
        return fault(
            0,
            "a run of LogGOPSim with --save-mem has used this file up: make it again with txt2bin",
        );
    }
    let file = File(bytes);
    let places = file.ranks(hosts.len())?;
    let ranks = places.len();
    let mut reader = Reader { file, places, messages: Messages::new(hosts[..ranks].to_vec()) };
    for rank in 0..ranks {
        reader.rank(rank)?;
    }
    reader.finish()
}

/// A file from which numbers are read at offsets. Reading beyond the end of the file is an error.
#[derive(Clone, Copy)]
struct File<'a>(&'a [u8]);

impl File<'_> {
    fn array<const N: usize>(self, at: usize) -> Result<[u8; N], Fault> {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk::<N>());
        bytes
            .copied()
            .map_or_else(|| fault(self.0.len(), "the file ends here and should not: it is cut"), Ok)
    }

    fn byte(self, at: usize) -> Result<u8, Fault> {
        self.array::<1>(at).map(|[byte]| byte)
    }

    fn u32(self, at: usize) -> Result<u32, Fault> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Result<u64, Fault> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// Returns the layouts of the ranks. Each rank must be inside the file, and after the previous
    /// rank.
    fn ranks(self, hosts: usize) -> Result<Vec<Rank>, Fault> {
        let ranks = self.u32(ORIGIN)?;
        let length = self.0.len();
        let table_end = TABLE_AT as u64 + u64::from(ranks) * TABLE_ENTRY_BYTES as u64;
        if table_end > length as u64 {
            return fault(
                ORIGIN,
                format!("{ranks} ranks, whose table would end at byte {table_end} of {length}"),
            );
        }
        if u64::from(ranks) > RANKS_MAX || ranks as usize > hosts {
            return fault(
                ORIGIN,
                format!(
                    "{ranks} ranks, but the network has {hosts} hosts for them: take a larger \
                     network (at most {RANKS_MAX})"
                ),
            );
        }
        let mut last = table_end;
        let mut places = Vec::with_capacity(ranks as usize);
        for rank in 0..ranks as usize {
            let at = TABLE_AT + rank * TABLE_ENTRY_BYTES;
            let (begin, end) = (self.u64(at)?, self.u64(at + 8)?);
            let inside = |offset: u64| {
                offset.checked_add(ORIGIN as u64).filter(|offset| *offset <= length as u64)
            };
            let (Some(begin), Some(end)) = (inside(begin), inside(end)) else {
                return fault(
                    at,
                    format!("rank {rank} lies behind the end of the file: it is cut"),
                );
            };
            if begin < last || end < begin {
                return fault(
                    at,
                    format!("rank {rank} lies from {begin} to {end}, and not behind byte {last}"),
                );
            }
            last = end;
            places.push(self.place(rank, index(begin), index(end))?);
        }
        Ok(places)
    }

    /// Returns the layout of a rank. All its parts must be inside the rank's bytes.
    fn place(self, rank: usize, begin: usize, end: usize) -> Result<Rank, Fault> {
        if end - begin < RANK_HEAD_BYTES {
            return fault(begin, format!("rank {rank} has {} bytes, and no head", end - begin));
        }
        let (operations, roots) = (self.u32(begin)?, self.u32(begin + 4)?);
        let roots_at = begin + RANK_HEAD_BYTES;
        let operations_at = roots_at as u64 + u64::from(roots) * 4;
        let appendix_at = operations_at + u64::from(operations) * OPERATION_BYTES as u64;
        let rest = (end as u64).checked_sub(appendix_at);
        let Some(rest) = rest.filter(|rest| rest % 4 == 0) else {
            return fault(
                begin,
                format!(
                    "rank {rank} has {operations} operations and {roots} roots, which do not fit \
                     into its {} bytes",
                    end - begin
                ),
            );
        };
        Ok(Rank {
            operations,
            roots,
            roots_at,
            operations_at: index(operations_at),
            appendix_at: index(appendix_at),
            appendix: rest / 4,
            first: 0,
        })
    }

    fn operation(self, rank: &Rank, number: u32) -> Result<Raw, Fault> {
        let at = rank.at(number);
        Ok(Raw {
            at,
            waits: self.u32(at)?,
            kind: self.byte(at + 4)?,
            peer: self.u32(at + 5)?,
            size: self.u64(at + 9)?,
            tag: self.u32(at + 17)?,
            cpu: self.byte(at + 21)?,
            after_end: (self.u32(at + 23)?, self.u32(at + 27)?),
            after_begin: (self.u32(at + 31)?, self.u32(at + 35)?),
        })
    }
}

/// Positions and sizes of a rank's parts in the file.
#[derive(Clone, Copy)]
struct Rank {
    operations: u32,
    roots: u32,
    roots_at: usize,
    operations_at: usize,
    appendix_at: usize,
    /// Number of entries in the appendix.
    appendix: u64,
    /// Number of the rank's first operation, among the operations of all ranks.
    first: u32,
}

impl Rank {
    fn at(&self, number: u32) -> usize {
        self.operations_at + number as usize * OPERATION_BYTES
    }
}

/// An operation as the file contains it.
struct Raw {
    at: usize,
    waits: u32,
    kind: u8,
    peer: u32,
    size: u64,
    tag: u32,
    cpu: u8,
    after_end: (u32, u32),
    after_begin: (u32, u32),
}

struct Reader<'a> {
    file: File<'a>,
    places: Vec<Rank>,
    messages: Messages,
}

impl Reader<'_> {
    fn rank(&mut self, number: usize) -> Result<(), Fault> {
        let first = self.messages.schedule.operations.len();
        let place = &mut self.places[number];
        // The number fits, because there are at most OPERATIONS_MAX operations.
        place.first = u32::try_from(first).unwrap_or(u32::MAX);
        let place = *place;
        if first + place.operations as usize > OPERATIONS_MAX {
            return fault(place.roots_at, format!("more than {OPERATIONS_MAX} operations"));
        }
        // By operation: number of operations for which it waits, as the file declares it.
        let mut waits = Vec::with_capacity(place.operations as usize);
        // The number fits, because there are at most RANKS_MAX ranks.
        let rank = u32::try_from(number).unwrap_or(u32::MAX);
        for number in 0..place.operations {
            let raw = self.file.operation(&place, number)?;
            waits.push(raw.waits);
            self.operation(rank, &raw)?;
        }
        self.roots(&place, &waits)?;
        self.waits(&place, &mut waits)
    }

    fn operation(&mut self, rank: u32, raw: &Raw) -> Result<(), Fault> {
        let calculation = Action::Calculate { ps: 0, cpu: u32::from(raw.cpu) };
        let Some(number) = self.messages.operation(rank, calculation) else {
            return fault(raw.at, format!("more than {OPERATIONS_MAX} operations"));
        };
        let above = |most: u64, unit: &str| {
            fault(raw.at + 9, format!("{} {unit} are above {most}, the most that may be", raw.size))
        };
        let is_send = match raw.kind {
            1 => true,
            2 => false,
            3 if raw.size > CALC_NS_MAX => return above(CALC_NS_MAX, "nanoseconds"),
            3 => {
                let what = Action::Calculate { ps: raw.size * 1000, cpu: u32::from(raw.cpu) };
                self.messages.schedule.operations[number as usize].what = what;
                return Ok(());
            }
            kind => {
                return fault(raw.at + 4, format!("{kind} is no kind of operation: 1 to 3 are"));
            }
        };
        if raw.size > BYTES_MAX {
            return above(BYTES_MAX, "bytes");
        }
        for (field, value, at) in [("rank", raw.peer, raw.at + 5), ("tag", raw.tag, raw.at + 17)] {
            if value == ANY {
                return fault(
                    at,
                    format!(
                        "-1 stands for any {field}, which depends on what comes first: name it, as \
                         traces that were replayed do"
                    ),
                );
            }
        }
        let ranks = self.places.len();
        if raw.peer as usize >= ranks {
            return fault(raw.at + 5, format!("rank {}, but there are {ranks}", raw.peer));
        }
        let tag = u64::from(raw.tag);
        let channel = if is_send { (rank, raw.peer, tag) } else { (raw.peer, rank, tag) };
        let end = End { operation: number, bytes: raw.size, place: raw.at };
        match self.messages.pair(is_send, channel, end) {
            Ok(()) => Ok(()),
            Err(Mismatch::TooMany) => fault(raw.at, format!("more than {FLOWS_MAX} messages")),
            Err(Mismatch::TooLarge { send, receive }) => fault(
                receive.place,
                format!(
                    "{} bytes of the send at byte {} do not fit into the {} of this receive",
                    send.bytes, send.place, receive.bytes
                ),
            ),
        }
    }

    /// Checks the roots of a rank, which must be exactly the operations that wait for no other
    /// operation.
    fn roots(&self, place: &Rank, waits: &[u32]) -> Result<(), Fault> {
        let free = waits.iter().filter(|waits| **waits == 0).count();
        if place.roots as usize != free {
            let what = format!("{} roots, but {free} operations wait for nothing", place.roots);
            return fault(place.roots_at - 4, what);
        }
        for at in (place.roots_at..).step_by(4).take(place.roots as usize) {
            let root = self.file.u32(at)?;
            if waits.get(root as usize) != Some(&0) {
                return fault(
                    at,
                    format!("operation {root} is no root: it waits, or is not there"),
                );
            }
        }
        Ok(())
    }

    /// Adds the waits in the appendix. Checks that their number matches the number that each
    /// operation declares.
    fn waits(&mut self, place: &Rank, waits: &mut [u32]) -> Result<(), Fault> {
        let mut entries = place.appendix;
        for number in 0..place.operations {
            let raw = self.file.operation(place, number)?;
            for ((count, from), end) in [(raw.after_end, true), (raw.after_begin, false)] {
                let at = raw.at + if end { 23 } else { 31 };
                let inside = u64::from(from) + u64::from(count) <= place.appendix;
                let left = entries.checked_sub(u64::from(count));
                let Some(left) = left.filter(|_| inside || count == 0) else {
                    let what = format!(
                        "{count} waits from entry {from} of an appendix that has {}",
                        place.appendix
                    );
                    return fault(at, what);
                };
                entries = left;
                for entry in 0..count as usize {
                    let at = place.appendix_at + (from as usize + entry) * 4;
                    let later = self.file.u32(at)?;
                    self.wait(place, waits, at, (number, later), end)?;
                }
            }
        }
        let Some(missed) = waits.iter().position(|waits| *waits > 0) else { return Ok(()) };
        let at = place.operations_at + missed * OPERATION_BYTES;
        fault(at, format!("this operation waits for {} more than any that name it", waits[missed]))
    }

    fn wait(
        &mut self,
        place: &Rank,
        waits: &mut [u32],
        at: usize,
        (earlier, later): (u32, u32),
        end: bool,
    ) -> Result<(), Fault> {
        let Some(left) = waits.get_mut(later as usize) else {
            let have = place.operations;
            return fault(at, format!("operation {later}, but the rank has {have}"));
        };
        let Some(one_less) = left.checked_sub(1) else {
            return fault(
                place.at(later),
                "more operations name this one than it waits for: if a simulator with --save-mem \
                 has run on this file, make it again with txt2bin",
            );
        };
        *left = one_less;
        let schedule = &mut self.messages.schedule;
        let list = if end { &mut schedule.after_end } else { &mut schedule.after_begin };
        if list.len() >= OPERATIONS_MAX {
            return fault(at, format!("more than {OPERATIONS_MAX} waits"));
        }
        list.push(Wait { later: place.first + later, earlier: place.first + earlier });
        Ok(())
    }

    fn finish(self) -> Result<Workload, Fault> {
        if self.messages.schedule.operations.is_empty() {
            return fault(ORIGIN, "no rank has an operation");
        }
        let places = self.places;
        let workload = self.messages.finish().map_err(|Alone { place, channel, is_send }| {
            let (kind, other) = if is_send { ("send", "receive") } else { ("receive", "send") };
            let (sender, receiver, tag) = channel;
            let what = format!(
                "no {other} fits this {kind} from rank {sender} to rank {receiver} with tag {tag}"
            );
            Fault { offset: place, what }
        })?;
        if let Some(stuck) = circle(&workload) {
            let rank = places.partition_point(|rank| rank.first <= stuck) - 1;
            let at = places[rank].at(stuck - places[rank].first);
            let what = "this operation and others wait for each other in a circle: no run can end";
            return fault(at, what);
        }
        Ok(workload)
    }
}

#[cfg(test)]
#[path = "binary_tests.rs"]
mod tests;

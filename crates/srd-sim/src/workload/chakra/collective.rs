//! Collectives of a Chakra trace, converted to messages by the algorithms that the members of a
//! group execute.
//!
//! | collective | algorithm | bytes of a message |
//! |---|---|---|
//! | all-reduce | a ring, twice round | `comm_size` / members |
//! | reduce-scatter | a ring, once round | `comm_size` / members |
//! | all-gather | a ring, once round | `comm_size` |
//! | all-to-all | every member to every other, at once | `comm_size` / members |
//! | broadcast | a binomial tree from the first member | `comm_size` |
//! | reduce | a binomial tree towards the first member | `comm_size` |
//! | gather, scatter | all members to, or from, the first member | `comm_size` / members |
//! | barrier | dissemination | 1 |
//!
//! In the table, "members" is the number of the group's members.

use super::super::messages::Messages;

/// Kind of a collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    AllReduce,
    Reduce,
    AllGather,
    Gather,
    Scatter,
    Broadcast,
    AllToAll,
    ReduceScatter,
    Barrier,
}

impl Kind {
    /// Returns the kind for a number of `CollectiveCommType` in `et_def.proto`; `None` for unknown
    /// numbers.
    pub(super) fn of(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::AllReduce,
            1 => Self::Reduce,
            2 => Self::AllGather,
            3 => Self::Gather,
            4 => Self::Scatter,
            5 => Self::Broadcast,
            6 => Self::AllToAll,
            7 | 8 => Self::ReduceScatter,
            9 => Self::Barrier,
            _ => return None,
        })
    }
}

/// A member of a group in one collective: its rank, and the operations that begin and end its part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) rank: u32,
    pub(super) begin: u32,
    pub(super) end: u32,
}

/// Adds the messages of a collective of `bytes`. Returns `None` if there would be too many.
pub(super) fn expand(
    messages: &mut Messages,
    kind: Kind,
    members: &[Member],
    bytes: u64,
) -> Option<()> {
    let count = members.len();
    let part = bytes / count.max(1) as u64;
    for member in members {
        messages.wait(member.end, member.begin).then_some(())?;
    }
    match kind {
        Kind::AllReduce => ring(messages, members, 2 * (count - 1), part),
        Kind::ReduceScatter => ring(messages, members, count - 1, part),
        Kind::AllGather => ring(messages, members, count - 1, bytes),
        Kind::Barrier => {
            steps(messages, members, count.next_power_of_two().ilog2() as usize, |s| (1 << s, 1))
        }
        Kind::AllToAll => {
            for far in 1..count {
                for (at, from) in members.iter().enumerate() {
                    deliver(messages, *from, members[(at + far) % count], part)?;
                }
            }
            Some(())
        }
        Kind::Gather => members[1..]
            .iter()
            .try_for_each(|member| deliver(messages, *member, members[0], part).map(|_| ())),
        Kind::Scatter => members[1..]
            .iter()
            .try_for_each(|member| deliver(messages, members[0], *member, part).map(|_| ())),
        Kind::Broadcast => tree(messages, members, bytes, false),
        Kind::Reduce => tree(messages, members, bytes, true),
    }
}

/// Adds a message between two members of a collective. It is sent after its sender has begun the
/// collective, and both members end the collective after it. Returns the numbers of the two
/// operations; `None` if there are too many.
fn deliver(messages: &mut Messages, from: Member, to: Member, bytes: u64) -> Option<(u32, u32)> {
    let (send, receive) = messages.message(from.rank, to.rank, bytes)?;
    let waits = [(send, from.begin), (receive, to.begin), (from.end, send), (to.end, receive)];
    waits.into_iter().all(|(later, earlier)| messages.wait(later, earlier)).then_some(())?;
    Some((send, receive))
}

fn ring(messages: &mut Messages, members: &[Member], count: usize, bytes: u64) -> Option<()> {
    steps(messages, members, count, |_| (1, bytes))
}

/// Adds `count` steps. The function `step` returns two numbers for each step: how many positions
/// ahead the receiver of a member is, and the bytes of a message. A member sends after it has
/// received the message of the previous step.
fn steps(
    messages: &mut Messages,
    members: &[Member],
    count: usize,
    step: impl Fn(usize) -> (usize, u64),
) -> Option<()> {
    let mut received: Vec<Option<u32>> = vec![None; members.len()];
    for number in 0..count {
        let (far, bytes) = step(number);
        let before = received.clone();
        for (at, from) in members.iter().enumerate() {
            let place = (at + far) % members.len();
            let (send, receive) = deliver(messages, *from, members[place], bytes)?;
            if let Some(earlier) = before[at] {
                messages.wait(send, earlier).then_some(())?;
            }
            received[place] = Some(receive);
        }
    }
    Some(())
}

/// Adds a binomial tree of messages from the first member, or, if `inwards`, towards it.
fn tree(messages: &mut Messages, members: &[Member], bytes: u64, inwards: bool) -> Option<()> {
    let rounds = members.len().next_power_of_two().ilog2();
    // By member: messages that it must receive before it sends.
    let mut received: Vec<Vec<u32>> = vec![Vec::new(); members.len()];
    for round in 0..rounds {
        let far = 1_usize << if inwards { rounds - 1 - round } else { round };
        for near in 0..far.min(members.len().saturating_sub(far)) {
            let (from, to) = if inwards { (near + far, near) } else { (near, near + far) };
            let (send, receive) = deliver(messages, members[from], members[to], bytes)?;
            for &earlier in &received[from] {
                messages.wait(send, earlier).then_some(())?;
            }
            received[to].push(receive);
        }
    }
    Some(())
}

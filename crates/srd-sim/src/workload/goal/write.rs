//! Generation of schedules for collectives, in GOAL.

use std::fmt::{self, Write};

/// A collective operation, with the algorithm that executes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collective {
    /// All-reduce in a ring: each rank passes a part of the data to the next rank, twice round.
    RingAllReduce,
    /// All-reduce by recursive doubling: in each step, a rank exchanges all its data with another
    /// rank, whose distance doubles from step to step. The number of ranks must be a power of two.
    DoublingAllReduce,
    /// Every rank sends to every other rank, at once.
    AllToAll,
    /// A barrier: in each step, a rank sends to a rank whose distance doubles from step to step.
    Barrier,
}

impl Collective {
    /// All collectives, with their names.
    pub const ALL: [(Self, &str); 4] = [
        (Self::RingAllReduce, "ring-all-reduce"),
        (Self::DoublingAllReduce, "doubling-all-reduce"),
        (Self::AllToAll, "all-to-all"),
        (Self::Barrier, "barrier"),
    ];

    /// Returns the schedule for `ranks` ranks as text. The meaning of `bytes` depends on the
    /// collective: the data of a rank that is reduced, the data for each other rank, or the size of
    /// a message of a barrier.
    ///
    /// # Errors
    /// If the algorithm does not allow the numbers.
    pub fn write(self, ranks: u32, bytes: u64) -> Result<String, String> {
        if !(2..=65_536).contains(&ranks) {
            return Err(format!("{ranks} ranks: 2 to 65536 are possible"));
        }
        if !(1..=1 << 40).contains(&bytes) {
            return Err(format!("{bytes} bytes: 1 to {} are possible", 1_u64 << 40));
        }
        if self == Self::AllToAll && ranks > 4096 {
            return Err(format!("{ranks} ranks: an all-to-all may have 4096"));
        }
        if self == Self::RingAllReduce && ranks > 2048 {
            return Err(format!("{ranks} ranks: a ring may have 2048"));
        }
        if self == Self::DoublingAllReduce && !ranks.is_power_of_two() {
            return Err(format!("{ranks} ranks: recursive doubling needs a power of two"));
        }
        let mut text = format!("num_ranks {ranks}\n");
        for rank in 0..ranks {
            let written =
                write!(text, "rank {rank} {{\n{}}}\n", Rank { of: self, rank, ranks, bytes });
            written.expect("a String takes everything");
        }
        Ok(text)
    }
}

struct Rank {
    of: Collective,
    rank: u32,
    ranks: u32,
    bytes: u64,
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, rank, ranks, bytes } = *self;
        let doubling = (0..).map(|n| 1_u64 << n).take_while(|far| *far < u64::from(ranks));
        let ahead = |far: u64| (u64::from(rank) + far) % u64::from(ranks);
        let behind = |far: u64| (u64::from(rank) + u64::from(ranks) - far) % u64::from(ranks);
        match of {
            Collective::RingAllReduce => {
                let part = (bytes / u64::from(ranks)).max(1);
                let steps = (1..=u64::from(ranks - 1) * 2).map(|_| (ahead(1), behind(1), part));
                steps_of(f, steps)
            }
            Collective::DoublingAllReduce => {
                let peer = |far: u64| u64::from(rank) ^ far;
                steps_of(f, doubling.map(|far| (peer(far), peer(far), bytes)))
            }
            Collective::Barrier => {
                steps_of(f, doubling.map(|far| (ahead(far), behind(far), bytes)))
            }
            Collective::AllToAll => {
                for far in 1..u64::from(ranks) {
                    writeln!(f, "s{far}: send {bytes}b to {}", ahead(far))?;
                    writeln!(f, "r{far}: recv {bytes}b from {}", behind(far))?;
                }
                Ok(())
            }
        }
    }
}

/// Writes the steps of one rank. A step has a receiver, a sender and a number of bytes. In each
/// step the rank sends the data that it received in the previous step.
fn steps_of(
    f: &mut fmt::Formatter<'_>,
    steps: impl Iterator<Item = (u64, u64, u64)>,
) -> fmt::Result {
    for (step, (to, from, bytes)) in (1..).zip(steps) {
        writeln!(f, "s{step}: send {bytes}b to {to} tag {step}")?;
        writeln!(f, "r{step}: recv {bytes}b from {from} tag {step}")?;
        if step > 1 {
            writeln!(f, "s{step} requires r{}", step - 1)?;
        }
    }
    Ok(())
}

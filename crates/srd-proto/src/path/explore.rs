//! Search for paths that are better than those in use. A window that is full of packets of
//! confirmed paths would otherwise never find idle links.
//!
//! From time to time a packet tests the next path in the rotation, instead of using the confirmed
//! path whose turn it is. If the tested path turns out to be much faster than most, it stays in use
//! in place of the confirmed path. Otherwise the confirmed path is used again: among equal paths a
//! change would only disturb the distribution of the packets in flight.

use super::{PathId, PathSet};
use crate::time::Instant;

/// Number of confirmations between two searches after a search that found a better path. The number
/// doubles after each search without a result.
pub(super) const EVERY_MIN: u32 = 64;
/// Maximum number of confirmations between two searches.
const EVERY_MAX: u32 = 1024;

/// State of the search for another path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exploration {
    stage: Stage,
    every: u32,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Number of confirmations until the next search.
    Counting(u32),
    /// A search is due: the next packet uses another path in place of this confirmed path.
    Wanted(PathId),
    /// A search is in progress: a packet used the second path in place of the first. The number is
    /// how many more confirmations may pass before the search ends without a result.
    Out(PathId, PathId, u32),
}

impl Exploration {
    pub(super) fn after(every: u32) -> Self {
        Self { stage: Stage::Counting(every), every }
    }
}

impl PathSet {
    /// Processes a confirmation of a path. `early`: the path was much faster than most. Returns the
    /// path that enters the ring of confirmed paths, if any.
    pub(super) fn explore(&mut self, path: PathId, early: bool) -> Option<PathId> {
        // P4a: Tests of other paths
        let every = self.exploration.every;
        let stage = &mut self.exploration.stage;
        match *stage {
            Stage::Counting(0) => {
                *stage = Stage::Wanted(path);
                None
            }
            Stage::Counting(left) => {
                *stage = Stage::Counting(left - 1);
                Some(path)
            }
            Stage::Wanted(_) => Some(path),
            Stage::Out(from, to, _) if path == to => {
                let every = if early { EVERY_MIN } else { (every * 2).min(EVERY_MAX) };
                self.exploration = Exploration::after(every);
                Some(if early { to } else { from })
            }
            // The packet was lost, or `EVERY_MAX` confirmations came before its own.
            Stage::Out(_, _, 0) => {
                self.exploration = Exploration::after(every);
                Some(path)
            }
            Stage::Out(from, to, left) => {
                *stage = Stage::Out(from, to, left - 1);
                Some(path)
            }
        }
    }

    /// Returns the path that the next packet tests, if a search is due.
    pub(super) fn pick_unknown(&mut self, now: Instant) -> Option<PathId> {
        let Stage::Wanted(from) = self.exploration.stage else { return None };
        let to = self.rotate_usable(now);
        self.exploration.stage = Stage::Out(from, to, EVERY_MAX);
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    use super::super::PathLatency;
    use super::*;
    use crate::config::Config;
    use crate::time::Duration;

    const LINKS: usize = 4;

    /// Simulates a constant window of packets on four links, each of which serves one packet at a
    /// time. Each fourth path uses the same link.
    struct Fabric {
        paths: PathSet,
        queues: [VecDeque<PathId>; LINKS],
        served: [u32; LINKS],
        now: Instant,
    }

    impl Fabric {
        fn new(in_flight: impl IntoIterator<Item = u8>) -> Self {
            let paths = PathSet::new(&Config { paths: 64, ..Config::default() }, 1);
            let (queues, now) = (Default::default(), Instant::from_nanos(1000));
            let mut fabric = Self { paths, queues, served: [0; LINKS], now };
            for path in in_flight {
                fabric.queues[usize::from(path) % LINKS].push_back(PathId(path));
            }
            fabric
        }

        /// Each link serves a packet; the packet's path is confirmed, and another packet leaves.
        fn tick(&mut self) {
            self.now += Duration::from_nanos(10);
            let mut lengths: Vec<usize> = self
                .queues
                .iter()
                .flat_map(|queue| (0..queue.len()).map(|_| queue.len()))
                .collect();
            lengths.sort_unstable();
            let median = lengths[lengths.len() / 2];
            for link in 0..LINKS {
                let length = self.queues[link].len();
                let Some(path) = self.queues[link].pop_front() else { continue };
                self.served[link] += 1;
                let latency = match length {
                    length if length + 3 <= median => PathLatency::Early,
                    length if length >= median + 3 => PathLatency::Late(1),
                    _ => PathLatency::Typical,
                };
                self.paths.on_delay(self.now, path, 0, 0, latency);
                let next = self.paths.pick(self.now, Duration::from_secs(1));
                self.queues[usize::from(next.0) % LINKS].push_back(next);
            }
        }

        fn lengths(&self) -> [usize; LINKS] {
            [0, 1, 2, 3].map(|link| self.queues[link].len())
        }
    }

    #[test]
    fn links_that_stand_idle_are_found() {
        let crowded = (0..32u8).filter(|path| path % 4 < 2);
        let mut fabric = Fabric::new(crowded);
        assert_eq!(fabric.lengths(), [8, 8, 0, 0]);
        for _ in 0..4000 {
            fabric.tick();
        }
        fabric.served = [0; LINKS];
        for _ in 0..1000 {
            fabric.tick();
        }
        assert!(fabric.served.iter().all(|served| *served > 900), "{:?}", fabric.served);
    }

    #[test]
    fn among_paths_that_are_alike_nothing_changes() {
        let mut fabric = Fabric::new(0..16);
        let mut uneven = 0;
        for _ in 0..20_000 {
            fabric.tick();
            let lengths = fabric.lengths();
            uneven += u32::from(lengths.iter().any(|length| length.abs_diff(4) > 1));
        }
        assert_eq!(uneven, 0, "never by more than the one packet that looks elsewhere");
        assert_eq!(fabric.paths.exploration.every, EVERY_MAX);
    }
}

//! Is there a better path than those in use? A window that is full of confirmed paths' packets
//! would never find out that the links beside them are idle.
//!
//! So from time to time a packet does not follow the confirmation that lets it go, but takes the
//! next path in rotation. If that one turns out to be much faster than most it stays in use; else
//! the confirmed one comes back, for among paths that are alike each change would only unsettle how
//! the packets in flight are spread.

use super::{PathId, PathSet};
use crate::time::Instant;

/// Of so many confirmations one leads elsewhere: often while better paths are found, ever more
/// rarely while none is.
pub(super) const EVERY_MIN: u32 = 64;
const EVERY_MAX: u32 = 1024;

/// How far a look at another path has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exploration {
    stage: Stage,
    every: u32,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// So many confirmations until the next.
    Counting(u32),
    /// The next packet shall not take this path, but another.
    Wanted(PathId),
    /// A packet took the second path in place of the first; it counts down until it is confirmed.
    Out(PathId, PathId, u32),
}

impl Exploration {
    pub(super) fn after(every: u32) -> Self {
        Self { stage: Stage::Counting(every), every }
    }
}

impl PathSet {
    /// A path was confirmed. Which one shall be used again, if any.
    pub(super) fn explore(&mut self, path: PathId, early: bool) -> Option<PathId> {
        // P4a
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
            // The packet was lost, or is late by so many others.
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

    /// The path to look at with this packet, if it is time.
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

    /// Packets of a constant window on four links, each of which serves one packet at a time.
    /// Every fourth path takes the same link.
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

        /// Each link serves a packet; each that was served is confirmed, and another leaves.
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

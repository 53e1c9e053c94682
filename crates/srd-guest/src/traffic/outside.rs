//! Division of one turn of the loop between sources of packets that arrive at this worker: the
//! internet's side, other hosts, and the other workers of this host.

/// A source of arriving packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Edge,
    Hosts,
    Workers,
}

/// Determines which of two sources the next turn reads first.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    second_first: bool,
}

impl Shares {
    /// Reads at most `most` frames of both sources: half of each, and one source may use the unused
    /// part of the other source. `read` returns the number of frames that it has read. The source
    /// that is read first alternates, so that each gets its share even if a turn has only one
    /// frame. // N1
    pub(crate) fn read(
        &mut self,
        most: u32,
        [one, other]: [Source; 2],
        mut read: impl FnMut(Source, u32) -> u32,
    ) -> u32 {
        let (first, second) = if self.second_first { (other, one) } else { (one, other) };
        self.second_first = !self.second_first;
        let half = most.div_ceil(2);
        let of_first = read(first, half);
        let mut sum = of_first;
        if sum < most {
            sum += read(second, most - sum);
        }
        if sum < most && of_first == half {
            sum += read(first, most - sum);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `count` turns of at most `most` frames each, with `left` frames waiting at the two
    /// sources. Returns the number of frames that each turn has read from each source.
    fn turns(most: u32, mut left: [u32; 2], count: usize) -> Vec<[u32; 2]> {
        let mut shares = Shares::default();
        let turn = |_| {
            let mut read = [0; 2];
            let sum = shares.read(most, [Source::Edge, Source::Hosts], |source, most| {
                let at = usize::from(source == Source::Hosts);
                let frames = left[at].min(most);
                left[at] -= frames;
                read[at] += frames;
                frames
            });
            assert_eq!(sum, read[0] + read[1]);
            read
        };
        (0..count).map(turn).collect()
    }

    /// Regression: a turn read its maximum number of frames from each of the two sources, but
    /// counted only the frames of the source with more of them. So a frame seemed to cost twice its
    /// time.
    #[test]
    fn regression_both_together_have_the_frames_of_one_turn() {
        for most in [1, 2, 3, 32] {
            let all = turns(most, [10_000; 2], 100);
            assert!(all.iter().all(|[edge, hosts]| edge + hosts == most), "{most}");
            let edge: u32 = all.iter().map(|of| of[0]).sum();
            assert_eq!(edge, most * 50, "half of the time of each, {most}");
        }
    }

    #[test]
    fn what_one_does_not_use_is_the_other_s() {
        assert_eq!(turns(32, [0, 100], 2), [[0, 32], [0, 32]]);
        assert_eq!(turns(32, [100, 0], 2), [[32, 0], [32, 0]]);
        assert_eq!(turns(32, [100, 5], 1), [[27, 5]]);
        assert_eq!(turns(32, [3, 4], 1), [[3, 4]]);
    }
}

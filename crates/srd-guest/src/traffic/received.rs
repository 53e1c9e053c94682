//! Frames that were received from other hosts.
//!
//! A read of the sockets returns up to 64 messages, each with a bundle of up to 32 small frames or
//! with several packets. So it may return many times as many frames as one turn has. The card gets
//! them in portions, so that instances have turns in between. In a read that is larger than a
//! portion, the receivers of the frames take turns, so that the frames of one do not wait for all
//! frames to another.
//!
//! Bounds: [`WAITING_FRAMES_MAX`] frames wait after a turn, and no read is made while the next turn
//! has enough frames. Frames that timers release wait in addition until the next turn.

use std::collections::HashMap;
use std::sync::Arc;

use srd_card::vpc::Envelope;

use crate::traffic::shares::Owner;

/// Number of frames of other hosts that a turn gives to the card, if more wait. TCP segments of one
/// portion are joined, so a portion has more frames than the turn of an instance.
const PORTION_FRAMES: usize = 128;
/// Largest number of frames that wait after a turn. The turn gives the card all frames beyond.
const WAITING_FRAMES_MAX: usize = 4096;
/// Number of successive frames to one receiver, if receivers take turns.
const TURN_FRAMES: usize = 16;

/// Frames that were received from other hosts. The frames to one receiver are in the order of their
/// arrival.
#[derive(Debug, Default)]
pub struct Received {
    /// The envelope of each frame, with its source and destination, and the frame.
    pub frames: Vec<(Envelope, Vec<u8>)>,
    /// Runs of successive frames: the host that has sent them, their number, and whether they used
    /// SRD.
    pub hosts: Vec<(Arc<str>, usize, bool)>,
    /// Frames with an unknown kind of trailer.
    pub(crate) unknown: u64,
}

impl Received {
    /// Adds a frame that a host has sent. `by_srd`: whether it was received over SRD.
    #[inline]
    pub fn push(&mut self, host: &Arc<str>, by_srd: bool, frame: (Envelope, Vec<u8>)) {
        self.frames.push(frame);
        count_frame(&mut self.hosts, host, by_srd);
    }

    /// Moves the frames of `other`, which one read has returned, behind these frames, and keeps the
    /// memory of both. If they are more than a portion, their receivers take turns. // N2
    pub(crate) fn append(&mut self, other: &mut Self) {
        if other.frames.len() > PORTION_FRAMES {
            other.interleave();
        }
        if self.frames.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        self.frames.append(&mut other.frames);
        self.hosts.append(&mut other.hosts);
    }

    /// Moves the first frames to `portion`, which has no frames: the portion of a turn that may
    /// read `most` frames. // N2
    pub(crate) fn take_portion(&mut self, most: usize, portion: &mut Self) {
        let waiting = self.frames.len();
        let excess = waiting.saturating_sub(WAITING_FRAMES_MAX);
        let count = most.max(PORTION_FRAMES).max(excess);
        if waiting <= count {
            std::mem::swap(self, portion);
            return;
        }
        portion.frames.extend(self.frames.drain(..count));
        let (mut left, mut used) = (count, 0);
        for (host, frames, by_srd) in &mut self.hosts {
            if left == 0 {
                break;
            }
            let some = (*frames).min(left);
            portion.hosts.push((Arc::clone(host), some, *by_srd));
            (*frames, left) = (*frames - some, left - some);
            used += usize::from(*frames == 0);
        }
        self.hosts.drain(..used);
    }

    /// Orders the frames so that their receivers take turns of [`TURN_FRAMES`] frames.
    fn interleave(&mut self) {
        let Self { frames, hosts, .. } = self;
        let first = frames.first().map(receiver);
        if frames.iter().all(|frame| Some(receiver(frame)) == first) {
            return;
        }
        let mut numbers: HashMap<Owner, usize> = HashMap::new();
        let mut in_turns = Vec::with_capacity(frames.len());
        let mut arrived = frames.drain(..);
        for (host, count, by_srd) in hosts.drain(..) {
            for frame in arrived.by_ref().take(count) {
                let number = numbers.entry(receiver(&frame)).or_default();
                in_turns.push((*number / TURN_FRAMES, Arc::clone(&host), by_srd, frame));
                *number += 1;
            }
        }
        drop(arrived);
        // The sort is stable, so frames to one receiver keep their order.
        in_turns.sort_by_key(|(turn, ..)| *turn);
        for (_, host, by_srd, frame) in in_turns {
            self.push(&host, by_srd, frame);
        }
    }
}

/// Returns the interface or NAT gateway that receives a frame.
fn receiver((envelope, _): &(Envelope, Vec<u8>)) -> Owner {
    Owner::that_receives(envelope)
}

/// Adds a frame to the runs of successive frames ([`Received::hosts`]).
#[inline]
pub(crate) fn count_frame(hosts: &mut Vec<(Arc<str>, usize, bool)>, host: &Arc<str>, by_srd: bool) {
    match hosts.last_mut() {
        Some((last, count, rode)) if Arc::ptr_eq(last, host) && *rode == by_srd => *count += 1,
        _ => hosts.push((Arc::clone(host), 1, by_srd)),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use srd_card::tenants::{Settings, TenantId, Tenants};
    use srd_proto::time::Duration;
    use srd_vpc::id::EniId;

    use super::*;

    /// The numbers of frames, and the host of each run of frames with their number.
    type Portion = (Vec<u32>, Vec<(String, usize)>);

    /// Time that the card needs for a frame of these tests.
    const FRAME_TIME: Duration = Duration::from_micros(5);

    /// Returns frames of hosts: for each host, the interface to which it sends, and the numbers of
    /// its frames.
    fn read(hosts: &[(&str, u64, Range<u32>)]) -> Received {
        let mut read = Received::default();
        for (host, to, numbers) in hosts {
            let host: Arc<str> = (*host).into();
            let envelope = Envelope::Between { from: EniId(1), to: EniId(*to) };
            for number in numbers.clone() {
                read.push(&host, true, (envelope, number.to_be_bytes().to_vec()));
            }
        }
        read
    }

    /// Takes the next portion.
    fn portion(of: &mut Received, most: usize) -> Portion {
        let mut portion = Received::default();
        of.take_portion(most, &mut portion);
        let number = |(_, frame): &(Envelope, Vec<u8>)| {
            u32::from_be_bytes(frame.as_slice().try_into().unwrap())
        };
        let hosts = portion.hosts.iter().map(|(host, count, _)| (host.to_string(), *count));
        (portion.frames.iter().map(number).collect(), hosts.collect())
    }

    /// Regression: one read of bundles returned 832 frames of a flood, and one turn gave all of
    /// them to the card. A packet of an instance waited for the end of this turn.
    #[test]
    fn regression_an_instance_waits_for_a_part_of_a_large_read() {
        let (outside, instance) = (TenantId(u32::MAX), TenantId(1));
        let mut tenants = Tenants::new(Settings::default());
        assert!(tenants.add(outside, 1) && tenants.add(instance, 1));
        let mut waiting = Received::default();
        waiting.append(&mut read(&[("alpha", 2, 0..832)]));
        tenants.wake(outside);
        let turn = tenants.next().unwrap();
        let most = usize::try_from(turn.frames).unwrap();
        let frames = u32::try_from(portion(&mut waiting, most).0.len()).unwrap();
        // The instance sends a packet at the beginning of the turn.
        tenants.wake(instance);
        let spent = FRAME_TIME.times(frames.into());
        tenants.end(turn, frames, spent);
        assert!(spent < Duration::from_millis(1), "{spent:?}");
        assert_eq!(tenants.next().map(|turn| turn.tenant), Some(instance));
        assert_eq!(waiting.frames.len(), 832 - PORTION_FRAMES);
    }

    #[test]
    fn portions_have_the_frames_in_order_with_their_hosts() {
        let mut waiting = Received::default();
        waiting.append(&mut read(&[("alpha", 2, 0..100), ("beta", 2, 100..250)]));
        waiting.append(&mut read(&[("beta", 2, 250..300)]));
        let wanted = |numbers: Range<u32>, hosts: &[(&str, usize)]| -> Portion {
            let hosts = hosts.iter().map(|(host, count)| ((*host).to_owned(), *count));
            (numbers.collect(), hosts.collect())
        };
        let first = wanted(0..128, &[("alpha", 100), ("beta", 28)]);
        assert_eq!(portion(&mut waiting, 4), first);
        let second = wanted(128..270, &[("beta", 122), ("beta", 20)]);
        assert_eq!(portion(&mut waiting, 142), second, "a turn may have more frames");
        assert_eq!(portion(&mut waiting, 4), wanted(270..300, &[("beta", 30)]));
        assert_eq!(portion(&mut waiting, 4), (Vec::new(), Vec::new()));
        assert!(waiting.hosts.is_empty());
    }

    #[test]
    fn waiting_frames_are_bounded() {
        let mut waiting = Received::default();
        for _ in 0..3 {
            waiting.append(&mut read(&[("alpha", 2, 0..3000)]));
        }
        assert_eq!(portion(&mut waiting, 4).0.len(), 9000 - WAITING_FRAMES_MAX);
        assert_eq!(waiting.frames.len(), WAITING_FRAMES_MAX);
        assert_eq!(portion(&mut waiting, 4).0.len(), PORTION_FRAMES);
    }

    /// Regression: a frame to an instance waited for all frames of a flood to another instance that
    /// the same read had returned.
    #[test]
    fn regression_a_frame_behind_a_flood_to_another_instance_is_in_the_first_portion() {
        let mut waiting = Received::default();
        waiting.append(&mut read(&[("alpha", 2, 0..800), ("beta", 3, 800..802)]));
        let (first, hosts) = portion(&mut waiting, 4);
        let number = |number: &u32| first.iter().position(|of| of == number);
        assert_eq!([800, 801].map(|of| number(&of)), [Some(TURN_FRAMES), Some(TURN_FRAMES + 1)]);
        let counts: Vec<_> = hosts.iter().map(|(host, count)| (host.as_str(), *count)).collect();
        assert_eq!(counts, [("alpha", 16), ("beta", 2), ("alpha", 110)]);
        let mut of_flood: Vec<u32> = first.into_iter().filter(|number| *number < 800).collect();
        while !waiting.frames.is_empty() {
            of_flood.extend(portion(&mut waiting, 4).0);
        }
        assert_eq!(of_flood, (0..800).collect::<Vec<_>>(), "each receiver's order is kept");
    }
}

//! Frames that were received from other hosts.

use std::sync::Arc;

use srd_card::vpc::Envelope;

/// Frames that were received from other hosts, in the order of their arrival.
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
}

/// Adds a frame to the runs of successive frames ([`Received::hosts`]).
#[inline]
pub(crate) fn count_frame(hosts: &mut Vec<(Arc<str>, usize, bool)>, host: &Arc<str>, by_srd: bool) {
    match hosts.last_mut() {
        Some((last, count, rode)) if Arc::ptr_eq(last, host) && *rode == by_srd => *count += 1,
        _ => hosts.push((Arc::clone(host), 1, by_srd)),
    }
}

//! Event descriptors that a front end shares with the device.
//!
//! The front end shares the open file with the device. It can make the descriptor blocking, or fill
//! its counter, at any time. So the code here does not rely on the descriptor's flags: it reads
//! without waiting, and it signals by a mechanism of the kernel that never blocks
//! ([`crate::sys::signal`]).

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::io::ReadWriteFlags;

pub(crate) use crate::sys::signal::{give, prepare};

/// Offset that selects the current position of the file; event descriptors have no other position.
const HERE: u64 = u64::MAX;

/// Resets the counter of an event descriptor. It does not wait if the counter is zero.
pub(crate) fn take(event: &impl AsFd) {
    let mut counter = [0; 8];
    let mut into = [IoSliceMut::new(&mut counter)];
    let _ = rustix::io::preadv2(event, &mut into, HERE, ReadWriteFlags::NOWAIT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn count(event: &impl AsFd) -> u64 {
        let mut counter = [0; 8];
        rustix::io::read(event, &mut counter).unwrap();
        u64::from_ne_bytes(counter)
    }

    #[test]
    fn regression_a_front_end_that_makes_its_events_blocking_does_not_stop_the_device() {
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        take(&event);
        assert!(give(&event));
        take(&event);
        take(&event);
        // With a full counter, no signal blocks, and the counter stays full.
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert!(give(&event) && give(&event));
        assert_eq!(count(&event), u64::MAX);
    }

    /// If there are more signals than fit into one batch of requests, each signal counts once. A
    /// descriptor of another kind gets no signal.
    #[test]
    fn signals_add_up() {
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        assert!((0..1000).all(|_| give(&event)));
        assert_eq!(count(&event), 1000);
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(!give(&pipe));
    }
}

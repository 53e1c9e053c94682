//! Event descriptors that a front end shares with the device.
//!
//! The front end has the same open file, so that it can make it a blocking one at any time, or fill
//! its counter. So nothing here relies on the flag: a descriptor is read without waiting, and
//! written as the kernel itself does ([`crate::sys::signal`]).

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::io::ReadWriteFlags;

pub(crate) use crate::sys::signal::{give, prepare};

/// The offset that stands for "where the file is": event descriptors have no other.
const HERE: u64 = u64::MAX;

/// Takes what has been signalled, if anything has.
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
        // A full counter: neither a signal nor the next one waits, and the counter stays full.
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert!(give(&event) && give(&event));
        assert_eq!(count(&event), u64::MAX);
    }

    /// More signals than requests are remembered, each of which counts once; none by a descriptor
    /// of another kind.
    #[test]
    fn signals_add_up() {
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        assert!((0..1000).all(|_| give(&event)));
        assert_eq!(count(&event), 1000);
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(!give(&pipe));
    }
}

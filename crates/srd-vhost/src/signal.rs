//! Event descriptors that a front end shares with the device.
//!
//! The front end has the same open file, so that it can make it a blocking one at any time, or fill
//! its counter. So nothing here relies on the flag: a descriptor is read without waiting, and
//! written only if there is room. Between the look and the write a front end could still fill the
//! counter: eventfd has no write that never waits.

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ReadWriteFlags};

/// The offset that stands for "where the file is": event descriptors have no other.
const HERE: u64 = u64::MAX;

/// Takes what has been signalled, if anything has.
pub(crate) fn take(event: &impl AsFd) {
    let mut counter = [0; 8];
    let mut into = [IoSliceMut::new(&mut counter)];
    let read = rustix::io::preadv2(event, &mut into, HERE, ReadWriteFlags::NOWAIT);
    // A kernel whose event descriptors do not know the flag.
    if read == Err(Errno::OPNOTSUPP) && is_ready(event, PollFlags::IN) {
        let _ = rustix::io::read(event, &mut [0; 8]);
    }
}

/// Signals the front end, unless it has not taken so many signals that there is no room.
pub(crate) fn give(event: &impl AsFd) {
    if is_ready(event, PollFlags::OUT) {
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
    }
}

fn is_ready(event: &impl AsFd, wanted: PollFlags) -> bool {
    let mut events = [PollFd::new(event, wanted)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut events, Some(&at_once)).is_ok() && events[0].revents().contains(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn regression_a_front_end_that_makes_its_events_blocking_does_not_stop_the_device() {
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        take(&event);
        give(&event);
        take(&event);
        take(&event);
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        give(&event);
        let mut counter = [0; 8];
        rustix::io::read(&event, &mut counter).unwrap();
        assert_eq!(u64::from_ne_bytes(counter), u64::MAX - 1, "nothing was added");
    }
}

//! The example in the documentation of `Port`: one turn with a guest in memory.

use std::sync::mpsc::{Receiver, Sender, channel};

use srd_proto::time::Instant;

use super::memory::MemoryGuest;
use super::port::Port;

struct Guest {
    sends: Receiver<Vec<u8>>,
    receives: Sender<Vec<u8>>,
}

impl MemoryGuest for Guest {
    fn send(&mut self) -> Option<Vec<u8>> {
        self.sends.try_recv().ok()
    }

    fn receive(&mut self, frame: Vec<u8>) {
        self.receives.send(frame).unwrap();
    }
}

#[test]
fn a_turn_reads_the_frames_of_a_guest_and_gives_frames_to_it() {
    let ((from_guest, sends), (receives, to_guest)) = (channel(), channel());
    let mut port = Port::Memory(Box::new(Guest { sends, receives }));
    from_guest.send(vec![1]).unwrap();

    port.wake(true);
    while let Some(frame) = port.read().unwrap() {
        port.write(Instant::ZERO, frame); // Each frame returns to the guest.
    }
    port.flush();

    assert_eq!(to_guest.recv().unwrap(), [1]);
    // A guest in memory has no descriptor, so the loop polls it without a wait.
    assert_eq!(port.descriptors().count(), 0);
    assert!(port.rest());
}

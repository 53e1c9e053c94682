//! The example in the documentation of `Port`: an interface in memory.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use rustix::io::Errno;

use super::Port;

struct MemoryPort {
    from_guest: Receiver<Vec<u8>>,
    to_guest: Sender<Vec<u8>>,
}

impl Port for MemoryPort {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.from_guest.try_recv() {
            Ok(frame) => Ok(Some(frame)),
            Err(TryRecvError::Empty) => Ok(None),
            // The guest's end was dropped, as if another program had deleted the interface.
            Err(TryRecvError::Disconnected) => Err(Errno::BADFD.into()),
        }
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.to_guest.send(frame.to_vec()).map_err(io::Error::other)
    }
}

#[test]
fn a_port_in_memory_passes_frames_in_both_directions_until_it_is_deleted() {
    let (guest_sends, from_guest) = channel();
    let (to_guest, guest_receives) = channel();
    let mut port = MemoryPort { from_guest, to_guest };
    assert_eq!(port.read().unwrap(), None);

    guest_sends.send(vec![1]).unwrap();
    assert_eq!(port.read().unwrap(), Some(vec![1]));
    port.write(&[2]).unwrap();
    assert_eq!(guest_receives.recv().unwrap(), [2]);

    drop(guest_sends);
    assert!(matches!(super::fatal_read(port.read().unwrap_err()), super::Fatal::InterfaceGone));
}

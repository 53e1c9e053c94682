//! Completions in the program's form: `srd_event`.

use srd_efa::layer::{Kind, OperationCompletion, Outcome};

use crate::Status;

/// Kind of event: a message was sent.
pub const SRD_SENT: u32 = 1;
/// Kind of event: a message was received.
pub const SRD_RECEIVED: u32 = 2;
/// Kind of event: a peer's memory was read.
pub const SRD_READ: u32 = 3;
/// Kind of event: a peer's memory was written.
pub const SRD_WRITTEN: u32 = 4;
/// Kind of event: an atomic operation was executed at a peer.
pub const SRD_COMPUTED: u32 = 5;
/// Kind of event: a peer wrote our memory, and requested a notification.
pub const SRD_NOTIFIED: u32 = 6;

/// `srd_event` in the layout of C.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // described in `srd.h`
pub struct Event {
    pub kind: u32,
    pub status: i32,
    /// Pointer that the program passed with the operation, returned unchanged.
    pub context: usize,
    pub peer: u64,
    pub tag: u64,
    pub length: u64,
    pub cut: u64,
    pub data: u64,
}

impl Event {
    /// Returns the event of a completion; `None` if the program did not request an event. `peer`:
    /// the program's handle for the other end.
    #[must_use]
    pub fn of(done: &OperationCompletion, peer: u64) -> Option<Self> {
        let failed = done.outcome != Outcome::Ok;
        let kind = match done.kind {
            Kind::Send => SRD_SENT,
            Kind::Receive => SRD_RECEIVED,
            Kind::Read => SRD_READ,
            Kind::Write => SRD_WRITTEN,
            Kind::Atomic | Kind::FetchAtomic => SRD_COMPUTED,
            Kind::RemoteWrite => SRD_NOTIFIED,
            Kind::RemoteRead => return None,
        };
        let told = if done.kind == Kind::RemoteWrite { done.data.is_some() } else { done.signaled };
        if !failed && !told {
            return None;
        }
        Some(Self {
            kind,
            status: Status::of_ending(done.outcome).number(),
            context: usize::try_from(done.context).unwrap_or(0),
            peer,
            tag: done.tag,
            length: done.length,
            cut: match done.outcome {
                Outcome::Truncated(bytes) => bytes,
                _ => 0,
            },
            data: done.data.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(kind: Kind, outcome: Outcome) -> OperationCompletion {
        OperationCompletion {
            kind,
            outcome,
            context: 7,
            tagged: true,
            signaled: true,
            peer: None,
            length: 5,
            offset: 0,
            tag: 9,
            data: None,
            released: false,
        }
    }

    #[test]
    fn what_peers_do_is_told_if_they_say_so() {
        let write = done(Kind::RemoteWrite, Outcome::Ok);
        assert_eq!(Event::of(&write, 1), None);
        let said = Event::of(&OperationCompletion { data: Some(3), ..write }, 1).unwrap();
        assert_eq!((said.kind, said.data, said.peer), (SRD_NOTIFIED, 3, 1));
        assert_eq!(Event::of(&done(Kind::RemoteRead, Outcome::Ok), 1), None);
    }

    #[test]
    fn failures_are_told_also_of_what_is_quiet() {
        let quiet = OperationCompletion { signaled: false, ..done(Kind::Send, Outcome::Ok) };
        assert_eq!(Event::of(&quiet, 1), None);
        let failed = OperationCompletion { outcome: Outcome::Unresponsive, ..quiet };
        let event = Event::of(&failed, 1).unwrap();
        assert_eq!((event.kind, event.status, event.context), (SRD_SENT, -23, 7));
    }

    #[test]
    fn what_found_no_room_is_counted() {
        let event = Event::of(&done(Kind::Receive, Outcome::Truncated(4)), 1).unwrap();
        assert_eq!((event.status, event.length, event.cut, event.tag), (-21, 5, 4, 9));
    }
}

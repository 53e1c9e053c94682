//! State of an endpoint under its host's lock, and the sink of its completions.

use std::io::{self, Write};
use std::sync::Arc;

use srd_efa::layer::{OperationCompletion, Outcome};
use srd_efa::rdm::Rdm;
use srd_host::Sink;
use srd_net::Notice;

use crate::event::Event;
use crate::peers::{ANY, Peers};
use crate::queue::Queue;
use crate::shares::Shares;
use crate::status::Status;

/// The program's handles and events.
#[derive(Debug)]
pub struct EventSink {
    /// The program's handles for peers.
    pub peers: Peers,
    /// Memory of the program that peers may read and write.
    pub shares: Shares,
    /// Events for the program.
    pub queue: Arc<Queue>,
    /// Whether notices are written to standard error.
    pub logs: bool,
}

impl EventSink {
    /// Whether `SRD_LOG` is set. An endpoint reads it when it is opened: if all endpoints shared a
    /// `OnceLock`, another thread might be setting it during a fork, and the child would wait for
    /// this thread.
    #[must_use]
    pub fn wants_log() -> bool {
        std::env::var_os("SRD_LOG").is_some_and(|on| on != "0")
    }

    /// Writes a line to standard error, if `logs` is set.
    fn log(&self, text: &str) {
        if self.logs {
            // If standard error is closed, the line is lost.
            let _ = writeln!(io::stderr(), "srd: {text}");
        }
    }
}

impl Sink for EventSink {
    type Layer = Rdm;

    fn has_room(&mut self) -> bool {
        self.queue.has_room()
    }

    fn done(&mut self, done: OperationCompletion, rdm: &Rdm) {
        // The handle for a removed peer is no longer valid, and its number may already belong to
        // another peer.
        let named = done.peer.filter(|_| done.outcome != Outcome::Removed);
        let handle = named.map_or(ANY, |peer| self.peers.handle(peer, rdm.uses(peer)));
        if let Some(event) = Event::of(&done, handle) {
            self.queue.push(event);
        }
    }

    fn notice(&mut self, notice: Notice) {
        self.log(&notice.to_string());
    }

    fn broken(&mut self, error: &io::Error) {
        self.log(&format!("the endpoint's sockets were lost: {error}"));
        self.queue.end(Status::Broken);
    }
}

//! What an endpoint keeps under its host's lock, and where the ends of operations go.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use srd_efa::layer::{Done, Outcome};
use srd_efa::rdm::Rdm;
use srd_host::Sink;
use srd_net::Notice;

use crate::event::Event;
use crate::peers::{ANY, Peers};
use crate::queue::Queue;
use crate::shares::Shares;
use crate::status::Status;

/// Words of the program's, and the events for it.
#[derive(Debug)]
pub struct EventSink {
    /// Its words for peers.
    pub peers: Peers,
    /// What it shares.
    pub shares: Shares,
    /// Events for it.
    pub queue: Arc<Queue>,
}

impl Sink for EventSink {
    type Layer = Rdm;

    fn has_room(&mut self) -> bool {
        self.queue.has_room()
    }

    fn done(&mut self, done: Done, _: &Rdm) {
        // The word for a peer that was removed has ended, and its number may name another.
        let named = done.peer.filter(|_| done.outcome != Outcome::Removed);
        let word = named.map_or(ANY, |peer| self.peers.word(peer));
        if let Some(event) = Event::of(&done, word) {
            self.queue.push(event);
        }
    }

    fn notice(&mut self, notice: Notice) {
        log(&notice.to_string());
    }

    fn broken(&mut self, error: &io::Error) {
        log(&format!("the endpoint's sockets were lost: {error}"));
        self.queue.end(Status::Broken);
    }
}

/// Tells a person who set `SRD_LOG`. A library does not write where it was not asked to.
fn log(text: &str) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    if *WANTED.get_or_init(|| std::env::var_os("SRD_LOG").is_some_and(|on| on != "0")) {
        // Without anybody to read it, it is lost.
        let _ = writeln!(io::stderr(), "srd: {text}");
    }
}

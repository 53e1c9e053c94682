//! The hand-over from one process of the daemon to the next, in which no connection ends.
//!
//! ```text
//!  the daemon that runs                            the daemon that takes over
//!      |                                               | reads its configuration
//!      |<--------- take-over, version of the form -----|
//!      |--------- state, descriptors ----------------->|
//!      |                                               | prepares everything
//!      |<--------- ready ------------------------------|
//!      | stops moving packets                          |
//!      |--------- go, state of the card -------------->| reads the state of the card
//!      |                                               | starts its threads, which wait
//!      |<--------- done -------------------------------|
//!      |========= the decision =======================>| moves packets, greets the peers
//!      | ends, and removes nothing                     | takes the child processes over
//! ```
//!
//! The descriptors are those of the control socket, the sockets to peers, the queues of the
//! interface, and the pipes to the processes `srd network` and `srd hooks`, which go on. Keys and
//! state of sessions are not handed over: peers answer a new handshake at once.
//!
//! # Exactly one process goes on
//!
//! The daemon that runs decides ([`decision`]), over a socket of its own, which of both processes
//! goes on. If the other process ends, or does not send `done` within ten seconds after `go`, the
//! daemon that runs goes on, and the other process ends as soon as it reads the decision. It has
//! moved no packet before, so the daemon that runs does not wait for its end. A process that gets
//! no decision within twenty seconds ends, and makes the opposite decision impossible. If the
//! daemon that runs is killed before it has decided, the other process goes on. Packets wait in
//! the sockets and in the queues of the interface between `go` and the decision.
//!
//! The process that takes over does everything that may fail before it sends `done`. A failure
//! after the decision is logged, and does not end it.
//!
//! # A node with instances
//!
//! The first descriptors include a connection to the helper of the instances, which serves both
//! processes and gives everything back when the last of its connections is closed. The state of the
//! card (tracked connections, credits, counters) comes with `go`. No packet moves until the
//! decision, so the state is exact in both cases: the process that takes over continues with it, or
//! the daemon that runs continues with its own state, which nothing has changed. After its decision
//! to end, the daemon that runs completes its files of flow logs.
//!
//! | end of | before `go` | from `go` to the decision | later |
//! |---|---|---|---|
//! | the daemon that runs | the other process ends, and the helper gives everything back | the other process continues | it was about to end |
//! | the process that takes over | the daemon that runs continues | the same | the helper gives everything back |
//!
//! # Requests during a hand-over
//!
//! A change that is confirmed during a hand-over would end with the daemon that runs. So changes of
//! the configuration and of its peers wait until the hand-over has failed; after its success they
//! are refused. Other rules for the instances are refused at once. When the daemon that runs has
//! sent its state, no earlier change is under way: then the other process reads its configuration
//! once more. If the daemon that runs gets SIGTERM during the hand-over, it sends `stop` after its
//! decision to end, and the other process stops.
//!
//! | file | contents |
//! |---|---|
//! | [`wire`] | lines, descriptors, and the file with the state |
//! | [`state`] | the state, and its comparison with the configuration |
//! | [`instances`] | what the card of the instances does |
//! | [`decision`] | the decision which of both processes goes on |
//! | `owner` | the process that has to end another process |
//! | `give` | the daemon that runs |
//! | `take` | the daemon that takes over |

pub mod decision;
pub(crate) mod give;
pub mod instances;
pub(crate) mod owner;
pub mod state;
pub(crate) mod take;
pub mod wire;

use std::fmt;

/// Error of a take-over: the configuration of the process that takes over differs in settings that
/// no take-over changes.
#[derive(Debug)]
pub struct Differs(String);

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Differs {}

/// Version of the format of the hand-over, and of the requests to `srd network`, to `srd hooks`
/// and to the helper of instances, which are of the earlier build after a take-over. It changes
/// with any change of the format or its meaning.
const VERSION: u32 = 4;
/// Line of the daemon that takes over: it has prepared everything.
const READY: &str = "ready";
/// First word of the line of the daemon that runs when it has stopped: the other process prepares
/// its last steps. The second word is the number of the descriptors that follow: those of the state
/// of the card.
const GO: &str = "go";
/// Line of the daemon that takes over: it is ready to move packets.
const DONE: &str = "done";
/// Line of the daemon that runs, after its decision to end: a user has requested its end, so the
/// other process has to stop.
pub(crate) const STOP: &str = "stop";

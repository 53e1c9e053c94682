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
//!      |--------- go --------------------------------->| moves packets, greets the peers
//!      |<--------- done -------------------------------|
//!      | ends, and removes nothing                     | takes the network process over
//! ```
//!
//! The descriptors are those of the control socket, the sockets to peers, the queues of the
//! interface, and the pipes to the processes `srd network` and `srd hooks`, which go on. Keys and
//! state of sessions are not handed over: peers answer a new handshake at once.
//!
//! Until `done` the daemon that runs can continue: if the other process ends, or does not send
//! `done` within ten seconds after `go`, it sends `back` and continues. The other process then
//! ends. If that process has greeted peers already, these may refuse the daemon for about a second,
//! because the greeting had a later epoch. If the daemon that runs is killed after `go`, the other
//! process continues. Packets wait in the sockets and in the queues of the interface between `go`
//! and `done`.
//!
//! | file | contents |
//! |---|---|
//! | [`wire`] | lines, descriptors, and the file with the state |
//! | [`state`] | the state, and its comparison with the configuration |
//! | `owner` | the process that has to end another process |
//! | `give` | the daemon that runs |
//! | `take` | the daemon that takes over |

pub(crate) mod give;
pub(crate) mod owner;
pub mod state;
pub(crate) mod take;
pub mod wire;

/// Version of the format of the hand-over, and of the requests to `srd network` and `srd hooks`,
/// which are of the earlier build after a take-over. It changes with any change of the format or
/// its meaning.
const VERSION: u32 = 1;
/// Line of the daemon that takes over: it has prepared everything.
const READY: &str = "ready";
/// Line of the daemon that runs: it has stopped, and the other may move packets.
const GO: &str = "go";
/// Line of the daemon that takes over: it moves packets.
const DONE: &str = "done";
/// Line of the daemon that runs: it continues as before, and the other has to end.
const BACK: &str = "back";

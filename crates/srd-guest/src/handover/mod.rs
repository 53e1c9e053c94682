//! One process of the card after another, without an end of the guests' connections.
//!
//! ```text
//!  the card that runs                              the card that takes over
//!      |                                               | reads its configuration
//!      |<--------- take-over, version of the form -----|
//!      | stops moving packets                          |
//!      |--------- state, descriptors ----------------->|
//!      |                                               | reads the state
//!      |<--------- ready ------------------------------|
//!      |--------- go --------------------------------->| moves packets
//!      | ends, and gives nothing back                  |
//! ```
//!
//! Until `go` the card that runs has lost nothing: if the other one dies, or is silent for
//! [`give::READY_WAIT_MAX`], it goes on as before. From then on the other one owns namespaces,
//! devices, and the duty to give back: its helper takes on what the one before has
//! ([`crate::helper`]). Packets wait in the devices meanwhile.
//!
//! | file | what |
//! |---|---|
//! | `wire` | lines, descriptors, and the file with the state |
//! | `state` | what is told besides the card's own state |
//! | `asker` | which processes may ask |
//! | `give` | the card that runs |
//! | `take` | the card that takes over |

pub(crate) mod asker;
pub(crate) mod give;
mod state;
pub(crate) mod take;
pub(crate) mod wire;

/// The version of the form of what is handed over. A change of it, or of its meaning, has another.
const VERSION: u32 = 5;
/// What the card that takes over says when it has read the state.
const READY: &str = "ready";
/// What the other one answers.
const GO: &str = "go";

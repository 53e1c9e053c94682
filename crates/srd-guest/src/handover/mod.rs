//! The hand-over from one process of the card to the next, which keeps the guests' connections.
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
//! Until `go` the card that runs has lost nothing: if the other one ends, or is silent for
//! [`give::READY_WAIT_MAX`], it continues as before. From then on the other card owns namespaces
//! and devices, and has to give them back: its helper takes over the objects of the previous helper
//! ([`crate::helper`]). Packets wait in the devices meanwhile.
//!
//! | file | contents |
//! |---|---|
//! | `wire` | lines, descriptors, and the file with the state |
//! | `state` | the state in addition to that of the card itself |
//! | `asker` | checks of both processes |
//! | `give` | the card that runs |
//! | `take` | the card that takes over |

pub(crate) mod asker;
pub(crate) mod give;
mod state;
pub(crate) mod take;
pub(crate) mod wire;

/// Version of the format of the hand-over. Any change of the format, or of its meaning, changes the
/// version.
const VERSION: u32 = 5;
/// Line of the card that takes over when it has read the state.
const READY: &str = "ready";
/// Reply of the card that runs.
const GO: &str = "go";

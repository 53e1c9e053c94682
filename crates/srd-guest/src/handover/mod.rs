//! The hand-over from one process of the card to the next, during which the guests' connections
//! survive.
//!
//! A node hands its card over as a part of its own hand-over, which
//! `srd_daemon::handover` describes: `node`. Without a node, the card does it alone:
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
//! Until `go` the card that runs has lost nothing: if the other card ends, or sends nothing for
//! [`give::READY_WAIT_MAX`], it continues as before. After `go` the other card owns namespaces and
//! devices, and has to remove or restore them at its end: its helper takes over the objects of the
//! previous helper ([`crate::helper`]). Packets wait in the devices meanwhile.
//!
//! | file | contents |
//! |---|---|
//! | `state` | the state in addition to that of the card itself |
//! | `node` | the card of a node |
//! | `asker` | checks of both processes |
//! | `give` | the card that runs |
//! | `take` | the card that takes over |

pub(crate) mod asker;
pub(crate) mod give;
pub(crate) mod node;
pub(crate) mod state;
pub(crate) mod take;

/// Version of the format of the hand-over. It changes with any change of the format or its meaning.
const VERSION: u32 = 5;
/// Line that the card that takes over sends when it has read the state.
const READY: &str = "ready";
/// Line that the card that runs sends when the other card may move packets.
const GO: &str = "go";

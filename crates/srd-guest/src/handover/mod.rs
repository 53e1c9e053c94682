//! The card in the hand-over of its node from one process to the next, during which the guests'
//! connections survive. `srd_daemon::handover` has the steps.
//!
//! ```text
//!  node that runs                                  node that takes over
//!    control thread: further connection of helper -> reads the VPC's file by the helper
//!    control thread --- Hold ---> loop: stops, exports its state
//!                                                  -> reads the state, adopts devices, waits
//!                 leave, or drop
//!                      |--------> loop: ends, or continues
//!                                                  -> owns namespaces, moves packets
//! ```
//!
//! The loop that has stopped changes nothing, so it can continue at any time until it has to leave.
//! Until the loop of the other process owns the namespaces, its end removes nothing either: the
//! helper, which both processes share, removes an object only at a request, or at the end of both.
//! Packets wait in the devices meanwhile. Frames in the queues between workers are lost.
//!
//! | file | contents |
//! |---|---|
//! | `state` | the state in addition to that of the card itself |
//! | `give` | the card that runs |
//! | `take` | the card that takes over |
//!
//! Bounds: the loop gets the order to stop within [`give::HOLD_WAIT_MAX`], or continues; it
//! completes files within [`give::LEAVE_WAIT_MAX`].

pub(crate) mod give;
pub(crate) mod state;
pub(crate) mod take;

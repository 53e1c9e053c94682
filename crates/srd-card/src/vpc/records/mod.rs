//! Records of packets: flow logs, mirror sessions and traces.
//!
//! | file | content |
//! |---|---|
//! | `logged` | packets that flow logs count |
//! | [`logs`] | windows of flow logs that are over |
//! | `mirrored` | selection of the packets that mirror sessions copy, and sending of the copies |
//! | [`mirror`] | the format of a copy |
//! | `traced` | the places where the events of a packet are recorded |
//! | [`trace`] | traces: filters, records and their bounds |

pub(super) mod logged;
pub mod logs;
pub mod mirror;
pub(super) mod mirrored;
pub mod trace;
pub(super) mod traced;

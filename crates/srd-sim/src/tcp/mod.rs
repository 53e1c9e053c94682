//! The TCP model: the transport that SRD is compared with, close to Linux's.
//!
//! A flow is one connection on one path, that of its 5-tuple; it is established beforehand
//! unless [`TcpConfig::handshake`] says otherwise. Data flows one way. The sender has a SACK
//! scoreboard, RACK and tail probes (RFC 8985), proportional rate reduction (RFC 6937), F-RTO
//! (RFC 5682), undo by D-SACK and timestamps, and CUBIC with HyStart, DCTCP or NewReno; the
//! receiver delays acknowledgements and reports SACK blocks and duplicates.
//!
//! | file | what |
//! |---|---|
//! | `config` | every knob, with Linux's values as defaults |
//! | `segment` | what a packet carries |
//! | `scoreboard` `rack` | what is in flight · what of it is lost |
//! | `rto` `timers` | round trips and the timeout · deadlines of many connections |
//! | `congestion` `cubic` `hystart` `dctcp` | the window |
//! | `sender` `ack` `recovery` | what to send · what an acknowledgement does · phases, undo |
//! | `receiver` | reassembly, acknowledgements |
//! | `node` | the host |

mod ack;
pub mod config;
pub mod congestion;
pub mod cubic;
pub mod dctcp;
pub mod hystart;
pub mod node;
pub mod rack;
pub mod receiver;
pub mod recovery;
pub mod rto;
pub mod scoreboard;
pub mod segment;
pub mod sender;
pub mod timers;

pub use config::{Congestion, RtoRule, TcpConfig};
pub use node::{TcpNode, TcpStats};
pub use segment::TcpSegment;

#[cfg(test)]
mod network_tests;

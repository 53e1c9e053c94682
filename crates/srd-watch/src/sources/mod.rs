//! Packets for the analysis: from interfaces and from capture files.
//!
//! | module | content |
//! |---|---|
//! | [`live`], [`mod@file`] | packets of interfaces, of capture files |
//! | [`input`] | a file, pipe or standard input, decompressed, whose reads a signal ends |
//! | [`source`] | an interface's packets: eBPF at tc, or a packet socket |
//! | `link`, [`other`] | headers before IP, and unsupported packets |
//! | [`read`], `tunnel`, [`arrival`] | parsing of packets for the analysis |
//! | [`steady`] | steady times from a clock that may be set back |
//! | [`keep`] | the last packets, saved when a burst has ended |

pub mod arrival;
pub mod file;
pub mod input;
pub mod keep;
pub(crate) mod link;
pub mod live;
pub mod other;
pub mod read;
pub mod source;
pub mod steady;
pub(crate) mod tunnel;

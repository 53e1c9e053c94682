//! The TCP model: the transport that SRD is compared with.

mod segment;

pub use segment::TcpSegment;

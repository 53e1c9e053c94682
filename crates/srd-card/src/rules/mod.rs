//! What is allowed and wanted: which peer an address belongs to.

pub mod prefix;

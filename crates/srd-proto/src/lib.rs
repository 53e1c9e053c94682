//! srd-proto

//! srd-net

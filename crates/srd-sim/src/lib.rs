//! srd-sim

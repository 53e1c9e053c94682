//! srd-lab

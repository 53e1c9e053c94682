//! Packets of instances: their order, their destinations, and other hosts.
//!
//! | module | content |
//! |---|---|
//! | `packets`, `outside` | reading of packets; packets from the internet's side |
//! | `turns`, `late` | the order in which packets are read; packets that waited for the loop |
//! | `gateways` | destinations of packets that leave the cloud |
//! | `transport`, `hosts` | other hosts over SRD, and their traffic |
//! | `received` | frames that other hosts have sent |
//! | `beside`, `shares` | frames between the workers of this host; the part that each tenant has |
//! | `following` | traced packets |

pub(crate) mod beside;
pub(crate) mod following;
pub(crate) mod gateways;
pub(crate) mod hosts;
pub(crate) mod late;
pub(crate) mod outside;
pub(crate) mod packets;
pub(crate) mod received;
pub(crate) mod shares;
pub(crate) mod transport;
pub(crate) mod turns;

//! Machines that a scenario puts on its hosts: transports and their applications.
//!
//! | module | content |
//! |---|---|
//! | [`any_node`] | all machines as one closed type |
//! | [`srd_node`] | the production SRD endpoint, with an application |
//! | [`tcp`], [`roce`] | models with which SRD is compared |
//! | [`express`] | a guest with the TCP model behind the production card |
//! | [`card`] | the cards of instances |
//! | [`rank`] | a rank of a parallel program over the Messaging Layer |
//! | [`blast`], [`pattern`] | a load generator for tests; bytes of payloads |

pub mod any_node;
pub mod blast;
pub mod card;
pub mod express;
pub(crate) mod pattern;
pub mod rank;
pub mod roce;
pub mod srd_node;
pub mod tcp;

//! Objects that an application opens, and the operations of endpoints.
//!
//! | module | content |
//! |---|---|
//! | [`fabric`], [`domain`] | `fid_fabric` and `fid_domain` |
//! | [`vector`] | address vectors |
//! | [`endpoint`] | `fid_ep` |
//! | [`transfer`], [`arithmetic`] | messages, reads and writes; atomic operations |
//! | [`region`], [`registration`] | registered memory |
//! | [`hosts`], [`handle`] | the endpoints of the transport that an object drives |

pub mod arithmetic;
pub mod domain;
pub mod endpoint;
pub mod fabric;
pub mod handle;
pub mod hosts;
pub mod region;
pub mod registration;
pub mod transfer;
pub mod vector;

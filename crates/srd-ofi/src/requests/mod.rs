//! Capabilities that the provider offers, requests of applications, and their match.
//!
//! | module | content |
//! |---|---|
//! | [`service`] | the kinds of endpoints, with their capabilities and limits |
//! | [`hints`] | a request of an application (`fi_getinfo`) |
//! | [`negotiate`] | comparison of a request with the offer |
//! | [`offers`] | the list of offers, for each interface |
//! | [`preferred`] | choice of the interface if the application names none |
//! | [`order`] | ordering guarantees between operations |
//! | [`address`] | the form of addresses |

pub mod address;
pub mod hints;
pub mod negotiate;
pub mod offers;
pub mod order;
pub mod preferred;
pub mod service;

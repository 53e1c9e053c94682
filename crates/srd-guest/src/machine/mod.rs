//! The machine around the card: namespaces, programs, addresses, locks.
//!
//! | module | content |
//! |---|---|
//! | `place`, `maker` | namespaces with their devices, and the thread that makes them |
//! | `within`, `batch` | work in a namespace; runs of `ip` with many lines |
//! | `namespace`, `programs` | namespaces and their interfaces; programs that run in them |
//! | [`pods`] | namespaces of other programs in which instances have their devices |
//! | `resolv_conf` | the resolver of a namespace's programs |
//! | `edge`, `own` | the internet's side; addresses of this machine, which instances do not reach |
//! | `locks`, `earlier` | locks that separate cards from each other; cards of earlier versions |

pub(crate) mod batch;
pub(crate) mod earlier;
pub(crate) mod edge;
pub(crate) mod locks;
pub(crate) mod maker;
pub(crate) mod namespace;
pub(crate) mod own;
pub(crate) mod place;
pub mod pods;
pub(crate) mod programs;
pub(crate) mod resolv_conf;
pub(crate) mod within;

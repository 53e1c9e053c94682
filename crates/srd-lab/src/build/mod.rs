//! A fabric: its configuration, and how it is built and removed.
//!
//! | module | content |
//! |---|---|
//! | [`config`], [`id`], [`address`] | configuration, and names and addresses of parts |
//! | `plan` | the commands that build a fabric |
//! | [`fabric`], [`state`] | a fabric that is up, and its state on disk |
//! | [`guard`] | removal when the process ends |

pub mod address;
pub mod config;
pub mod fabric;
pub mod guard;
pub mod id;
pub mod plan;
pub mod state;

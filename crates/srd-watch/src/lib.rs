//! Finds bursts of packets, on any interface or in capture files, without the project's card.
#![forbid(unsafe_code)]

pub mod allowances;
pub mod arrival;
mod average;
mod bins;
pub mod burst;
pub mod file;
mod find;
pub mod html;
pub mod keep;
pub mod live;
mod meters;
pub mod model;
pub mod read;
pub mod session;
pub mod sketch;
pub mod text;
pub mod timeline;
mod tunnel;
pub mod watch;

pub use arrival::{Arrival, Flow, Tunnel, Way};
pub use burst::Burst;
pub use model::Model;
pub use srd_card::Prefix;
pub use watch::{Event, Settings, Watch};

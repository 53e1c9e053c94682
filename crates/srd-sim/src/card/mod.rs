//! Hosts with the card of an instance: a guest that speaks the TCP model or sends datagrams at a
//! constant rate, the production [`Card`](srd_card::vpc::Card) at the full rates of its instance
//! type, and a link to the other host.
//!
//! ```text
//!  TcpNode    --segments--> Bursts --frames--> Card --frame, trailer---> link of the world
//!  Datagrams  ------------------------frames-->
//!  TcpNode, counts <--------frame::read <----- Card <--frame, trailer--- link of the world
//! ```
//!
//! Frames are real IPv4 packets, super-packets among them, and between hosts each travels with
//! the trailer of `docs/spec/card.md`, and no transport around it. A super-packet is one packet of
//! the world and has the size of all packets that it stands for.
//!
//! | file | what |
//! |---|---|
//! | [`cloud`] | two instances, as the text of a `vpc.toml` |
//! | [`datagrams`] | what sends UDP, and its packets |
//! | [`node`] | the host |

pub mod cloud;
pub mod datagrams;
pub mod node;

pub use cloud::{Cloud, Pair};
pub use datagrams::{Datagrams, Ports};
pub use node::{CardNode, CardNodeConfig};

//! Hosts with the card of an instance. The guest uses the TCP model or sends datagrams at a
//! constant rate. The production [`Card`](srd_card::vpc::Card) has the full rates of its instance
//! type; the production [`Express`](srd_card::Express) and endpoint connect it to the other hosts.
//!
//! ```text
//!  TcpNode   --segments--> Bursts --frames--> Card --frame, route--> Carrier --> link of the world
//!  Datagrams ----------------------frames-->
//!  TcpNode <-- Joins <-----frame::read <----- Card <----Arrival----- Carrier <-- link of the world
//! ```
//!
//! Frames are real IPv4 packets, super-packets among them. Between hosts they are packets of the
//! transport, as `srd card up` sends them. A flow uses SRD over all paths if ENA Express is on for
//! its interfaces; a super-packet then takes as few datagrams as hold it. Any other flow goes
//! plainly on one path, one datagram for each packet. The guest's driver delays interrupts as the
//! one on EC2 does, and its kernel joins the segments that have arrived meanwhile.
//!
//! | file | what |
//! |---|---|
//! | `carrier` | stage and endpoint of a host |
//! | [`cloud`] | instances, as the text of a `vpc.toml` |
//! | [`datagrams`] | sources of UDP datagrams, and their packets |
//! | `joins` | segments that the guest takes together |
//! | [`node`] | the host |

pub(crate) mod carrier;
pub mod cloud;
pub mod datagrams;
mod joins;
pub mod node;

pub use cloud::{Cloud, Pair};
pub use datagrams::{Datagrams, Ports};
pub use node::{CardNode, CardNodeConfig};

//! Hosts with the card of an EC2 instance. The guest uses the TCP model or sends datagrams at a
//! constant rate. The production [`Card`](srd_card::vpc::Card) has the rates of its instance type.
//! The production [`Express`](srd_card::Express) (the ENA Express layer) and the endpoint connect
//! the card to the other hosts.
//!
//! ```text
//!  TcpNode   --segments--> Bursts --frames--> Card --frame, route--> Carrier --> link of the world
//!  Datagrams ----------------------frames-->
//!  TcpNode <-- Joins <-----frame::read <----- Card <----Arrival----- Carrier <-- link of the world
//! ```
//!
//! Frames are real IPv4 packets, super-packets among them. Between hosts they are packets of the
//! transport, as `srd card up` sends them. A flow uses SRD over all paths if ENA Express is on for
//! its interfaces. A super-packet of such a flow needs as few datagrams as can contain it. Any
//! other flow is sent plainly on one path: one unreliable datagram for each packet. The guest's
//! driver delays interrupts as the driver on EC2 does, and its kernel joins the segments that
//! arrive in this time.
//!
//! | file | contents |
//! |---|---|
//! | `carrier` | ENA Express layer and endpoint of a host |
//! | [`cloud`] | instances, as the text of a `vpc.toml` |
//! | [`datagrams`] | sources of UDP datagrams, and their packets |
//! | `joins` | segments that the guest processes together |
//! | [`node`] | the host |

pub(crate) mod carrier;
pub mod cloud;
pub mod datagrams;
mod joins;
pub mod node;

pub use cloud::{Cloud, Pair};
pub use datagrams::{Datagrams, Ports};
pub use node::{CardNode, CardNodeConfig};

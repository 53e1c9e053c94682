//! Hosts with the card of an instance: a guest that speaks the TCP model or sends datagrams at a
//! constant rate, the production [`Card`](srd_card::vpc::Card) at the full rates of its instance
//! type, and the production [`Express`](srd_card::Express) and endpoint to the other hosts.
//!
//! ```text
//!  TcpNode   --segments--> Bursts --frames--> Card --frame, Way--> Carrier --> link of the world
//!  Datagrams ----------------------frames-->
//!  TcpNode <-- Joins <-----frame::read <----- Card <---Arrival---- Carrier <-- link of the world
//! ```
//!
//! Frames are real IPv4 packets, super-packets among them. Between hosts they are packets of the
//! transport, as `srd card up` sends them: a flow whose interfaces have ENA Express rides SRD over
//! all paths, a super-packet in as few datagrams as hold it; any other goes plainly on one path, a
//! datagram for each packet. The guest's driver holds interrupts back as the one on EC2 does, and
//! its kernel joins the segments that have come meanwhile.
//!
//! | file | what |
//! |---|---|
//! | `carrier` | stage and endpoint of a host |
//! | [`cloud`] | instances, as the text of a `vpc.toml` |
//! | [`datagrams`] | what sends UDP, and its packets |
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

//! A host whose guest speaks TCP through ENA Express: the TCP model above, the production card
//! and the production endpoint below.
//!
//! ```text
//!  TcpNode (guest) --segments--> Bursts --frames--> Express --datagrams--> Endpoint --> link
//!  TcpNode (guest) <--segments-- frame::read <----- Express <-deliveries-- Endpoint <-- link
//! ```
//!
//! The guest's segments leave as real IPv4 packets, several of one connection as one super-packet
//! of up to 64 KB with an offload header, as a kernel hands them to a network interface. They come
//! up as the card delivers them: a super-packet that rode SRD whole, one that went plainly in its
//! packets.
//!
//! As in `srd up`, the card reads whatever its guest has sent, and what the transport does not take
//! waits in the card's fair queue, which marks or drops what has waited for too long; so the
//! guest's congestion window is all that holds it back. The cards of a scenario know each other
//! from the start, and have agreed to use SRD, as connections of the TCP model are established.
//!
//! | file | what |
//! |---|---|
//! | `frame` | a segment of the model as bytes, and back |
//! | `bursts` | segments that leave together |
//! | `node` | the host |

pub(crate) mod bursts;
pub mod frame;
mod node;
#[cfg(test)]
mod tests;

pub use node::{ExpressNode, ExpressNodeConfig};

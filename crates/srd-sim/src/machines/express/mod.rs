//! A host whose guest sends TCP through ENA Express: the TCP model above, the production card and
//! the production endpoint below.
//!
//! ```text
//!  TcpNode (guest) --segments--> Bursts --frames--> Express --datagrams--> Endpoint --> link
//!  TcpNode (guest) <--segments-- frame::read <----- Express <-deliveries-- Endpoint <-- link
//! ```
//!
//! The guest's segments leave as real IPv4 packets. Several segments of one connection leave as one
//! super-packet of up to 64 KB with an offload header, as a kernel hands them to a network
//! interface. They arrive as the card delivers them: a super-packet that used SRD arrives whole,
//! and one that went plainly arrives as its packets.
//!
//! As in `srd up`, the card reads every packet that its guest has sent. Packets that the transport
//! does not take wait in the card's fair queue, which marks or drops packets that have waited for
//! too long. So only the guest's congestion window limits what the guest sends. The cards of a
//! scenario have each other's addresses from the start and have agreed to use SRD, as connections
//! of the TCP model are established.
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

//! A host with a guest that sends TCP through ENA Express: the guest with the TCP model, the
//! production card, and the production endpoint.
//!
//! ```text
//!  TcpNode (guest) --segments--> Bursts --frames--> Express --datagrams--> Endpoint --> link
//!  TcpNode (guest) <--segments-- frame::read <----- Express <-deliveries-- Endpoint <-- link
//! ```
//!
//! The guest's segments leave as real IPv4 packets. Several segments of one connection leave as one
//! super-packet of up to 64 KB with an offload header, as a kernel passes them to a network
//! interface. A super-packet that used SRD arrives as one piece. A super-packet that was sent
//! plainly (without SRD) arrives as its single packets.
//!
//! As in `srd up`, the card reads every packet that its guest has sent. Packets that the transport
//! does not accept wait in the card's fair queue, which marks or drops packets that have waited for
//! too long. So only the guest's congestion window limits the guest. The cards of a scenario have
//! each other's addresses from the start and have already agreed to use SRD.
//!
//! | file | contents |
//! |---|---|
//! | `frame` | a segment of the model as bytes, and the parser |
//! | `bursts` | segments that leave together as a super-packet |
//! | `node` | the host |

pub(crate) mod bursts;
pub mod frame;
mod node;
#[cfg(test)]
mod tests;

pub use node::{ExpressNode, ExpressNodeConfig};

//! The path of a frame through the card.
//!
//! | module | content |
//! |---|---|
//! | `read`, `with_first` | a frame whose headers are read, with the data of its first fragment |
//! | `egress`, `batch` | packets that guests send, one by one and in batches |
//! | `ingress` | packets that arrive for guests |
//! | `admitted` | the entry of an admitted packet in the flow table |
//! | `parcel` | a packet in the limits |
//! | `onward`, `onward_by_nat` | the path after the limits; NAT gateways between interfaces |
//! | `translate` | addresses that gateways write |

mod admitted;
pub(super) mod batch;
pub(super) mod egress;
pub(super) mod ingress;
pub(super) mod onward;
pub(super) mod onward_by_nat;
pub(super) mod parcel;
pub(super) mod read;
pub(super) mod translate;
pub(super) mod with_first;

//! State of flows, fragments and NAT gateways.
//!
//! | module | content |
//! |---|---|
//! | `flow`, `epochs` | state of a flow, and the validity of its verdicts |
//! | `fragments`, `firsts` | data of first fragments, used for the later ones |
//! | [`nat`], `nat_error` | ports that stand for connections through NAT gateways |
//! | `returns` | hosts to which answers for a NAT gateway go |
//! | `shares`, `cursors` | number of entries of a table for each owner, and searches for expired ones |
//! | [`stored`] | the header of state for another program |

pub(super) mod cursors;
pub(super) mod epochs;
pub(super) mod firsts;
pub(super) mod flow;
pub(super) mod fragments;
pub mod nat;
pub(super) mod nat_error;
pub(super) mod returns;
pub(super) mod shares;
pub mod stored;

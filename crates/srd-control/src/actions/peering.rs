//! X.
use super::{Actions};
pub(super) const ACTIONS: Actions = &[];
pub(super) fn end_of_vpc(_: &mut crate::state::Region, _: &str, _: &str, _: &str) {}

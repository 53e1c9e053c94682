//! X.
use super::{Actions};
pub(super) const ACTIONS: Actions = &[];

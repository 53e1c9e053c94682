//! Q keys, and what travels of them: the check says which run, and which session of it, a SEND is
//! for (U3).

use crate::wire::check_of;

/// The Q key of an endpoint's run.
#[allow(clippy::cast_possible_truncation)] // the halves of the number
pub(crate) fn qkey_of(incarnation: u64) -> u32 {
    (incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// What travels of it in frames that belong to no session.
pub(crate) fn run_check(incarnation: u64) -> u32 {
    check_of(qkey_of(incarnation))
}

/// What travels of it in messages of a session.
pub(crate) fn session_check(incarnation: u64, session: u32) -> u32 {
    check_of(qkey_of(incarnation) ^ session.wrapping_mul(0x85eb_ca6b))
}

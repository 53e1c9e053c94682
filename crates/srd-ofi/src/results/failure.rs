//! Reasons of failures, as numbers of libfabric and as text for the user.

use std::ffi::{CStr, c_int};

use srd_efa::layer::{Kind, OperationCompletion, Outcome};

use crate::abi::errno::{
    FI_ECANCELED, FI_ECONNRESET, FI_EHOSTUNREACH, FI_EKEYREJECTED, FI_EMSGSIZE, FI_ENOMSG,
    FI_EPROTO, FI_ETIMEDOUT, FI_ETRUNC,
};
use crate::results::completion::Failure;

/// Provider's error number if the sockets were lost: the first number after those of all outcomes.
pub const SOCKETS_LOST: c_int = 11;

/// Returns libfabric's error and this provider's error number of an outcome; `None` for success.
fn parts(outcome: Outcome) -> Option<(c_int, c_int)> {
    Some(match outcome {
        Outcome::Ok => return None,
        Outcome::Cancelled => (FI_ECANCELED, 1),
        Outcome::Truncated(_) => (FI_ETRUNC, 2),
        Outcome::NoMessage => (FI_ENOMSG, 3),
        Outcome::Unreachable => (FI_EHOSTUNREACH, 4),
        Outcome::Unresponsive => (FI_ETIMEDOUT, 5),
        Outcome::Restarted => (FI_ECONNRESET, 6),
        Outcome::Removed => (FI_ECANCELED, 7),
        Outcome::BadKey => (FI_EKEYREJECTED, 8),
        Outcome::Protocol => (FI_EPROTO, 9),
        Outcome::TooLong => (FI_EMSGSIZE, 10),
    })
}

/// Returns the meaning of a provider's error number.
#[must_use]
pub fn meaning(provider_error: c_int) -> &'static CStr {
    match provider_error {
        1 => c"it was cancelled",
        2 => c"the message was longer than the buffer",
        3 => c"there is no such message",
        4 => {
            c"the peer never answered: it is not there, packets do not pass, or it has another key"
        }
        5 => c"the peer answered before and has gone silent",
        6 => {
            c"the peer has restarted, or its address belongs to another process than the one meant"
        }
        7 => c"the peer was removed from the address vector",
        8 => c"the peer refused: no such memory key, out of its bounds, or no right to it",
        9 => c"the peer does not do this, or answered with what makes no sense",
        10 => c"the message is longer than the path passes, or than the peer's buffer",
        SOCKETS_LOST => c"the endpoint's sockets were lost",
        _ => c"no error of this provider",
    }
}

/// Returns the description of a failed operation; `None` if the operation succeeded. `peer` is the
/// remote endpoint as text. A failure that the application itself causes gets no text.
#[must_use]
pub fn of(done: &OperationCompletion, peer: Option<String>) -> Option<Failure> {
    let (error, provider_error) = parts(done.outcome)?;
    let overflow = match done.outcome {
        Outcome::Truncated(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        _ => 0,
    };
    let what = match (done.kind, done.tagged) {
        (Kind::Send, true) => "tagged message to",
        (Kind::Send, false) => "message to",
        (Kind::Receive, true) => "tagged message from",
        (Kind::Receive, false) => "message from",
        (Kind::Read, _) => "read from",
        (Kind::Write, _) => "write to",
        (Kind::Atomic | Kind::FetchAtomic, _) => "atomic operation at",
        (Kind::RemoteWrite, _) => "write from",
        (Kind::RemoteRead, _) => "read by",
    };
    // Applications that expect these errors often read them into an entry whose text buffer is not
    // initialised.
    let expected = [FI_ECANCELED, FI_ETRUNC, FI_ENOMSG].contains(&error);
    let text = match peer {
        Some(peer) if !expected => {
            format!("{what} {peer}: {}", meaning(provider_error).to_string_lossy())
        }
        _ => String::new(),
    };
    Some(Failure { error, provider_error, overflow, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(outcome: Outcome) -> OperationCompletion {
        OperationCompletion {
            kind: Kind::Send,
            outcome,
            context: 1,
            tagged: true,
            signaled: true,
            peer: None,
            length: 0,
            offset: 0,
            tag: 0,
            data: None,
            released: false,
        }
    }

    #[test]
    fn every_failure_of_a_peer_has_its_own_text_that_names_it() {
        let failures = [
            Outcome::Unreachable,
            Outcome::Unresponsive,
            Outcome::Restarted,
            Outcome::BadKey,
            Outcome::Protocol,
            Outcome::TooLong,
        ];
        let texts: std::collections::BTreeSet<_> = failures
            .iter()
            .map(|outcome| of(&done(*outcome), Some("10.0.0.1:7".into())).unwrap())
            .map(|failure| {
                assert!(failure.text.starts_with("tagged message to 10.0.0.1:7: "));
                assert!(failure.text.len() < crate::requests::offers::ERROR_TEXT_BYTES);
                assert_ne!(meaning(failure.provider_error), meaning(0));
                failure.text
            })
            .collect();
        assert_eq!(texts.len(), failures.len());
        assert_eq!(of(&done(Outcome::Ok), None), None);
        let cut = of(&done(Outcome::Truncated(5)), Some("10.0.0.1:7".into())).unwrap();
        assert_eq!((cut.overflow, cut.text.as_str()), (5, ""));
    }
}

//! Why a peer does not answer, as far as there is evidence.
//!
//! ```text
//!   what this machine refuses to send   no route, no such address, a firewall of its own
//!   what came from the peer's address   keys, versions, protection that do not agree
//!   what the network says (ICMP)        nothing listens, no such host, no route, a firewall
//!   what did not come                   nothing at all: a dead host or a blocked port
//! ```
//!
//! The first that is known of these is told, with what to do about it. Evidence is of the time
//! since the peer last answered, the first of the last packet to it. Except for that, and for a
//! key that an opening was made with, others than the peer could have forged it: it is for people
//! to read, and nothing is decided by it.

use std::io;

use rustix::io::Errno;
use srd_proto::{Diagnosis, Unreachable};

use crate::keys::PublicKey;
use crate::pages::figure::figures;

/// A reason, for programs and for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    /// One of few words: a label of metrics.
    pub(crate) kind: &'static str,
    /// What is wrong, and what to do.
    pub(crate) text: String,
}

/// What is known of a peer that does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Evidence {
    /// What came from its address last, or that nothing did.
    diagnosis: Option<Diagnosis>,
    /// Whether it said goodbye.
    has_closed: bool,
}

figures!(Evidence { diagnosis: Option<Diagnosis>, has_closed: bool });

impl Evidence {
    /// The core has seen something.
    pub(crate) fn saw(&mut self, what: Diagnosis) {
        // What came tells more than that nothing came afterwards.
        if what != Diagnosis::NothingReceived || self.diagnosis.is_none() {
            self.diagnosis = Some(what);
        }
    }

    /// The peer has said goodbye.
    pub(crate) fn closed(&mut self) {
        self.has_closed = true;
    }

    /// Of what several workers know of one peer, that which tells most.
    pub(crate) fn strongest(all: impl Iterator<Item = Self>) -> Self {
        let weight = |evidence: &Self| match evidence.diagnosis {
            None => 0,
            Some(Diagnosis::NothingReceived) => 1,
            Some(_) => 2,
        };
        let (mut strongest, mut has_closed) = (Self::default(), false);
        for evidence in all {
            has_closed |= evidence.has_closed;
            if weight(&evidence) > weight(&strongest) {
                strongest = evidence;
            }
        }
        Self { has_closed, ..strongest }
    }

    /// The reason, beside why this machine refused to send (an error number) and what the network
    /// last said.
    pub(crate) fn problem(
        self,
        refusal: Option<i32>,
        network: Option<Unreachable>,
    ) -> Option<Problem> {
        if let Some(errno) = refusal {
            return Some(Problem { kind: "cannot-send", text: refused(errno) });
        }
        let problem = |kind, text: &str| Some(Problem { kind, text: text.to_owned() });
        match (self.diagnosis, network) {
            (Some(Diagnosis::UnknownKey(key)), _) => Some(Problem {
                kind: "unknown-key",
                text: format!(
                    "it uses the key {}, which no peer has here: correct its public_key, if that \
                     is its own",
                    PublicKey(key)
                ),
            }),
            (Some(Diagnosis::OtherKeyForUs), _) => problem(
                "other-key-for-us",
                "it calls us by another public key than ours: correct that of this machine there",
            ),
            (Some(Diagnosis::AnswerUnauthentic), _) => problem(
                "answer-unauthentic",
                "its answers do not authenticate: the preshared keys differ",
            ),
            (Some(Diagnosis::OtherVersion), _) => problem(
                "other-version",
                "it speaks another version of the protocol: install the same release on both",
            ),
            (Some(Diagnosis::OtherProtection), _) => problem(
                "other-protection",
                "one side is plain and the other encrypted: `protection` must agree",
            ),
            (_, Some(Unreachable::Port)) => problem(
                "port-closed",
                "its host says that nothing listens at the port: start `srd up` there, or correct \
                 the port of its endpoint",
            ),
            (_, Some(Unreachable::Host)) => {
                problem("host-silent", "the network says that its host does not answer: is it on?")
            }
            (_, Some(Unreachable::Network)) => {
                problem("no-route", "the network says that there is no route to it")
            }
            (_, Some(Unreachable::Prohibited)) => problem(
                "prohibited",
                "a firewall says that it refuses the packets: open the UDP ports to it",
            ),
            _ if self.has_closed => problem("ended", "it said goodbye: `srd up` has ended there"),
            (Some(_), None) => problem(
                "nothing-heard",
                "nothing at all comes back: its host or `srd up` there is down, or a firewall \
                 drops UDP in between",
            ),
            (None, None) => None,
        }
    }
}

/// A name that has no address yet: nothing is sent, so that nothing comes back tells nothing.
pub(crate) fn unresolved(name: &str, error: &str) -> Problem {
    let why = if error.is_empty() { String::new() } else { format!(" ({error})") };
    let text = format!(
        "its name `{name}` has not been resolved{why}: nothing can be sent to it until it is; \
         correct `endpoint`, or look at DNS and /etc/hosts here (`getent hosts NAME`)"
    );
    Problem { kind: "name-unresolved", text }
}

/// What this machine's refusal to send means, and what to look at.
fn refused(errno: i32) -> String {
    let error = io::Error::from_raw_os_error(errno);
    let what = match Errno::from_io_error(&error) {
        // The first two also where the address that a socket is bound to is gone.
        Some(Errno::NETUNREACH | Errno::ADDRNOTAVAIL | Errno::HOSTUNREACH | Errno::NETDOWN) => {
            "this machine has no route to it: look at its own links and routes, and whether the \
             address of `listen` is still one of its own (listen = \"[::]:PORT\" goes on with any)"
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            "this machine may not send to it: look at its own firewall and routes"
        }
        _ => "this machine cannot send to it",
    };
    format!("{what} ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(evidence: Evidence, network: Option<Unreachable>) -> Option<&'static str> {
        evidence.problem(None, network).map(|problem| problem.kind)
    }

    #[test]
    fn a_name_without_an_address_is_the_problem_and_not_a_silent_host() {
        let problem = unresolved("b.example:7471", "no such name");
        assert_eq!(problem.kind, "name-unresolved");
        assert!(problem.text.starts_with("its name `b.example:7471`"), "{}", problem.text);
        assert!(!problem.text.contains("is down"), "{}", problem.text);
    }

    #[test]
    fn a_wrong_key_a_closed_port_and_a_dead_host_are_told_apart() {
        let mut silent = Evidence::default();
        assert_eq!(kind(silent, None), None);
        silent.saw(Diagnosis::NothingReceived);
        assert_eq!(kind(silent, None), Some("nothing-heard"));
        assert_eq!(kind(silent, Some(Unreachable::Port)), Some("port-closed"));
        assert_eq!(kind(silent, Some(Unreachable::Host)), Some("host-silent"));
        let mut ended = Evidence::default();
        ended.closed();
        ended.saw(Diagnosis::NothingReceived);
        assert_eq!(kind(ended, None), Some("ended"));
        // What came from it counts for more than what did not, and than what others say.
        let mut key = silent;
        key.saw(Diagnosis::UnknownKey([7; 32]));
        key.saw(Diagnosis::NothingReceived);
        assert_eq!(kind(key, Some(Unreachable::Port)), Some("unknown-key"));
        let text = key.problem(None, None).unwrap().text;
        assert!(text.contains(&PublicKey([7; 32]).to_string()), "{text}");
        // What this machine cannot send, nobody can answer.
        let refused = key.problem(Some(Errno::NETUNREACH.raw_os_error()), None).unwrap();
        assert_eq!(refused.kind, "cannot-send");
        assert!(refused.text.starts_with("this machine has no route to it"), "{}", refused.text);
    }
}

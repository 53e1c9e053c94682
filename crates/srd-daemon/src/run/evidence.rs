//! Finds the reason why a peer does not answer, from the available evidence.
//!
//! ```text
//!   refusals to send of this machine    no route, no such address, a firewall of its own
//!   packets from the peer's address     different keys, versions or protection
//!   ICMP errors of the network          port closed, no such host, no route, a firewall
//!   silence                             no packet at all: the host is down, or the port blocked
//! ```
//!
//! The first known reason in this order is reported, with advice. The evidence dates from the time
//! since the peer last answered; the refusal of this machine concerns the last packet to the peer.
//! Other hosts could have forged the evidence, except the refusal and the key in an opening.
//! Therefore it is only shown to people, and no decision depends on it.

use std::io;

use rustix::io::Errno;
use srd_proto::{Diagnosis, Unreachable};

use crate::keys::PublicKey;
use crate::pages::figure::figures;

/// A reason why a peer does not answer, for programs and for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    /// The reason as one of a few fixed words, which is also a label of metrics.
    pub(crate) kind: &'static str,
    /// The reason as a text, with advice.
    pub(crate) text: String,
}

/// Evidence about a peer that does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Evidence {
    /// The last diagnosis from packets of the peer's address, or from their absence; `None` if
    /// there is no diagnosis.
    diagnosis: Option<Diagnosis>,
    /// Whether the peer has closed the context.
    has_closed: bool,
}

figures!(Evidence { diagnosis: Option<Diagnosis>, has_closed: bool });

impl Evidence {
    /// Adds a diagnosis of the transport.
    pub(crate) fn saw(&mut self, what: Diagnosis) {
        // Evidence from a packet that arrived is not replaced by later silence.
        if what != Diagnosis::NothingReceived || self.diagnosis.is_none() {
            self.diagnosis = Some(what);
        }
    }

    /// Records that the peer has closed the context.
    pub(crate) fn closed(&mut self) {
        self.has_closed = true;
    }

    /// Returns the strongest evidence of all workers.
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

    /// Returns the reason. `refusal` is the error number if this machine refused to send to the
    /// peer, and `network` the last ICMP error.
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

/// The problem of a peer whose host name has no address yet. No packets are sent to it, so its
/// silence is no evidence.
pub(crate) fn unresolved(name: &str, error: &str) -> Problem {
    let why = if error.is_empty() { String::new() } else { format!(" ({error})") };
    let text = format!(
        "its name `{name}` has not been resolved{why}: nothing can be sent to it until it is; \
         correct `endpoint`, or look at DNS and /etc/hosts here (`getent hosts NAME`)"
    );
    Problem { kind: "name-unresolved", text }
}

/// Explains an error of the system on sending to the peer, with advice.
fn refused(errno: i32) -> String {
    let error = io::Error::from_raw_os_error(errno);
    let what = match Errno::from_io_error(&error) {
        // Of these errors, the first two also occur if the address to which a socket is bound was
        // removed.
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
        // A packet from the peer is stronger evidence than silence or ICMP errors of other hosts.
        let mut key = silent;
        key.saw(Diagnosis::UnknownKey([7; 32]));
        key.saw(Diagnosis::NothingReceived);
        assert_eq!(kind(key, Some(Unreachable::Port)), Some("unknown-key"));
        let text = key.problem(None, None).unwrap().text;
        assert!(text.contains(&PublicKey([7; 32]).to_string()), "{text}");
        // If this machine cannot send, no answer is possible.
        let refused = key.problem(Some(Errno::NETUNREACH.raw_os_error()), None).unwrap();
        assert_eq!(refused.kind, "cannot-send");
        assert!(refused.text.starts_with("this machine has no route to it"), "{}", refused.text);
    }
}

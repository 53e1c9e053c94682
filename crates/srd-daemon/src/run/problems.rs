//! Finds the reason why a peer does not answer, from its evidence and the resolution of its name.

use super::evidence::{Problem, unresolved};
use crate::config::HostPort;
use crate::pages::peer::PeerFigures;
use crate::snapshot::PeerState;

/// Returns the reason why a peer does not answer; `None` if it answers or the reason is not known.
/// The log, the status and the metrics all use this function.
pub(crate) fn of_peer(
    figures: &PeerFigures,
    host: Option<&HostPort>,
    lookup_error: &str,
) -> Option<Problem> {
    let is_known = figures.known_addresses().next().is_some();
    let problem = figures.problem();
    let Some(host) = host.filter(|_| figures.state() != PeerState::Up) else { return problem };
    if !is_known {
        return Some(unresolved(&host.to_string(), lookup_error));
    }
    let mut problem = problem?;
    if !lookup_error.is_empty() && matches!(problem.kind, "nothing-heard" | "host-silent") {
        let text = format!("; its name `{host}` does not resolve any more ({lookup_error})");
        problem.text.push_str(&text);
    }
    Some(problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::peer::Link;
    use srd_proto::Diagnosis;

    #[test]
    fn a_name_is_the_cause_in_the_log_as_in_the_status() {
        let host = HostPort { host: "b.example".into(), port: 7471 };
        let mut silent = PeerFigures { link: Link::Down, ..PeerFigures::default() };
        silent.evidence.saw(Diagnosis::NothingReceived);
        let of = |figures: &PeerFigures, error: &str| of_peer(figures, Some(&host), error).unwrap();
        // No packet can be sent to the peer before its name resolves, so its silence is no
        // evidence.
        assert_eq!(of(&silent, "no such name").kind, "name-unresolved");
        assert_eq!(of_peer(&silent, None, "").unwrap().kind, "nothing-heard");
        silent.addresses[0] = Some("192.0.2.2:7471".parse().unwrap());
        assert_eq!(of(&silent, "").text, of_peer(&silent, None, "").unwrap().text);
        let gone = of(&silent, "no such name");
        assert_eq!(gone.kind, "nothing-heard");
        assert!(gone.text.ends_with("does not resolve any more (no such name)"), "{}", gone.text);
        let up = PeerFigures { link: Link::Up, ..PeerFigures::default() };
        assert_eq!(of_peer(&up, Some(&host), "no such name"), None);
    }
}

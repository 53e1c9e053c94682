//! Tests how the control thread reacts to pages and reports. The workers have been ended, and the
//! tests write rows in their place.

use super::*;
use crate::pages::peer::{Link, PeerFigures};
use crate::run::tests::{Host, configuration, control, net, outer};
use crate::snapshot::PeerState;

fn row(link: Link, downs: u64) -> PeerFigures {
    PeerFigures { link, downs, ..PeerFigures::default() }
}

/// Ends the workers, because they would write rows once a second.
fn end_workers(host: &Host) {
    let began = std::time::Instant::now();
    for orders in &host.orders {
        orders.stop();
        while !orders.flags.has_ended() {
            assert!(began.elapsed().as_secs() < 60);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

fn states(control: &Control) -> Vec<PeerState> {
    control.peers.iter().map(|peer| peer.state).collect()
}

#[test]
fn reports_that_were_lost_are_made_good_by_the_pages() {
    let peers = [("a", outer(2, 0), "10.77.0.2/32"), ("b", outer(3, 0), "10.77.0.3/32")];
    let (mut control, _commands, host) = control(&net(), 1, 2, configuration(1, &peers));
    end_workers(&host);
    control.peers[0].page.rows[1].publish(&row(Link::Up, 0));
    control.peers[1].page.rows[0].publish(&row(Link::Down, 1));
    control.take_reports(now());
    assert_eq!(states(&control), [PeerState::Connecting; 2], "nobody has said anything");
    host.orders[1].flags.raise_look_again();
    control.take_reports(now());
    assert_eq!(states(&control), [PeerState::Up, PeerState::Down]);
}

#[test]
fn a_peer_is_routed_while_any_worker_reaches_it() {
    let peers = [("a", outer(2, 0), "10.77.0.2/32")];
    let (mut control, _commands, host) = control(&net(), 1, 2, configuration(1, &peers));
    end_workers(&host);
    control.config.interface.mode = Mode::Transparent;
    let number = control.peers[0].number;
    let mut after = |worker: usize, link, downs| {
        control.is_rerouted = false;
        control.peers[0].page.rows[worker].publish(&row(link, downs));
        control.look_at(now(), number);
        (control.peers[0].state, control.is_rerouted)
    };
    assert_eq!(after(0, Link::Up, 0), (PeerState::Up, true));
    assert_eq!(after(1, Link::Down, 1), (PeerState::Up, false), "the other worker calls in vain");
    assert_eq!(after(1, Link::Up, 1), (PeerState::Up, false));
    assert_eq!(after(0, Link::Down, 1), (PeerState::Up, false));
    assert_eq!(after(1, Link::Down, 2), (PeerState::Down, true));
    assert_eq!(after(0, Link::Up, 1), (PeerState::Up, true));
    // If the peer went down and came up between two checks, its routes are requested again.
    assert_eq!(after(0, Link::Up, 2), (PeerState::Up, true));
}

/// The command confirmed the change, which had no effect on packets of instances.
#[test]
fn regression_a_node_without_an_interface_has_no_settings_of_one() {
    let peers = [("a", outer(2, 0), "10.77.0.2/32")];
    let (mut control, _commands, host) = control(&net(), 1, 1, configuration(1, &peers));
    let change = crate::plane::Change { express: Some(false), ..Default::default() };
    control.set(&change).unwrap();
    end_workers(&host);
    control.config.interface.mode = Mode::Cloud;
    for peer in [None, Some("a".to_owned())] {
        let error = control.set(&crate::plane::Change { peer, ..change.clone() }).unwrap_err();
        assert!(error.contains("no interface") && error.contains("srd card apply"), "{error}");
    }
}

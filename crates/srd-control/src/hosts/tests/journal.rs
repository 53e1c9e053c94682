//! Lines of the log.

use super::*;

/// The log of the server contained nothing about hosts.
#[test]
fn regression_the_log_names_hosts_that_enrol_connect_leave_and_are_refused() {
    let server = Server::new("10.77.0.0/16");
    let has = |what: &str| {
        wait_until(what, || server.lines.lock().unwrap().iter().any(|line| line.contains(what)));
    };
    let token = server.token(1);
    let node = Node::new("a", 1);
    let mut client = server.connect(&node.identity);
    client.send(&node.enrol(&token));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    drop(client);
    has("the host a has enrolled from 127.0.0.1:");
    has(", with the overlay address 10.77.0.");
    let mut client = server.connect(&node.identity);
    client.send(&node.follow(0));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    has("the host a is connected from 127.0.0.1:");
    drop(client);
    has(": the session of the host a has ended: the connection has ended");
    let stranger = Node::new("b", 2);
    let mut client = server.connect(&stranger.identity);
    client.send(&stranger.enrol(&token));
    assert_eq!(client.receive().unwrap_err().reason, RefusalKind::TokenUsed);
    has(": the enrolment token has no use left");
    let lines = server.lines.lock().unwrap().join("\n");
    for secret in [&token.expose(), &token.id, &node.host.public_key] {
        assert!(!lines.contains(secret.as_str()), "{lines}");
    }
}

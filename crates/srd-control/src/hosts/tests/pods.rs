//! Requests of hosts about their pods.

use super::*;
use srd_enrol::{PodAnswer, PodRequest};

fn request(version: u32) -> FromHost {
    let request = PodRequest::Terminate { instance: "i-00000000".to_owned() };
    FromHost::Pod { version, request }
}

fn ask(server: &Server, own: &Identity, message: &FromHost) -> Result<FromController, Refusal> {
    let mut client = server.connect(own);
    client.send(message);
    client.receive()
}

#[test]
fn a_host_sends_a_request_about_pods_on_a_connection_beside_its_session() {
    let server = Server::new("10.77.0.0/16");
    let (node, mut session) = server.enrol("a", 1);
    let answer = ask(&server, &node.identity, &request(VERSION));
    assert_eq!(answer, Ok(FromController::Pod { answer: PodAnswer::Terminated }));
    session.snapshot();
    session.send(&FromHost::Ping);
    assert_eq!(session.receive(), Ok(FromController::Pong), "the session goes on");
    session.send(&request(VERSION));
    assert_eq!(session.receive().unwrap_err().reason, RefusalKind::Invalid);
}

#[test]
fn requests_of_strangers_and_unfit_requests_are_refused() {
    let server = Server::new("10.77.0.0/16");
    let (node, _session) = server.enrol("a", 1);
    let refused =
        |own: &Identity, message: &FromHost| ask(&server, own, message).unwrap_err().reason;
    let stranger = Identity::draw().unwrap();
    assert_eq!(refused(&stranger, &request(VERSION)), RefusalKind::HostUnknown);
    assert_eq!(refused(&node.identity, &request(VERSION + 1)), RefusalKind::Version);
    let long = PodRequest::Terminate { instance: "x".repeat(1000) };
    let long = FromHost::Pod { version: VERSION, request: long };
    assert_eq!(refused(&node.identity, &long), RefusalKind::Invalid);
}

#[test]
fn a_controller_without_this_permission_starts_no_pods() {
    let store = Box::<MemoryStore>::default();
    let control = Control::new(Access::AnyCredentials, 1, store, Box::new(NoMachines)).unwrap();
    let hub = Hub::new(Arc::new(Mutex::new(control)), None);
    let refusal = hub.admit_pod(Identity::draw().unwrap().fingerprint()).unwrap_err();
    assert_eq!(refusal.reason, RefusalKind::Invalid);
    assert!(refusal.message.contains("--host-pods"), "{refusal}");
}

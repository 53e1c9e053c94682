//! Tests of a helper whose card does not follow the protocol, as a guest that has taken control of
//! the card could make it do.

use std::io::{Read, Seek, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_timeout};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::serve::Helping;
use super::tests::Site;
use super::wire::{self, Receiver};
use super::*;

/// Time for which closing a slow descriptor blocks.
const SLOW: Duration = Duration::from_secs(240);
/// Limit of each step of a test.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a socket whose last descriptor takes [`SLOW`] to close, unless the other end is closed.
fn slow_to_close() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    set_socket_linger(&stream, Some(SLOW)).unwrap();
    (stream.into(), other)
}

/// Sends requests, before the helper starts. Returns both ends of the connection.
fn card(requests: &[Request]) -> (OwnedFd, OwnedFd) {
    let (card, end) = wire::pair().unwrap();
    wire::name_users(&end).unwrap();
    set_socket_timeout(&card, Timeout::Recv, Some(PATIENCE)).unwrap();
    for (id, request) in (1..).zip(requests) {
        wire::send(&card, &Message { id, body: Some(request) }, &[], PATIENCE).unwrap();
    }
    (card, end)
}

fn start(site: &Site, end: OwnedFd) -> thread::JoinHandle<()> {
    let helping = Helping::new(site.spec(), &site.path("locks"), end).unwrap();
    thread::spawn(move || drop(helping.run().unwrap()))
}

/// Sends requests and these descriptors with the last one, before the helper starts.
fn start_with(
    site: &Site,
    mut requests: Vec<Request>,
    descriptors: Vec<OwnedFd>,
) -> (OwnedFd, thread::JoinHandle<()>) {
    let last = requests.pop().expect("a request");
    let (card, end) = card(&requests);
    let message = Message { id: 1 + requests.len() as u64, body: Some(last) };
    let all: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    wire::send(&card, &message, &all, PATIENCE).unwrap();
    drop(all);
    // From now on, only the packet in the queue of the helper has these descriptors.
    drop(descriptors);
    (card, start(site, end))
}

/// The helper closed such descriptors in its loop, one by one, and served no connection meanwhile.
#[test]
fn regression_descriptors_of_a_request_delay_no_other_connection() {
    let site = Site::new();
    let (slow, other_end) = slow_to_close();
    let requests = vec![Request::Another, Request::End(BTreeSet::new())];
    let begin = Instant::now();
    let (card, thread) = start_with(&site, requests, vec![slow]);
    let mut receiver = Receiver::new();
    let mut said = receiver.next::<Answer>(&card).unwrap().unwrap();
    let other = said.descriptors.pop().expect("a connection");
    // The connection on which the descriptor came is closed, without an answer.
    assert!(receiver.next::<Answer>(&card).unwrap().is_none());
    let helper = Helper::over(other, None, None).unwrap();
    helper.end_programs(BTreeSet::new()).unwrap();
    // There is no further connection, on which more such descriptors could come.
    let error = format!("{:#}", helper.another().unwrap_err());
    assert!(error.contains("still being closed"), "{error}");
    assert!(begin.elapsed() < SLOW / 2, "the helper has waited");
    drop(other_end);
    let begin = Instant::now();
    while helper.another().is_err() {
        assert!(begin.elapsed() < PATIENCE, "they are not closed");
        thread::yield_now();
    }
    drop(Ending::new(helper));
    thread.join().unwrap();
}

/// The helper took such a packet for the end of the connection, and closed its descriptors in its
/// loop.
#[test]
fn regression_descriptors_of_an_empty_packet_delay_no_other_connection() {
    let site = Site::new();
    let (slow, other_end) = slow_to_close();
    let (card, end) = card(&[Request::Another]);
    {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let all = [slow.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&all)));
        sendmsg(&card, &[], &mut control, SendFlags::NOSIGNAL).unwrap();
    }
    // From now on, only the packet in the queue of the helper has this descriptor.
    drop(slow);
    let begin = Instant::now();
    let thread = start(&site, end);
    let mut receiver = Receiver::new();
    let mut said = receiver.next::<Answer>(&card).unwrap().unwrap();
    let other = said.descriptors.pop().expect("a connection");
    assert!(receiver.next::<Answer>(&card).unwrap().is_none(), "its connection is closed");
    let helper = Helper::over(other, None, None).unwrap();
    helper.end_programs(BTreeSet::new()).unwrap();
    assert!(begin.elapsed() < SLOW / 2, "the helper has waited");
    drop(other_end);
    drop(Ending::new(helper));
    thread.join().unwrap();
}

/// A request of a process that takes over carries one descriptor, and no more.
#[test]
fn only_one_descriptor_and_only_with_its_request_is_kept() {
    let pipe = || OwnedFd::from(std::io::pipe().unwrap().0);
    let answered = |request: Request, descriptors: Vec<OwnedFd>| {
        let site = Site::new();
        let (card, thread) = start_with(&site, vec![request], descriptors);
        let said = Receiver::new().next::<Answer>(&card).unwrap();
        drop(card);
        thread.join().unwrap();
        said.map(|said| said.message.unwrap().body.unwrap())
    };
    assert_eq!(answered(Request::Output, vec![pipe()]), Some(Answer::Done));
    assert_eq!(answered(Request::Output, vec![pipe(), pipe()]), None);
    assert_eq!(answered(Request::Reload, vec![pipe()]), None);
    assert!(matches!(answered(Request::Output, Vec::new()), Some(Answer::Failed { .. })));
}

/// The helper waited for such a card without a limit.
#[test]
fn regression_a_card_that_reads_no_answers_loses_its_connection() {
    let (card, end) = wire::pair().unwrap();
    let short = Duration::from_millis(10);
    let answer = || Ok((Answer::Log("x".repeat(10_000)), Vec::new()));
    let is_closed = || {
        let more = Message { id: 2, body: Some(Answer::Done) };
        let sent = wire::send(&end, &more, &[], short);
        sent.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    let mut said = 0;
    while !is_closed() {
        serve::say_within(&end, 1, answer(), short);
        said += 1;
        assert!(said < 10_000, "it waits for the card");
    }
    let mut receiver = Receiver::new();
    while receiver.next::<Answer>(&card).unwrap().is_some() {}
}

/// The card got a descriptor of a file that only root may read.
#[test]
fn regression_a_card_gets_a_copy_of_a_file_of_a_cloud_and_not_the_file() {
    let site = Site::new();
    let path = site.path("cloud.toml");
    let text = "[vpc.a]\ncidr = [\"10.0.0.0/16\"]\n";
    std::fs::write(&path, text).unwrap();
    let (card, thread) = start_with(&site, vec![Request::Vpc(path.clone())], Vec::new());
    let mut said = Receiver::new().next::<Answer>(&card).unwrap().unwrap();
    let mut got = std::fs::File::from(said.descriptors.pop().unwrap());
    std::fs::write(&path, "secret = \"of a later time\"\n").unwrap();
    let mut read = String::new();
    got.read_to_string(&mut read).unwrap();
    assert_eq!(read, text);
    got.rewind().unwrap();
    got.write_all(b"x").unwrap_err();
    let number = rustix::fs::fstat(&got).unwrap().st_ino;
    assert_ne!(number, std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap()));
    drop(card);
    thread.join().unwrap();
}

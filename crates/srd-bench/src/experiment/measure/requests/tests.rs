//! Tests of loads, with servers in this process.

use super::*;
use std::net::TcpListener;

/// Starts a server that answers every request correctly, or that answers none if `answers` is
/// false.
fn server(answers: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, answers));
        }
    });
    address
}

/// Serves a connection. The kind of each request is known from its first bytes, and then its length
/// from its kind.
fn serve(mut stream: TcpStream, answers: bool) {
    let (mut buffer, mut input) = (vec![0; 4096], Vec::new());
    let value = [&b"$512\r\n"[..], &[b'v'; 512], b"\r\n"].concat();
    let length = |kind| {
        let mut out = Vec::new();
        Protocol::Redis.write(kind, 0, &mut out);
        out.len()
    };
    let (get, set) = (length(Kind::Get), length(Kind::Set));
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        input.extend_from_slice(&buffer[..count]);
        loop {
            let is_get = input.starts_with(b"*2");
            let length = if is_get { get } else { set };
            if !answers || input.len() < length {
                break;
            }
            input.drain(..length);
            let answer = if is_get { &value[..] } else { b"+OK\r\n" };
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    }
}

fn load(server: SocketAddr, rate: u32, threads: u32) -> (Load, Clients) {
    let load = Load {
        protocol: Protocol::Redis,
        clients: vec![HostId { leaf: 0, host: 0 }],
        server,
        connections: 8,
        rate,
        threads,
        seconds: 1,
        seed: 1,
        congestion: Congestion::Cubic,
        mptcp: false,
    };
    let connect = |_| tcp::connect_to(server, Congestion::Cubic, false).unwrap();
    (load, Clients { sockets: (0..8).map(connect).collect() })
}

/// Whether this process may use real-time threads, for which it has to be root. Otherwise prints
/// that the test is skipped.
fn may_be_real_time() -> bool {
    let may = priority::fifo(PRIORITY).is_ok();
    if !may {
        println!("skipped: it needs root");
    }
    may
}

#[test]
fn threads_share_rate_and_connections() {
    let (load, clients) = load(server(false), 1001, 3);
    let over = AtomicBool::new(false);
    let clock = Clock { start: Instant::now(), over: &over };
    let askers: Vec<_> = (0..3).map(|number| load.asker(&clients, number, clock)).collect();
    let rates: Vec<_> = askers.iter().map(|asker| asker.rate).collect();
    assert_eq!(rates, [334, 334, 333]);
    assert_eq!(askers.iter().map(|asker| asker.sockets.len()).sum::<usize>(), 8);
    assert!(askers.iter().all(|asker| asker.sockets.len() >= 2));
    assert_eq!(askers[0].seed, load.seed, "one thread asks what it always asked");
    assert!(askers[1].seed != askers[2].seed);
}

#[test]
fn every_request_is_counted_whatever_the_number_of_threads() {
    if !may_be_real_time() {
        return;
    }
    for threads in [1, 3] {
        let (load, clients) = load(server(true), 500, threads);
        let (seen, ()) = load.run(&clients, |_| Ok(())).unwrap();
        let (get, set) = (seen.get.all.count(), seen.set.all.count());
        assert!((350..650).contains(&(get + set)), "{get} + {set} in a second at 500 per second");
        assert!(get > 2 * set && set > 0, "{get} GETs, {set} SETs");
        assert_eq!((seen.unanswered, seen.wrong), (0, 0));
        assert_eq!(seen.late.count(), get + set);
    }
}

#[test]
fn a_load_that_nobody_answers_ends_at_its_bound() {
    let (load, clients) = load(server(false), 10_000, 1);
    let over = AtomicBool::new(false);
    let clock = Clock { start: Instant::now(), over: &over };
    let asker = Asker { open_max: 100, ..load.asker(&clients, 0, clock) };
    let error = asker.ask().expect_err("too many").to_string();
    assert!(error.starts_with("101 requests of a thread wait for an answer"), "{error}");
    assert!(error.contains("--rate"), "{error}");
}

#[test]
fn what_fails_beside_a_load_ends_it() {
    if !may_be_real_time() {
        return;
    }
    let (mut load, clients) = load(server(true), 100, 2);
    load.seconds = 600;
    let error = load.run(&clients, |_| -> Result<()> { bail!("a link is gone") });
    assert_eq!(error.expect_err("at once").to_string(), "a link is gone");
}

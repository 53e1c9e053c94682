//! Controllers that end in the middle of a large transaction, or while they write the values of the
//! transaction of another one. They end at points from the first byte of their requests to the
//! last.

use super::*;

/// Number of points at which a controller ends in the first of these transactions.
const POINTS: usize = 12;
/// The number of keys of a transaction, and the size of their values: one part and three groups of
/// values, and two parts and two groups.
const MANY: (usize, usize) = (250, 10);
const LARGE: (usize, usize) = (110, 12_000);

/// A proxy in front of a member, which ends a controller after some bytes of its requests.
#[derive(Clone)]
struct Limited {
    url: String,
    /// Number of bytes of requests until now.
    passed: Arc<AtomicUsize>,
    /// Number of bytes that the proxy passes on.
    limit: Arc<AtomicUsize>,
    /// Ends the controller when it is dropped.
    stop: Arc<Mutex<Option<oneshot::Sender<()>>>>,
}

impl Limited {
    fn new(to: &str) -> Self {
        let to = to.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let limited = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            passed: Arc::default(),
            limit: Arc::new(AtomicUsize::new(usize::MAX)),
            stop: Arc::default(),
        };
        let own = limited.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&to)) else { continue };
                let (answers, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || pass(answers, to, |count| count));
                let own = own.clone();
                thread::spawn(move || pass(client, server, |count| own.take(count)));
            }
        });
        limited
    }

    /// Returns how many of these bytes of a request pass. Ends the controller if not all of them
    /// pass.
    fn take(&self, count: usize) -> usize {
        let before = self.passed.fetch_add(count, Ordering::SeqCst);
        let passes = self.limit.load(Ordering::SeqCst).saturating_sub(before).min(count);
        if passes < count {
            self.end();
        }
        passes
    }

    fn end(&self) {
        drop(self.stop.lock().unwrap().take());
    }

    /// Makes a transaction with a controller that ends after this many bytes. Returns whether it
    /// was acknowledged, and the number of bytes.
    fn commit(&self, mut by: EtcdStore, changes: Vec<KeyChange>, limit: usize) -> (bool, usize) {
        *self.stop.lock().unwrap() = by.stop.take();
        self.passed.store(0, Ordering::SeqCst);
        self.limit.store(limit, Ordering::SeqCst);
        let made = by.commit(changes);
        self.end();
        (made.is_ok(), self.passed.load(Ordering::SeqCst))
    }
}

/// Copies bytes until an end, or until fewer bytes pass than have come.
fn pass(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(usize) -> usize) {
    let mut buffer = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let passing = passes(count);
        if to.write_all(&buffer[..passing]).is_err() || passing < count {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn large((keys, bytes): (usize, usize)) -> Vec<KeyChange> {
    let value = "x".repeat(bytes);
    let mut all: Vec<KeyChange> = (0..keys).map(|n| change(&format!("n/{n}"), &value)).collect();
    all.push(("gone".to_owned(), None));
    all
}

type State = BTreeMap<String, String>;

fn apply(state: &State, changes: Vec<KeyChange>) -> State {
    let mut state = state.clone();
    for (key, value) in changes {
        match value {
            Some(value) => drop(state.insert(key, value)),
            None => drop(state.remove(&key)),
        }
    }
    state
}

/// Ends a controller in its large transaction, and the next one in its own transaction after it.
/// Returns whether the large one was made, and the bytes of both.
fn end_two(urls: &[String], size: (usize, usize), limits: [usize; 2]) -> (bool, [usize; 2]) {
    // Each time in a state of its own.
    let prefix = format!("/ends-{}/", draw_id().unwrap());
    let (mut last, _) = open(urls, &prefix);
    let first = vec![change("old", "1"), change("gone", "1")];
    last.commit(first.clone()).unwrap();
    let before = apply(&State::new(), first);
    let begin = || {
        let proxy = Limited::new(&urls[0]);
        let (store, shown) = open(std::slice::from_ref(&proxy.url), &prefix);
        (proxy, store, shown)
    };

    let (proxy, first, _) = begin();
    let (is_acknowledged, bytes) = proxy.commit(first, large(size), limits[0]);
    let (proxy, second, shown) = begin();
    let after = apply(&before, large(size));
    let is_made = shown == after;
    assert!(is_made || shown == before, "{limits:?}: between the states: {:?}", shown.keys());
    assert!(is_made || !is_acknowledged, "{limits:?}: an acknowledged transaction is lost");

    let next = vec![change("second", "1")];
    let (is_acknowledged, of_second) = proxy.commit(second, next.clone(), limits[1]);
    let (_, again) = open(urls, &prefix);
    let with_next = apply(&shown, next);
    assert!(again == with_next || again == shown, "{limits:?}: between the states");
    assert!(again == with_next || !is_acknowledged, "{limits:?}: it is lost");

    // A controller that has followed all this time, and one that starts, see the same.
    let followed = match wait(|| last.refresh().ok()) {
        News::Changes(changes) => apply(&before, changes),
        News::All(all) => all.into_iter().collect(),
    };
    assert!(followed == again, "{limits:?}: {:?}", followed.keys());
    last.commit(vec![change("last", "1")]).unwrap();
    let (_, shown) = open(urls, &prefix);
    assert!(shown == apply(&again, vec![change("last", "1")]), "{limits:?}: {:?}", shown.keys());
    if is_made {
        assert!(last.read_all("parts/", 0).unwrap().is_empty(), "{limits:?}");
    }
    (is_made, [bytes, of_second])
}

/// The next start finds the state before or after the transaction, also if the controller that
/// writes the values in place of the first one ends as well.
#[test]
fn a_controller_that_ends_at_any_point_leaves_all_of_a_transaction_or_nothing() {
    let Some(cluster) = Cluster::start(1) else { return };
    let urls = cluster.urls();
    for (size, points, released_percent) in [(MANY, POINTS, 45), (LARGE, 4, 70)] {
        let values = size.0 * size.1;
        let (is_made, [whole, _]) = end_two(&urls, size, [usize::MAX; 2]);
        assert!(is_made && whole > 2 * values, "{whole}");
        // The first controller has written its parts, and no values: the second one writes them.
        let limit = whole * released_percent / 100;
        let (is_made, [_, rest]) = end_two(&urls, size, [limit, usize::MAX]);
        assert!(is_made && rest > values, "{rest}");
        let mut made = 0;
        for point in 0..=points {
            let at = |bytes: usize| bytes * point / points;
            // The last point is in the last request.
            let limits = [at(whole - 100), at(rest - 100)];
            made += usize::from(end_two(&urls, size, limits).0);
            // The second one ends at each point of its work for the first one.
            assert!(end_two(&urls, size, [limit, limits[1]]).0);
        }
        assert!((1..=points).contains(&made), "{made}");
    }
}

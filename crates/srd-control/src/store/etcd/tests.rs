//! The store on real clusters, with members that are killed, answers that are lost, and compaction.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

use super::keys::LAST_MAX;
use super::*;
use crate::store::laws;

#[path = "../../../tests/support/etcd.rs"]
mod cluster;

mod ends;

use cluster::{Cluster, ServerTls};

/// Longest wait until a cluster has started or has elected a leader.
const PATIENCE: Duration = Duration::from_secs(60);

fn store(urls: &[String], prefix: &str) -> EtcdStore {
    let (members, prefix) = (urls.to_vec(), prefix.to_owned());
    EtcdStore::new(&Settings { members, prefix, tls: None, report: |_| {} }).unwrap()
}

/// Calls a function until it returns something.
fn wait<T>(mut get: impl FnMut() -> Option<T>) -> T {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(std::time::Instant::now() < until, "nothing in {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Opens a store, and loads its state as soon as the cluster has a leader.
fn open(urls: &[String], prefix: &str) -> (EtcdStore, BTreeMap<String, String>) {
    let mut store = store(urls, prefix);
    let all = wait(|| store.load().ok());
    (store, all.into_iter().collect())
}

fn change(key: &str, value: &str) -> KeyChange {
    (key.to_owned(), Some(value.to_owned()))
}

fn changes(news: Result<News, String>) -> Vec<KeyChange> {
    match news.unwrap() {
        News::Changes(changes) => changes,
        News::All(_) => panic!("single changes are known"),
    }
}

#[test]
fn etcd_obeys_the_laws_of_stores() {
    let Some(cluster) = Cluster::start(1) else { return };
    let urls = cluster.urls();
    open(&urls, "/wait/");
    let mut number = 0;
    laws::check(40, 3, || {
        number += 1;
        let (urls, prefix) = (urls.clone(), format!("/laws-{number}/"));
        move || Box::new(store(&urls, &prefix)) as Box<dyn Store>
    });
}

/// All changes of a transaction of several MiB and hundreds of keys take effect together. If its
/// controller ends before it has written the values, other controllers write them.
#[test]
fn a_large_transaction_is_one_although_its_controller_ends() {
    let Some(cluster) = Cluster::start(1) else { return };
    let urls = cluster.urls();
    let (mut a, _) = open(&urls, "/large/");
    let (mut b, _) = open(&urls, "/large/");
    a.commit(vec![change("old", "1"), change("gone", "1")]).unwrap();
    let value = "x\"".repeat(40_000);
    let mut large: Vec<KeyChange> = (0..120).map(|n| change(&format!("n/{n}"), &value)).collect();
    large.push(("gone".to_owned(), None));
    a.commit(large.clone()).unwrap();
    let news: BTreeMap<_, _> = changes(b.refresh()).into_iter().collect();
    assert_eq!(news["n/119"], Some(value.clone()));
    assert_eq!((news.len(), &news["gone"]), (122, &None));
    b.commit(vec![change("n/0", "b")]).unwrap();
    assert_eq!(changes(a.refresh()), [change("n/0", "b")]);

    // This transaction is made, but its values are not written.
    let json = serde_json::to_vec(&large).unwrap();
    let id = Large { id: "half".to_owned(), parts: json.len().div_ceil(TRANSACTION_BYTES_MAX) };
    assert!(id.parts > 3);
    for (number, part) in json.chunks(TRANSACTION_BYTES_MAX).enumerate() {
        let (key, value) = (a.keys.part(&id.id, number), part.to_vec());
        let request = PutRequest { key, value, ..PutRequest::default() };
        let _: PutResponse = a.call(PUT, request, PATIENCE).unwrap();
    }
    let release = |number| {
        let key = a.keys.part(&id.id, number);
        Operation::Put(PutRequest { key, ignore_value: true, ..PutRequest::default() }).into()
    };
    let release: Vec<RequestOp> = (0..id.parts).map(release).collect();
    a.transact(Vec::new(), release, Some(id)).unwrap();
    let (_, shown) = open(&urls, "/large/");
    assert_eq!((shown.len(), &shown["n/0"]), (121, &value));
    let news: BTreeMap<_, _> = changes(b.refresh()).into_iter().collect();
    assert_eq!((news.len(), &news["n/0"]), (121, &Some(value.clone())));
    drop(a);
    b.commit(vec![change("n/1", "b")]).unwrap();
    assert!(b.generation.large.is_none());
    assert!(b.read_all("parts/", 0).unwrap().is_empty());
    let (_, shown) = open(&urls, "/large/");
    assert_eq!((shown.len(), shown["n/1"].as_str()), (121, "b"));

    let huge = vec![change("huge", &"x".repeat(VALUE_BYTES_MAX))];
    assert!(matches!(b.commit(huge), Err(CommitError::Failed(why)) if why.contains("`huge`")));
    b.commit(vec![change("big", &"x".repeat(VALUE_BYTES_MAX - 3))]).unwrap();
}

/// Compaction request of etcd.
#[derive(Clone, PartialEq, Message)]
struct CompactionRequest {
    #[prost(int64, tag = "1")]
    revision: i64,
    #[prost(bool, tag = "2")]
    physical: bool,
}

#[test]
fn a_controller_whose_changes_were_compacted_loads_all() {
    let Some(cluster) = Cluster::start(1) else { return };
    let urls = cluster.urls();
    let (mut a, _) = open(&urls, "/compact/");
    let (mut b, _) = open(&urls, "/compact/");
    a.commit(vec![change("k", "0")]).unwrap();
    changes(b.refresh());
    // The connection of the watch is lost for a while.
    b.watch.take().unwrap().abort();
    for n in 1..=30 {
        a.commit(vec![change("k", &n.to_string())]).unwrap();
    }
    let request = CompactionRequest { revision: a.revision, physical: true };
    let _: PutResponse = a.call("/etcdserverpb.KV/Compact", request, PATIENCE).unwrap();
    let watch = inbox::watch(Arc::clone(&b.client), Arc::clone(&b.inbox), b.revision + 1);
    b.watch = Some(b.handle.spawn(watch).abort_handle());
    assert_eq!(b.refresh(), Ok(News::All(vec![("k".to_owned(), "30".to_owned())])));
    a.commit(vec![change("k", "31")]).unwrap();
    assert_eq!(changes(b.refresh()), [change("k", "31")]);
}

/// A proxy in front of a member. While the returned number is not 0, the proxy closes the
/// connection instead of passing on the first answer after a request, and decreases the number.
fn proxy(to: &str) -> (String, Arc<AtomicUsize>) {
    let to = to.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let cuts = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&cuts);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&to)) else { continue };
            let left = Arc::clone(&left);
            let copy = |mut from: TcpStream, mut to: TcpStream, left: Option<Arc<AtomicUsize>>| {
                thread::spawn(move || {
                    let mut buffer = [0; 65_536];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        let cut = |left: &Arc<AtomicUsize>| {
                            let decrease = |count: usize| count.checked_sub(1);
                            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrease).is_ok()
                        };
                        if left.as_ref().is_some_and(cut) || to.write_all(&buffer[..count]).is_err()
                        {
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                })
            };
            copy(client.try_clone().unwrap(), server.try_clone().unwrap(), None);
            copy(server, client, Some(left));
        }
    });
    (url, cuts)
}

#[test]
fn a_transaction_whose_answer_is_lost_is_made_once() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (url, cuts) = proxy(&cluster.urls()[0]);
    let (mut a, _) = open(&[url], "/lost/");
    let (mut b, _) = open(&cluster.urls(), "/lost/");
    for n in 0..20 {
        cuts.store(1 + n % 2, Ordering::SeqCst);
        let made = a.commit(vec![change("k", &n.to_string())]);
        assert_eq!(made, Ok(()), "{n}");
        cuts.store(0, Ordering::SeqCst);
        let news = changes(b.refresh());
        assert_eq!(news.last(), Some(&change("k", &n.to_string())));
        b.commit(vec![change("other", &n.to_string())]).unwrap();
        assert_eq!(a.commit(vec![change("k", "x")]), Err(CommitError::Conflict));
        assert!(changes(a.refresh()).contains(&change("other", &n.to_string())));
    }
}

/// The controller had undone the changes, and got them with its next request only.
#[test]
fn regression_a_transaction_of_an_unknown_outcome_is_signalled() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (url, cuts) = proxy(&cluster.urls()[0]);
    let (mut a, _) = open(&[url], "/unknown/");
    a.commit(vec![change("k", "0")]).unwrap();
    cuts.store(usize::MAX, Ordering::SeqCst);
    let made = a.commit(vec![change("k", "1")]);
    cuts.store(0, Ordering::SeqCst);
    assert!(matches!(made, Err(CommitError::Unknown(_))), "{made:?}");
    let news = a.news().unwrap();
    loop {
        let news = Arc::clone(&news);
        let signalled = async move { tokio::time::timeout(PATIENCE, news.notified()).await };
        a.handle.block_on(signalled).unwrap();
        match a.refresh() {
            Ok(News::Changes(changes)) if changes == [change("k", "1")] => break,
            Ok(News::Changes(changes)) => assert!(changes.is_empty(), "{changes:?}"),
            _ => {}
        }
    }
    a.commit(vec![change("k", "2")]).unwrap();
    assert!(!a.inbox.is_uncertain());
}

#[test]
fn a_member_that_starts_again_is_used_again() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let urls = cluster.urls();
    let (mut a, _) = open(&urls, "/again/");
    let (mut b, _) = open(&urls, "/again/");
    a.commit(vec![change("k", "1")]).unwrap();
    cluster.kill(0);
    assert!(matches!(a.commit(vec![change("k", "2")]), Err(CommitError::Unknown(_))));
    assert!(a.refresh().is_err());
    assert!(a.load().is_err());
    cluster.revive(0);
    wait(|| a.refresh().ok());
    a.commit(vec![change("k", "3")]).unwrap();
    assert_eq!(changes(b.refresh()).last(), Some(&change("k", "3")));
}

/// The controllers showed the state from before the restore, and could not change it.
#[test]
fn regression_a_cluster_that_is_restored_from_a_backup_is_loaded_again() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let urls = cluster.urls();
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let mut copy = std::process::Command::new("cp");
        assert!(copy.arg("-a").args([from, to]).status().unwrap().success());
    };
    let (mut a, _) = open(&urls, "/backup/");
    let (mut b, _) = open(&urls, "/backup/");
    b.commit(vec![change("k", "1")]).unwrap();
    assert_eq!(changes(a.refresh()), [change("k", "1")]);
    let [data, backup] = ["m0", "backup"].map(|name| cluster.directory.path().join(name));
    cluster.kill(0);
    copy(&data, &backup);
    cluster.revive(0);
    for n in ["2", "3"] {
        wait(|| b.refresh().ok());
        b.commit(vec![change("k", n)]).unwrap();
        assert_eq!(changes(a.refresh()), [change("k", n)]);
    }
    cluster.kill(0);
    std::fs::remove_dir_all(&data).unwrap();
    copy(&backup, &data);
    cluster.revive(0);
    let all = News::All(vec![("k".to_owned(), "1".to_owned())]);
    assert_eq!(wait(|| a.refresh().ok()), all);
    a.commit(vec![change("k", "4")]).unwrap();
    assert_eq!(b.refresh(), Ok(News::All(vec![("k".to_owned(), "4".to_owned())])));
    // A state that was removed is not taken for an empty one.
    let (key, range_end) = a.keys.all();
    let remove = DeleteRangeRequest { key, range_end };
    let _: PutResponse = a.call("/etcdserverpb.KV/DeleteRange", remove, PATIENCE).unwrap();
    assert!(a.refresh().unwrap_err().contains("was removed"));
}

/// Kills each member of three in turn, while two controllers make transactions.
#[test]
fn no_acknowledged_change_is_lost_when_a_member_is_killed() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let urls = cluster.urls();
    open(&urls, "/three/");
    let stop = AtomicBool::new(false);
    let counts = [const { AtomicUsize::new(0) }; 2];
    let work = |name: &'static str, count: &AtomicUsize| {
        let (mut store, _) = open(&urls, "/three/");
        let (mut made, mut not_made) = (BTreeSet::new(), BTreeSet::new());
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            if store.refresh().is_err() {
                continue;
            }
            number += 1;
            let key = format!("{name}/{number}");
            match store.commit(vec![change(&key, "x")]) {
                Ok(()) => {
                    made.insert(key);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Err(CommitError::Unknown(_)) => {}
                Err(_) => drop(not_made.insert(key)),
            }
        }
        (made, not_made)
    };
    let results = thread::scope(|scope| {
        let work = &work;
        let workers = [("a", &counts[0]), ("b", &counts[1])]
            .map(|(name, count)| scope.spawn(move || work(name, count)));
        for at in [0, 1, 2] {
            thread::sleep(Duration::from_secs(1));
            cluster.kill(at);
            thread::sleep(Duration::from_secs(4));
            cluster.revive(at);
            thread::sleep(Duration::from_secs(2));
        }
        // A slow disk makes few transactions in this time.
        let until = std::time::Instant::now() + PATIENCE;
        let are_few = || counts.iter().any(|count| count.load(Ordering::Relaxed) <= 20);
        while are_few() && std::time::Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        workers.map(|worker| worker.join().unwrap())
    });
    let (_, all) = open(&urls, "/three/");
    for (made, not_made) in &results {
        assert!(made.len() > 20, "{} transactions", made.len());
        assert!(made.iter().all(|key| all.contains_key(key)));
        assert!(!not_made.iter().any(|key| all.contains_key(key)));
    }
}

#[test]
fn one_controller_has_the_machines() {
    let Some(cluster) = Cluster::start(1) else { return };
    let urls = cluster.urls();
    let (mut a, _) = open(&urls, "/machines/");
    let (mut b, _) = open(&urls, "/machines/");
    a.claim_machines().unwrap();
    let error = b.claim_within(Duration::from_millis(500)).unwrap_err();
    assert!(error.contains("another controller"), "{error}");
    drop(a);
    b.claim_machines().unwrap();
    // The controller is killed: its lease ends.
    b.claim.take().unwrap().keeper.abort();
    let (mut c, _) = open(&urls, "/machines/");
    c.claim_machines().unwrap();
    assert!(c.refresh().is_ok());
}

/// The lease of a controller ends, as if it had been suspended, and another one is faster.
#[test]
fn a_controller_that_has_lost_the_machines_changes_nothing_and_signals_it() {
    let Some(cluster) = Cluster::start(1) else { return };
    let urls = cluster.urls();
    // The first controller notices the loss with a request; the second one, with its lease.
    for asks in [true, false] {
        let prefix = format!("/lost/{asks}/");
        let (mut a, _) = open(&urls, &prefix);
        let (mut b, _) = open(&urls, &prefix);
        a.claim_machines().unwrap();
        a.commit(vec![change("object/a", "1")]).unwrap();
        let lease = a.claim.as_ref().unwrap().lease.load(Ordering::Relaxed);
        let revoke = LeaseRevokeRequest { id: lease };
        let _: LeaseRevokeResponse = a.call(LEASE_REVOKE, revoke, READ_WAIT_MAX).unwrap();
        b.claim_machines().unwrap();
        let late = a.commit(vec![change("object/b", "2")]);
        assert_eq!(late, Err(CommitError::Conflict));
        if asks {
            assert!(a.refresh().unwrap_err().contains("another controller"));
        }
        wait(|| a.has_lost_machines().then_some(()));
        let news = Arc::clone(&a.inbox.news);
        let signalled = async move { tokio::time::timeout(PATIENCE, news.notified()).await };
        a.handle.block_on(signalled).unwrap();
        assert!(a.refresh().is_err() && a.load().is_err());
        assert!(!b.has_lost_machines() && b.refresh().is_ok());
        let (_, all) = open(&urls, &prefix);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["object/a"]);
    }
}

#[test]
fn connections_use_tls_with_certificates_of_both_sides() {
    let files = Files(tempfile::tempdir().unwrap());
    let authority = Issuer::draw();
    let tls = files.server(&authority);
    let Some(cluster) = Cluster::start_with(1, Some(tls)) else { return };
    let client = |tls| store_with(&cluster, tls);
    let mut store = client(files.client("own", &authority, &authority));
    wait(|| store.load().ok());
    store.commit(vec![change("k", "1")]).unwrap();
    let nameless = Tls { identity: None, ..files.client("nameless", &authority, &authority) };
    assert!(client(nameless).load().is_err());
    assert!(client(files.client("other", &Issuer::draw(), &authority)).load().is_err());
}

/// A controller used the certificates of its start until it was started again.
#[test]
fn regression_certificates_are_replaced_while_the_store_is_used() {
    let files = Files(tempfile::tempdir().unwrap());
    let former = Issuer::draw();
    let tls = files.server(&former);
    let Some(mut cluster) = Cluster::start_with(1, Some(tls)) else { return };
    let tls = Some(files.client("own", &former, &former));
    let (members, prefix, report) = (cluster.urls(), "/tls/".to_owned(), record as fn(&str));
    let mut store = EtcdStore::new(&Settings { members, prefix, tls, report }).unwrap();
    wait(|| store.load().ok());
    store.commit(vec![change("k", "1")]).unwrap();
    // A damaged file changes nothing.
    files.write("own-key.pem", "no key");
    let is_reported =
        || REPORTS.lock().unwrap().iter().any(|what| what.contains("stay in use")).then_some(());
    wait(is_reported);
    store.commit(vec![change("k", "2")]).unwrap();
    // The cluster has another authority, which signs the certificates of both sides.
    let next = Issuer::draw();
    cluster.kill(0);
    files.server(&next);
    cluster.revive(0);
    files.client("own", &next, &next);
    wait(|| store.refresh().ok());
    store.commit(vec![change("k", "3")]).unwrap();
    assert!(store_with(&cluster, files.client("late", &former, &former)).load().is_err());
}

static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn record(what: &str) {
    REPORTS.lock().unwrap().push(what.to_owned());
}

/// An authority that signs certificates.
struct Issuer(rcgen::Certificate, rcgen::KeyPair);

impl Issuer {
    fn draw() -> Self {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(params.self_signed(&key).unwrap(), key)
    }

    /// Returns a certificate for a name, and its key, in PEM.
    fn sign(&self, name: &str) -> [String; 2] {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        [params.signed_by(&key, &self.0, &self.1).unwrap().pem(), key.serialize_pem()]
    }
}

/// A directory with files of certificates.
struct Files(tempfile::TempDir);

impl Files {
    fn write(&self, name: &str, pem: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, pem).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Writes the files of a member.
    fn server(&self, authority: &Issuer) -> ServerTls {
        let [certificate, key] = authority.sign("127.0.0.1");
        ServerTls {
            certificate: self.write("server.pem", &certificate),
            key: self.write("server-key.pem", &key),
            authority: self.write("ca.pem", &authority.0.pem()),
        }
    }

    /// Writes the files of a controller: the authority that it trusts, and a certificate of another
    /// one.
    fn client(&self, name: &str, trusted: &Issuer, own: &Issuer) -> Tls {
        let [certificate, key] = own.sign("client");
        let key = self.write(&format!("{name}-key.pem"), &key);
        Tls {
            authorities: self.write(&format!("{name}-ca.pem"), &trusted.0.pem()),
            identity: Some((self.write(&format!("{name}.pem"), &certificate), key)),
        }
    }
}

fn store_with(cluster: &Cluster, tls: Tls) -> EtcdStore {
    let (members, prefix) = (cluster.urls(), "/tls/".to_owned());
    EtcdStore::new(&Settings { members, prefix, tls: Some(tls), report: |_| {} }).unwrap()
}

#[test]
fn the_generation_knows_the_last_transactions_of_sixteen_controllers() {
    let mut generation = Generation::default();
    for number in 1..=20_u64 {
        generation = generation.next(&format!("c{}", number % 18), number, None);
    }
    assert_eq!(generation.last.len(), LAST_MAX);
    assert_eq!(generation.last_of("c2"), Some(20));
    assert!(generation.is_last("c2"));
    assert_eq!(generation.last_of("c3"), None);
    let large = Some(Large { id: "x".to_owned(), parts: 2 });
    let next = generation.next("c2", 21, large.clone());
    let read = Generation::parse(&next.text()).unwrap();
    assert_eq!((read.last.len(), read.large), (LAST_MAX, large));
    let other = br#"{"format": 9, "last": [], "large": null}"#;
    assert!(Generation::parse(other).unwrap_err().contains("format 9"));
}

#[test]
fn groups_are_small_enough_for_etcd() {
    let change = |size: usize| ("k".to_owned(), Some("x".repeat(size)));
    let many: Vec<KeyChange> = (0..250).map(|_| change(1)).collect();
    assert_eq!(groups(&many).iter().map(|of| of.len()).collect::<Vec<_>>(), [100, 100, 50]);
    let large = [change(TRANSACTION_BYTES_MAX - 1), change(1), change(TRANSACTION_BYTES_MAX)];
    assert_eq!(groups(&large).iter().map(|of| of.len()).collect::<Vec<_>>(), [1, 1, 1]);
    assert!(groups(&[]).is_empty());
}

#[test]
fn settings_are_checked() {
    let make = |members: &[&str], prefix: &str| {
        let members = members.iter().map(|member| (*member).to_owned()).collect();
        let settings = Settings { members, prefix: prefix.to_owned(), tls: None, report: |_| {} };
        EtcdStore::new(&settings).map(|_| ()).unwrap_err()
    };
    assert!(make(&[], "/srd/").contains("members"));
    assert!(make(&["http://127.0.0.1:1"; 17], "/srd/").contains("members"));
    assert!(make(&["http://127.0.0.1:1"], "srd").contains("prefix"));
    assert!(make(&["https://127.0.0.1:1"], "/srd/").contains("authority"));
    assert!(make(&["no address"], "/srd/").contains("no address"));
}

#[test]
fn members_without_tls_on_other_machines_are_found() {
    let found = |member: &str| plain_remote(&[member.to_owned()]).is_some();
    for member in ["https://10.0.0.1:2379", "http://127.8.0.1:1", "http://[::1]:1"] {
        assert!(!found(member), "{member}");
    }
    assert!(!found("http://localhost:2379"));
    let remote = ["http://10.0.0.1:2379", "http://127.0.0.1@10.0.0.1:2379", "http://[::2]:1"];
    for member in remote.into_iter().chain(["http://127.0.0.1.example:1", "http://", "no address"])
    {
        assert!(found(member), "{member}");
    }
    let members = ["https://a:1", "http://127.0.0.1:1", "http://b:2"].map(str::to_owned);
    assert_eq!(plain_remote(&members), Some("http://b:2"));
}

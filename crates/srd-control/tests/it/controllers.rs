//! Controllers that start again, and controllers beside each other, with one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use srd_control::control::{Access, Control};
use srd_control::http::HttpResponse;
use srd_control::machines::{Machines, NoMachines};
use srd_control::server;
use srd_control::state::{Instance, Region};
use srd_control::store::{CommitError, KeyChange, MemoryStore, News, Store};
use tokio::sync::Notify;

use crate::support::{Client, Recorder, SharedStore, all, first, request};

const RUN: &str = "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&InstanceType=";

fn client(store: &SharedStore) -> Client {
    Client::with(Box::new(store.clone()), Box::new(NoMachines))
}

/// The answer without the identifier of its request.
fn body(xml: &str) -> &str {
    xml.split_once("</requestId>").unwrap().1
}

#[test]
fn machines_start_again_with_their_controller_or_are_marked_as_stopped() {
    let store = SharedStore::default();
    let mut first_run = client(&store);
    let runs = first_run.take(&format!("{RUN}c7i.large"), "instanceId");
    let stops = first_run.take(&format!("{RUN}c7i.xlarge"), "instanceId");
    first_run.ok(&format!("Action=StopInstances&InstanceId.1={stops}"));
    // Machines of this type do not start any more.
    let fails = first_run.take(&format!("{RUN}t3.nano"), "instanceId");

    let recorder = Recorder::default();
    let mut again = Client::with(Box::new(store.clone()), Box::new(recorder.clone()));
    let calls = recorder.0.lock().unwrap().clone();
    let report = format!("report {fails} is marked as stopped: no machine of this type");
    assert_eq!(calls, ["start c7i.large".to_owned(), report]);
    assert_eq!(*recorder.1.lock().unwrap(), 1);
    let shown = again.ok(&format!("Action=DescribeInstances&InstanceId.1={fails}"));
    assert!(shown.contains("<name>stopped</name>"), "{shown}");
    assert!(shown.contains("Server.InternalError (no machine of this type)"), "{shown}");
    let shown = again.ok(&format!("Action=DescribeInstances&InstanceId.1={runs}"));
    assert!(shown.contains("<name>running</name>"), "{shown}");
    // The mark is in the store.
    let third = client(&store);
    assert_eq!(third.state().instances.get(&fails).unwrap().state.name, "stopped");
}

#[test]
fn client_tokens_are_known_to_other_controllers_and_after_a_start() {
    let store = SharedStore::default();
    let (mut a, mut b) = (client(&store), client(&store));
    let form = format!("{RUN}c7i.large&ClientToken=a/b");
    let id = a.take(&form, "instanceId");
    assert_eq!(b.take(&form, "instanceId"), id);
    assert_eq!(client(&store).take(&form, "instanceId"), id);
    assert_eq!(b.code(&format!("{form}&KeyName=x")), "IdempotentParameterMismatch");
    a.now += 24 * 3600;
    assert_ne!(a.take(&form, "instanceId"), id);
}

#[test]
fn controllers_beside_each_other_show_the_same_state() {
    let store = SharedStore::default();
    let (mut a, mut b) = (client(&store), client(&store));
    let (vpc, subnet) = a.network();
    let form = format!("Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.1.0/25");
    assert_eq!(b.code(&form), "InvalidSubnet.Conflict");
    b.ok(&format!("Action=DeleteSubnet&SubnetId={subnet}"));
    let other = a.take(&form, "subnetId");
    for name in ["DescribeVpcs", "DescribeSubnets", "DescribeRouteTables", "DescribeNetworkAcls"] {
        let form = format!("Action={name}");
        assert_eq!(body(&a.ok(&form)), body(&b.ok(&form)), "{name}");
    }
    assert!(b.ok("Action=DescribeSubnets").contains(&other));
    // A region gets its default VPC once.
    a.region = "eu-west-1";
    b.region = "eu-west-1";
    let vpcs = all(&a.ok("Action=DescribeVpcs"), "vpcId");
    assert_eq!(all(&b.ok("Action=DescribeVpcs"), "vpcId"), vpcs);
    assert_eq!(vpcs.len(), 1);
}

#[test]
fn the_controller_with_machines_follows_the_others() {
    let store = SharedStore::default();
    let recorder = Recorder::default();
    let mut runs = Client::with(Box::new(store.clone()), Box::new(recorder.clone()));
    let mut other = client(&store);
    let id = other.take(&format!("{RUN}c7i.large"), "instanceId");
    let fails = other.take(&format!("{RUN}t3.nano"), "instanceId");
    runs.control.follow().unwrap();
    let shown = other.ok(&format!("Action=DescribeInstances&InstanceId.1={fails}"));
    assert!(shown.contains("<name>stopped</name>"), "{shown}");
    other.ok(&format!("Action=TerminateInstances&InstanceId.1={id}"));
    runs.control.follow().unwrap();
    let calls = recorder.0.lock().unwrap().clone();
    let report = format!("report {fails} is marked as stopped: no machine of this type");
    assert_eq!(calls, ["start c7i.large".to_owned(), report, "stop c7i.large".to_owned()]);
}

/// A store in which another controller makes a transaction before each of the first ones of this
/// one.
struct Contended {
    store: SharedStore,
    others: Client,
    times: usize,
}

impl Store for Contended {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.store.load()
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        if let Some(left) = self.times.checked_sub(1) {
            self.times = left;
            self.others.ok("Action=CreateVpc&CidrBlock=10.0.0.0/16");
        }
        self.store.commit(changes)
    }

    fn refresh(&mut self) -> Result<News, String> {
        self.store.refresh()
    }
}

#[test]
fn a_request_that_conflicts_is_repeated_a_bounded_number_of_times() {
    for (times, works) in [(3, true), (19, true), (20, false)] {
        let store = SharedStore::default();
        let mut others = client(&store);
        others.ok("Action=DescribeVpcs");
        let recorder = Recorder::default();
        let contended = Contended { store: store.clone(), others, times };
        let mut client = Client::with(Box::new(contended), Box::new(recorder.clone()));
        let answer = client.send(&format!("{RUN}c7i.large"));
        assert_eq!(answer.status, if works { 200 } else { 503 }, "{times}: {}", answer.body);
        // Machines of attempts that conflicted are stopped again.
        let calls = recorder.0.lock().unwrap().clone();
        let count = |what: &str| calls.iter().filter(|call| call.starts_with(what)).count();
        assert_eq!(count("start") - count("stop"), usize::from(works));
        client.control.follow().unwrap();
        assert_eq!(client.state().instances.len(), usize::from(works));
        assert_eq!(client.state().vpcs.len(), 1 + times);
    }
}

/// A store that makes a transaction, and loses the answer.
struct Forgets(SharedStore, bool);

impl Store for Forgets {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.0.load()
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        let mut other = self.0.clone();
        self.0.commit(changes.clone())?;
        if std::mem::replace(&mut self.1, false) {
            std::mem::swap(&mut self.0, &mut other);
            return Err(CommitError::Unknown("the answer was lost".to_owned()));
        }
        Ok(())
    }

    fn refresh(&mut self) -> Result<News, String> {
        self.0.refresh()
    }
}

#[test]
fn a_transaction_with_an_unknown_end_is_taken_over_if_it_was_made() {
    let store = SharedStore::default();
    client(&store).ok("Action=DescribeVpcs");
    let recorder = Recorder::default();
    let forgets = Box::new(Forgets(store, true));
    let mut client = Client::with(forgets, Box::new(recorder.clone()));
    let form = format!("{RUN}c7i.large&ClientToken=t");
    assert_eq!(client.code(&form), "InternalError");
    assert!(client.state().instances.is_empty());
    // The client repeats its request, as its SDK does.
    let id = client.take(&form, "instanceId");
    assert_eq!(client.state().instances.len(), 1);
    assert!(client.state().instances.get(&id).is_some());
    let calls = ["start c7i.large", "stop c7i.large", "start c7i.large"];
    assert_eq!(*recorder.0.lock().unwrap(), calls);
}

/// A store whose content changes without single changes, as after a compaction.
struct Jumps(SharedStore);

impl Store for Jumps {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.0.load()
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        self.0.commit(changes)
    }

    fn refresh(&mut self) -> Result<News, String> {
        self.0.load().map(News::All)
    }
}

#[test]
fn a_controller_takes_over_a_whole_state() {
    let store = SharedStore::default();
    let mut other = client(&store);
    let recorder = Recorder::default();
    let mut jumps = Client::with(Box::new(Jumps(store.clone())), Box::new(recorder.clone()));
    let (vpc, subnet) = other.network();
    let id = other.take(&format!("{RUN}c7i.large"), "instanceId");
    assert!(jumps.ok("Action=DescribeVpcs").contains(&vpc));
    jumps.ok(&format!("Action=DeleteSubnet&SubnetId={subnet}"));
    other.ok(&format!("Action=StopInstances&InstanceId.1={id}"));
    jumps.ok("Action=DescribeVpcs");
    jumps.ok("Action=DescribeVpcs");
    assert_eq!(*recorder.0.lock().unwrap(), ["start c7i.large", "stop c7i.large"]);
    assert_eq!(jumps.state().records(), other.state().records());
}

fn reset(control: &mut Control) -> HttpResponse {
    let mut reset = request("us-east-1", "");
    reset.path = "/reset".to_owned();
    control.handle(&reset, crate::support::NOW)
}

#[test]
fn a_store_keeps_its_access_key_and_is_not_reset() {
    let store = SharedStore::default();
    let start = |seed| {
        let (store, machines) = (Box::new(store.clone()), Box::new(NoMachines));
        Control::new(Access::Local, seed, store, machines).unwrap()
    };
    let mut control = start(1);
    let key = control.key().unwrap();
    assert_eq!(start(2).key().unwrap().secret, key.secret);
    assert_eq!(store.all().len(), 1);
    assert!(!format!("{:?}", control.cloud()).contains(&key.secret));
    assert_eq!(reset(&mut control).status, 403);
    let answer = control.handle(&request("us-east-1", "Action=DescribeVpcs"), crate::support::NOW);
    assert_eq!((answer.status, first(&answer.body, "Code").as_str()), (403, "AuthFailure"));
    let mut broken = store.clone();
    broken.load().unwrap();
    let secret = "{\"Secret\":\"s3cret\",".to_owned();
    broken.commit(vec![("access/X".to_owned(), Some(secret))]).unwrap();
    let (store, machines) = (Box::new(store.clone()), Box::new(NoMachines));
    let error = Control::new(Access::Local, 3, store, machines).unwrap_err();
    assert!(!error.contains("s3cret"), "{error}");
}

#[test]
fn a_store_with_something_else_is_refused() {
    let refuse = |key: &str, value: &str| {
        let mut store = MemoryStore::default();
        store.commit(vec![(key.to_owned(), Some(value.to_owned()))]).unwrap();
        let made = Control::new(Access::AnyCredentials, 1, Box::new(store), Box::new(NoMachines));
        made.map(|_| ()).unwrap_err()
    };
    assert!(refuse("other", "x").contains("`other`"));
    assert!(refuse("object/1/us-east-1", "x").contains("forms of keys"));
    assert!(refuse("object/1/us-east-1/vpc-1", "x").contains("PREFIX ROW JSON"));
    assert!(refuse("object/1/us-east-1/vpc-1", "vpc x {}").contains("number of a row"));
    assert!(refuse("object/1/us-east-1/vpc-1", "vpc 1 {}").contains("missing field"));
    assert!(refuse("object/1/us-east-1/vpc-1", "bogus 1 {}").contains("kind of object"));
    assert!(refuse("copying", "").contains("did not end"));
    let gateway = r#"{"InternetGatewayId":"igw-1","OwnerId":"1","Attachments":[],"Tags":[]}"#;
    let gateway = format!("igw 1 {gateway}");
    assert!(refuse("object/1/us-east-1/igw-2", &gateway).contains("the one of `igw-1`"));
}

/// A store whose machines another controller takes over.
struct Stolen(Arc<AtomicBool>, Arc<Notify>);

impl Store for Stolen {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _: Vec<KeyChange>) -> Result<(), CommitError> {
        Ok(())
    }

    fn has_lost_machines(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn news(&self) -> Option<Arc<Notify>> {
        Some(Arc::clone(&self.1))
    }
}

/// Machines that are running until they are all removed.
struct Running(Arc<AtomicBool>);

impl Machines for Running {
    fn start(&mut self, _: &Region, _: &Instance) -> Result<(), String> {
        Ok(())
    }

    fn stop(&mut self, _: &Region, _: &Instance) {}

    fn clear(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }

    fn run_programs(&self) -> bool {
        false
    }
}

#[test]
fn a_server_that_has_lost_its_machines_stops_them_and_ends() {
    let (lost, news) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let running = Arc::new(AtomicBool::new(true));
    let store = Box::new(Stolen(Arc::clone(&lost), Arc::clone(&news)));
    let machines = Box::new(Running(Arc::clone(&running)));
    let control = Control::new(Access::AnyCredentials, 1, store, machines).unwrap();
    let listener = server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = std::thread::spawn(move || server::serve(listener, control));
    news.notify_one();
    std::thread::sleep(Duration::from_millis(100));
    assert!(!server.is_finished() && running.load(Ordering::SeqCst));
    lost.store(true, Ordering::SeqCst);
    news.notify_one();
    let until = Instant::now() + Duration::from_secs(60);
    while !server.is_finished() {
        assert!(Instant::now() < until, "the server does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    let Err(error) = server.join().unwrap();
    assert!(error.to_string().contains("another controller"), "{error}");
    assert!(!running.load(Ordering::SeqCst));
}

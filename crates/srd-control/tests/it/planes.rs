//! Machines behind data planes that record their calls.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use srd_control::machines::{Machines, NoMachines};
use srd_control::plane::{Applied, CardMachines, DataPlane, PRINTED_MAX, PlaneStatus, printable};
use srd_control::state::{Instance, Region};
use srd_control::store::{MemoryStore, Store};

use crate::support::{Client, SharedStore};

/// Request that launches an instance whose user data is the script `#!/bin/sh`.
const RUN: &str = "Action=RunInstances&ImageId=ami-12c6146b&InstanceType=c7i.large&MinCount=1&\
                   MaxCount=1&UserData=IyEvYmluL3NoCg%3D%3D";

/// Calls of data planes, and the cause for which all of them have ended.
#[derive(Clone, Default)]
struct Log {
    calls: Arc<Mutex<Vec<String>>>,
    failed: Arc<Mutex<Option<String>>>,
}

impl Log {
    fn add(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

struct Plane {
    region: String,
    log: Log,
}

impl DataPlane for Plane {
    fn apply(&self, _: &str) -> Result<Applied, String> {
        Ok(Applied::InForce)
    }

    fn run(&self, instance: &str, _: Vec<u8>) -> Result<(), String> {
        self.log.add(format!("run {instance}"));
        Ok(())
    }

    fn status(&self) -> PlaneStatus {
        self.log.failed.lock().unwrap().take().map_or(PlaneStatus::InForce, PlaneStatus::Failed)
    }

    fn end(&self) {
        self.log.add(format!("end {}", self.region));
    }

    fn wait(&self, until: Instant) {
        assert!(until > Instant::now());
        self.log.add(format!("wait {}", self.region));
    }
}

/// Machines that need no signature, and that the test sees.
#[derive(Clone)]
struct Shared(Arc<Mutex<CardMachines>>);

impl Machines for Shared {
    fn start(&mut self, region: &Region, instance: &Instance) -> Result<(), String> {
        self.0.lock().unwrap().start(region, instance)
    }

    fn stop(&mut self, region: &Region, instance: &Instance) {
        self.0.lock().unwrap().stop(region, instance);
    }

    fn apply(&mut self, region: &Region) -> Result<(), String> {
        self.0.lock().unwrap().apply(region)
    }

    fn clear(&mut self) {
        self.0.lock().unwrap().clear();
    }

    fn run_programs(&self) -> bool {
        false
    }
}

fn start() -> (Client, Log, Shared) {
    start_with(Box::new(MemoryStore::default()))
}

fn start_with(store: Box<dyn Store>) -> (Client, Log, Shared) {
    let log = Log::default();
    let (planes, reports) = (log.clone(), log.clone());
    let open = move |_: &str, region: &str| -> Result<Box<dyn DataPlane>, String> {
        planes.add(format!("open {region}"));
        Ok(Box::new(Plane { region: region.to_owned(), log: planes.clone() }))
    };
    let report = move |text: &str| reports.add(format!("report {text}"));
    let machines = CardMachines::new(Box::new(open), Box::new(report), true);
    let machines = Shared(Arc::new(Mutex::new(machines)));
    let client = Client::with(store, Box::new(machines.clone()));
    (client, log, machines)
}

fn count(calls: &[String], call: &str) -> usize {
    calls.iter().filter(|made| *made == call).count()
}

#[test]
fn a_script_runs_once_also_if_its_card_starts_again() {
    let (mut client, log, machines) = start();
    let id = client.take(RUN, "instanceId");
    let run = format!("run {id}");
    assert_eq!(count(&log.take(), &run), 1);
    *log.failed.lock().unwrap() = Some("it was killed".to_owned());
    client.ok(&format!("Action=StopInstances&InstanceId.1={id}"));
    client.ok(&format!("Action=StartInstances&InstanceId.1={id}"));
    let calls = log.take();
    assert_eq!(count(&calls, "open us-east-1"), 1, "{calls:?}");
    assert_eq!(count(&calls, &run), 0, "{calls:?}");
    // The memory has the living instances only.
    let started = || format!("{:?}", machines.0.lock().unwrap());
    assert!(started().contains(&id));
    client.ok(&format!("Action=TerminateInstances&InstanceId.1={id}"));
    let next = client.take(RUN, "instanceId");
    assert!(!started().contains(&id) && started().contains(&next), "{}", started());
}

#[test]
fn all_data_planes_end_before_the_first_is_awaited() {
    let (mut client, log, _) = start();
    for region in ["us-east-1", "eu-west-1"] {
        client.region = region;
        client.ok(RUN);
    }
    log.take();
    let mut reset = crate::support::request("us-east-1", "");
    reset.path = "/reset".to_owned();
    assert_eq!(client.control.handle(&reset, client.now).status, 200);
    let ends = ["end eu-west-1", "end us-east-1", "wait eu-west-1", "wait us-east-1"];
    assert_eq!(log.take(), ends);
}

#[test]
fn texts_of_clients_are_printed_without_control_characters_and_cut() {
    // The state of an earlier version may have instances of types that do not exist.
    let mut store = SharedStore::default();
    let mut client = Client::with(Box::new(store.clone()), Box::new(NoMachines));
    assert!(client.ok(RUN).contains("instanceId"));
    let all = store.load().unwrap().into_iter();
    let hostile = |value: String| value.replace("c7i.large", "\\u001b]0;title\\u0007c7i.large");
    store.commit(all.map(|(key, value)| (key, Some(hostile(value)))).collect()).unwrap();
    let (_, log, _) = start_with(Box::new(store));
    let reports: Vec<_> = log.take().into_iter().filter(|c| c.starts_with("report")).collect();
    assert!(reports.iter().any(|text| text.contains("title")), "{reports:?}");
    assert!(!reports.iter().any(|text| text.contains(char::is_control)), "{reports:?}");

    assert_eq!(printable("a `b` 'c' \"d\" é"), "a `b` 'c' \"d\" é");
    assert_eq!(printable("\u{1b}[2J\n\u{9b}\u{202e}\\"), "\\u{1b}[2J\\n\\u{9b}\\u{202e}\\\\");
    let long = printable(&"x".repeat(PRINTED_MAX + 1));
    assert_eq!(long, format!("{}...", "x".repeat(PRINTED_MAX)));
    assert_eq!(printable(&"x".repeat(PRINTED_MAX)), "x".repeat(PRINTED_MAX));
}

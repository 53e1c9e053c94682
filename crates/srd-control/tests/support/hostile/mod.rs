//! Random requests of two accounts to a control plane, and the rules that hold for each answer.
//!
//! - No request ends in a panic or in an error of the server.
//! - An answer is XML with balanced elements. An error has a code, and its status is 400, 403, 405
//!   or 412.
//! - A request that is refused changes nothing.
//! - No answer contains a secret key.
//! - The store always contains the state: a second control plane on the store has the same one.
//! - The card accepts the state of each region at the end.
//!
//! A world is a control plane with few objects, which serves a number of requests. The seed of a
//! world determines its requests.

mod chance;
mod requests;
mod values;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use srd_control::control::{Access, Control};
use srd_control::http::HttpResponse;
use srd_control::machines::NoMachines;
use srd_control::project::project;
use srd_control::sign::Keys;
use srd_control::store::{CommitError, KeyChange, MemoryStore, Store};

use chance::Chance;
use requests::{KEYS, NOW};

/// Number of requests of a world.
pub(crate) const WORLD_REQUESTS: u64 = 1000;

/// Outcomes of requests.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// Number of answers by their code, which is `ok` for success.
    pub(crate) codes: BTreeMap<String, u64>,
    /// Number of successful requests of each action.
    pub(crate) actions: BTreeMap<String, u64>,
    /// Longest time of a request, and its description.
    pub(crate) slowest: (Duration, String),
    /// Size of the largest answer.
    pub(crate) bytes_max: usize,
}

/// A store that outlives its control plane.
#[derive(Clone, Default)]
struct KeptStore(Arc<Mutex<MemoryStore>>);

impl Store for KeptStore {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.0.lock().unwrap().load()
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        self.0.lock().unwrap().commit(changes)
    }
}

fn open(store: &KeptStore, seed: u64) -> Control {
    let mut keys = Keys::default();
    for [id, secret, account] in KEYS {
        keys.add(id, secret, account);
    }
    let store = Box::new(store.clone());
    Control::new(Access::Keys(keys), seed, store, Box::new(NoMachines)).unwrap()
}

/// The records of all objects: the account, the region, the identifier and the record.
fn state(control: &Control) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for ((account, region), of) in &control.cloud().regions {
        assert!(!of.is_changed(), "a request has left changes without a transaction");
        let records = of.records().unwrap().into_iter();
        all.extend(records.map(|(id, record)| (format!("{account}/{region}"), id, record)));
    }
    all.sort();
    all
}

/// Identifiers of the objects of each account, and those of their parts.
fn ids(state: &[(String, String, String)]) -> [Vec<String>; 2] {
    KEYS.map(|[_, _, account]| {
        let own = state.iter().filter(|(place, ..)| place.starts_with(account));
        let mut ids = Vec::new();
        for (_, id, record) in own {
            if id.starts_with("token/") {
                continue;
            }
            ids.push(id.clone());
            let parts = record.split('"').filter(|part| {
                ["assoc", "eni-attach-", "vpce-svc-"].iter().any(|kind| part.contains(kind))
            });
            ids.extend(parts.map(str::to_owned));
        }
        ids
    })
}

/// Sends the requests of a world. Panics if an answer breaks a rule. The text names the seed and
/// the number of the request.
pub(crate) fn run(seed: u64, count: u64, outcomes: &mut Outcomes) {
    let mut chance = Chance::new(seed);
    let store = KeptStore::default();
    let mut control = open(&store, seed);
    let mut before = state(&control);
    let mut known = ids(&before);
    for number in 0..count {
        let (kind, request) = requests::any(&mut chance, &known);
        let shown = || {
            let body = String::from_utf8_lossy(&request.body);
            let body: String = body.chars().take(2000).collect();
            format!("seed {seed}, request {number}, {kind:?}: {} {body}", request.method)
        };
        let began = Instant::now();
        let handled = std::panic::AssertUnwindSafe(|| control.handle(&request, NOW));
        let answer = std::panic::catch_unwind(handled);
        let answer = answer.unwrap_or_else(|_| panic!("a panic: {}", shown()));
        let time = began.elapsed();
        if time > outcomes.slowest.0 {
            outcomes.slowest = (time, shown());
        }
        outcomes.bytes_max = outcomes.bytes_max.max(answer.body.len());
        let code = check(&answer)
            .unwrap_or_else(|why| panic!("{why}: {}\n{} {}", shown(), answer.status, answer.body));
        *outcomes.codes.entry(code.clone()).or_default() += 1;
        if code == "ok" {
            let name = answer.body.split("Response").next().unwrap_or_default();
            let name = name.rsplit('<').next().unwrap_or_default();
            *outcomes.actions.entry(name.to_owned()).or_default() += 1;
        }
        let after = state(&control);
        // The first request of a region makes the objects of a new account.
        let entered = before.is_empty() || regions(&before) != regions(&after);
        if code != "ok" && !entered && after != before {
            let old = before.iter().find(|row| !after.contains(row));
            let new = after.iter().find(|row| !before.contains(row));
            panic!("a refused request ({code}) changes the state: {}\n{old:?}\n{new:?}", shown());
        }
        if after != before {
            known = ids(&after);
            before = after;
        }
    }
    let again = state(&open(&store, seed));
    assert!(again == before, "seed {seed}: the store contains another state");
    for ((account, region), of) in &control.cloud().regions {
        let text = project(of, Some(Path::new("/run/srd"))).text;
        if let Err(error) = srd_vpc_file::parse(&text, Path::new("the state")) {
            panic!("seed {seed}: the card refuses {region} of {account}: {error}\n{text}");
        }
    }
}

fn regions(state: &[(String, String, String)]) -> Vec<&str> {
    let mut all: Vec<&str> = state.iter().map(|(place, ..)| place.as_str()).collect();
    all.dedup();
    all
}

/// Returns the code of an answer, or the rule that it breaks.
fn check(answer: &HttpResponse) -> Result<String, String> {
    for [_, secret, _] in KEYS {
        if answer.body.contains(secret) {
            return Err("the answer contains a secret".to_owned());
        }
    }
    if ![200, 400, 403, 405, 412].contains(&answer.status) {
        return Err(format!("the status {}", answer.status));
    }
    balanced(&answer.body)?;
    if answer.status == 200 {
        return Ok("ok".to_owned());
    }
    let code = answer.body.split("<Code>").nth(1).and_then(|rest| rest.split('<').next());
    let code = code.filter(|code| !code.is_empty()).ok_or("an error without a code")?;
    match code.chars().all(|c| c.is_ascii_alphanumeric() || c == '.') {
        true => Ok(code.to_owned()),
        false => Err(format!("the code {code}")),
    }
}

/// Checks that the elements of XML are balanced, and that texts are escaped.
fn balanced(xml: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let rest = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").unwrap_or(xml);
    for part in rest.split('<').skip(1) {
        let (tag, text) = part.split_once('>').ok_or("an element without an end")?;
        if text.contains('>') || text.chars().any(|c| c < ' ' && c != '\n' && c != '\t') {
            return Err(format!("a text that is not escaped: {text:?}"));
        }
        match tag.strip_prefix('/') {
            Some(name) if open.pop() == Some(name) => {}
            Some(name) => return Err(format!("the end of {name} without its begin")),
            None => open.push(tag.split(' ').next().unwrap_or_default()),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} do not end")) }
}

//! A client that sends forms and reads elements of answers.

use std::sync::{Arc, Mutex};

use srd_control::control::{Access, Control};
use srd_control::http::{HttpRequest, HttpResponse};
use srd_control::machines::{Machines, NoMachines};
use srd_control::state::{Instance, Region};
use srd_control::store::{CommitError, KeyChange, MemoryStore, News, Store};

/// Time of all requests.
pub(crate) const NOW: u64 = 1_800_000_000;

/// A client of a control plane.
pub(crate) struct Client {
    pub(crate) control: Control,
    pub(crate) region: &'static str,
    pub(crate) now: u64,
}

/// Returns a request to EC2 with the credential of a region.
pub(crate) fn request(region: &str, form: &str) -> HttpRequest {
    let credential = format!("x/20270115/{region}/ec2/aws4_request");
    let authorization =
        format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0");
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    HttpRequest {
        method: "POST".to_owned(),
        path: "/".to_owned(),
        query: String::new(),
        headers: vec![
            header("host", "127.0.0.1:4599"),
            header("x-amz-date", "20270115T080000Z"),
            header("authorization", &authorization),
        ],
        body: form.as_bytes().to_vec(),
    }
}

impl Client {
    pub(crate) fn new() -> Self {
        Self::with(Box::new(MemoryStore::default()), Box::new(NoMachines))
    }

    pub(crate) fn with(store: Box<dyn Store>, machines: Box<dyn Machines>) -> Self {
        let control = Control::new(Access::AnyCredentials, 7, store, machines).unwrap();
        Self { control, region: "us-east-1", now: NOW }
    }

    pub(crate) fn send(&mut self, form: &str) -> HttpResponse {
        self.control.handle(&request(self.region, form), self.now)
    }

    /// Sends a request that succeeds, and returns the XML.
    pub(crate) fn ok(&mut self, form: &str) -> String {
        let answer = self.send(form);
        assert_eq!(answer.status, 200, "{form}: {}", answer.body);
        answer.body
    }

    /// Sends a request that fails, and returns the code.
    pub(crate) fn code(&mut self, form: &str) -> String {
        let answer = self.send(form);
        assert_ne!(answer.status, 200, "{form}: {}", answer.body);
        first(&answer.body, "Code")
    }

    /// Sends a request, and returns the first element with this name.
    pub(crate) fn take(&mut self, form: &str, element: &str) -> String {
        first(&self.ok(form), element)
    }

    /// The state of the client's region.
    pub(crate) fn state(&self) -> &Region {
        let at = ("123456789012".to_owned(), self.region.to_owned());
        &self.control.cloud().regions[&at]
    }

    /// Makes a VPC with a subnet, and returns both.
    pub(crate) fn network(&mut self) -> (String, String) {
        let vpc = self.take("Action=CreateVpc&CidrBlock=10.0.0.0/16", "vpcId");
        let form = format!("Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.1.0/24");
        let subnet = self.take(&form, "subnetId");
        (vpc, subnet)
    }
}

/// Returns the texts of all elements with this name that contain no other element.
pub(crate) fn all(xml: &str, element: &str) -> Vec<String> {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let after = xml.split(&open).skip(1);
    after.filter_map(|text| Some(text.split_once(&close)?.0.to_owned())).collect()
}

/// Returns the text of the first element with this name.
pub(crate) fn first(xml: &str, element: &str) -> String {
    all(xml, element).into_iter().next().unwrap_or_else(|| panic!("no {element} in {xml}"))
}

/// A store that fails after a number of commits.
pub(crate) struct FailingStore(pub(crate) usize);

impl Store for FailingStore {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _: Vec<KeyChange>) -> Result<(), CommitError> {
        let left = self.0.checked_sub(1);
        self.0 = left.ok_or_else(|| CommitError::Failed("the disk is full".to_owned()))?;
        Ok(())
    }

    fn clear(&mut self) -> Result<(), String> {
        Err("the disk is broken".to_owned())
    }
}

/// A store that several controllers use, and that outlives them: the list of all transactions.
#[derive(Clone, Default)]
pub(crate) struct SharedStore {
    log: Arc<Mutex<Vec<Vec<KeyChange>>>>,
    known: usize,
}

impl SharedStore {
    /// All keys and values.
    pub(crate) fn all(&self) -> Vec<(String, String)> {
        let mut all = MemoryStore::default();
        let log = self.log.lock().unwrap().clone();
        log.into_iter().for_each(|changes| all.commit(changes).unwrap());
        all.load().unwrap()
    }
}

impl Store for SharedStore {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.known = self.log.lock().unwrap().len();
        Ok(self.all())
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        let mut log = self.log.lock().unwrap();
        if self.known != log.len() {
            return Err(CommitError::Conflict);
        }
        log.push(changes);
        self.known = log.len();
        Ok(())
    }

    fn refresh(&mut self) -> Result<News, String> {
        let log = self.log.lock().unwrap();
        let new = log[self.known..].concat();
        self.known = log.len();
        Ok(News::Changes(new))
    }
}

/// Machines that record what happens to them, and the number of running instances of the state that
/// was applied last. An instance of the type `t3.nano` does not start, and the start of a
/// `t3a.nano` panics.
#[derive(Clone, Default)]
pub(crate) struct Recorder(pub(crate) Arc<Mutex<Vec<String>>>, pub(crate) Arc<Mutex<usize>>);

impl Machines for Recorder {
    fn start(&mut self, region: &Region, instance: &Instance) -> Result<(), String> {
        assert!(region.instances.get(&instance.instance_id).is_some());
        assert_ne!(instance.instance_type, "t3a.nano", "a defect of the data plane");
        if instance.instance_type == "t3.nano" {
            return Err("no machine of this type".to_owned());
        }
        self.0.lock().unwrap().push(format!("start {}", instance.instance_type));
        Ok(())
    }

    fn stop(&mut self, _: &Region, instance: &Instance) {
        self.0.lock().unwrap().push(format!("stop {}", instance.instance_type));
    }

    fn report(&mut self, warning: &str) {
        self.0.lock().unwrap().push(format!("report {warning}"));
    }

    fn apply(&mut self, region: &Region) -> Result<(), String> {
        let count = region.instances.iter().filter(|i| i.state.code == 16).count();
        *self.1.lock().unwrap() = count;
        Ok(())
    }

    fn run_programs(&self) -> bool {
        false
    }
}

//! The commands with a cloud and a machine in memory, whose steps fail as a test demands.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::json;

use super::*;

/// A step that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Announce,
    Launch,
    LaunchAnswer,
    Device,
    Terminate,
    Describe,
}

/// A cloud and a machine.
#[derive(Default)]
struct Site {
    fails: RefCell<Vec<(Step, ApiError)>>,
    launches: Cell<u32>,
    /// Running instances: the pod, the network and the machine of each.
    instances: RefCell<BTreeMap<String, [String; 3]>>,
    /// Announced pods, with the name of the device.
    pods: RefCell<BTreeMap<String, String>>,
    /// Pods with a device, with the name of the device and whether it is up.
    devices: RefCell<BTreeMap<String, (String, bool)>>,
    /// Whether the namespace is gone.
    is_gone: Cell<bool>,
    /// Instances that the API does not terminate.
    protected: RefCell<Vec<String>>,
    /// Number of requests to terminate an instance.
    terminations: Cell<u32>,
    /// Whether the default routes of the pods are gone.
    has_no_route: Cell<bool>,
}

impl Site {
    fn fail(&self, step: Step) -> Result<(), ApiError> {
        let fails = self.fails.borrow();
        fails.iter().find(|(of, _)| *of == step).map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    fn set(&self, fails: &[Step]) {
        let silent = ApiError::Silent("no answer".to_owned());
        *self.fails.borrow_mut() = fails.iter().map(|step| (*step, silent.clone())).collect();
    }

    fn is_empty(&self) -> bool {
        self.instances.borrow().is_empty()
            && self.pods.borrow().is_empty()
            && self.devices.borrow().is_empty()
    }
}

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 9);

impl Cloud for Site {
    fn launch(&self, launch: &Launch<'_>) -> Result<Launched, ApiError> {
        self.fail(Step::Launch)?;
        let instance = format!("i-{}", self.launches.get());
        self.launches.set(self.launches.get() + 1);
        let names = [launch.pod, launch.network, launch.node].map(str::to_owned);
        self.instances.borrow_mut().insert(instance.clone(), names);
        if self.fail(Step::Device).is_ok() {
            let device = self.pods.borrow()[launch.pod].clone();
            self.devices.borrow_mut().insert(launch.pod.to_owned(), (device, true));
        }
        self.fail(Step::LaunchAnswer)?;
        let mac = "0a:00:00:00:00:01".to_owned();
        Ok(Launched { instance, interface: "eni-1".into(), address: ADDRESS, mac })
    }

    fn terminate(&self, instance: &str) -> Result<(), ApiError> {
        self.terminations.set(self.terminations.get() + 1);
        self.fail(Step::Terminate)?;
        if self.protected.borrow().iter().any(|of| of == instance) {
            let (code, message) = ("OperationNotPermitted".to_owned(), String::new());
            return Err(ApiError::Refused { code, message });
        }
        if let Some([pod, ..]) = self.instances.borrow_mut().remove(instance) {
            self.devices.borrow_mut().remove(&pod);
        }
        Ok(())
    }

    fn instances(&self, select: Select<'_>) -> Result<Vec<(String, String)>, ApiError> {
        self.fail(Step::Describe)?;
        let all = self.instances.borrow();
        let is_selected = |names: &[String; 3]| match select {
            Select::Pod(pod) => names[0] == pod,
            Select::Network(network, node) => names[1] == network && names[2] == node,
        };
        let selected = all.iter().filter(|(_, names)| is_selected(names));
        Ok(selected.map(|(instance, names)| (instance.clone(), names[0].clone())).collect())
    }

    fn free_addresses(&self, subnet: &str) -> Result<u64, ApiError> {
        self.fail(Step::Describe)?;
        Ok(if subnet == "subnet-full" { 0 } else { 7 })
    }
}

impl Host for Site {
    fn check(&self, netns: &Path, device: &str) -> Result<(), String> {
        self.interface(netns, device)?.map_or(Ok(()), |_| Err("a device is there".to_owned()))
    }

    fn announce(&self, pod: &str, _: &Path, interface: &PodInterface) -> Result<(), String> {
        self.fail(Step::Announce).map_err(|error| error.to_string())?;
        self.pods.borrow_mut().insert(pod.to_owned(), interface.device.clone());
        Ok(())
    }

    fn withdraw(&self, pod: &str) -> Result<(), String> {
        self.pods.borrow_mut().remove(pod);
        Ok(())
    }

    fn interface(&self, _: &Path, device: &str) -> Result<Option<Interface>, String> {
        if self.is_gone.get() {
            return Err("the namespace is gone".to_owned());
        }
        let devices = self.devices.borrow();
        let found = devices.values().find(|(name, _)| name == device);
        Ok(found.map(|(_, is_up)| Interface {
            addresses: vec![(ADDRESS.into(), 24)],
            mtu: 9001,
            is_up: *is_up,
            has_default: *is_up && !self.has_no_route.get(),
            mac: String::new(),
        }))
    }

    fn set_down(&self, pod: &str, _: &str) -> Result<(), String> {
        if !self.pods.borrow().contains_key(pod) {
            return Err("the pod is not announced".to_owned());
        }
        if let Some((_, is_up)) = self.devices.borrow_mut().get_mut(pod) {
            *is_up = false;
        }
        Ok(())
    }

    fn wait(
        &self,
        (netns, device): (&Path, &str),
        _: Duration,
        is_there: &dyn Fn(Option<&Interface>) -> bool,
    ) -> Result<(bool, Option<Interface>), String> {
        let found = self.interface(netns, device)?;
        Ok((is_there(found.as_ref()), found))
    }
}

/// A network with its records.
struct Network {
    config: Config,
    records: Records,
    directory: tempfile::TempDir,
}

impl Network {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::open(&directory.path().join("records")).unwrap();
        Self { config: config(&json!({})), records, directory }
    }

    fn plugin<'a>(&'a self, site: &'a Site) -> Plugin<'a> {
        Plugin { config: &self.config, records: &self.records, cloud: site, host: site }
    }

    fn count(&self) -> usize {
        self.records.keys().unwrap().len()
    }
}

fn config(more: &Value) -> Config {
    let mut text = json!({"cniVersion": "1.1.0", "name": "cloud", "type": "srd-cni",
                          "keyFile": "/k", "subnet": "subnet-1"});
    for (key, value) in more.as_object().unwrap() {
        text[key] = value.clone();
    }
    Config::parse(text.to_string().as_bytes()).unwrap()
}

fn of(container: &str, ifname: &str) -> Attachment {
    Attachment::new(container.to_owned(), ifname.to_owned()).unwrap()
}

fn add(plugin: &Plugin<'_>, attachment: &Attachment) -> Result<Value, Failure> {
    let status = |name: &str| (name == "CNI_COMMAND").then(|| "STATUS".to_owned());
    let environment = Environment::read(&status).unwrap();
    plugin.add(attachment, Path::new("/run/netns/x"), &environment).map(|(result, _)| result)
}

/// An `ADD` whose runtime had ended also removed what a later `ADD` for the same names had made.
#[test]
fn regression_only_the_attachment_of_an_add_itself_is_undone() {
    let (site, network) = (Site::default(), Network::new());
    let (plugin, attachment) = (network.plugin(&site), of("c", "eth0"));
    let token = || {
        add(&plugin, &attachment).unwrap();
        let key = record::key("cloud", &attachment);
        network.records.get(&key).unwrap().unwrap().token
    };
    let first = token();
    plugin.del(&attachment).unwrap();
    plugin.undo(&attachment, &first).unwrap();
    let second = token();
    plugin.undo(&attachment, &first).unwrap();
    assert_eq!((network.count(), site.instances.borrow().len()), (1, 1));
    plugin.undo(&attachment, &second).unwrap();
    assert_eq!(network.count(), 0);
    assert!(site.is_empty());
}

#[test]
fn a_container_is_attached_checked_and_detached() {
    let (site, mut network) = (Site::default(), Network::new());
    let attachment = of("c", "eth0");
    let result = add(&network.plugin(&site), &attachment).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.0.1.9/24");
    let again = add(&network.plugin(&site), &attachment).unwrap_err();
    assert_eq!(again.code, Code::Exists);
    let other = add(&network.plugin(&site), &of("d", "eth0")).unwrap_err();
    assert_eq!(other.code, Code::UnknownContainer, "the device exists");
    let netns = Path::new("/run/netns/x");
    let check = |network: &Network| network.plugin(&site).check(&attachment, netns);
    assert_eq!(check(&network).unwrap_err().code, Code::Config, "no prevResult");
    network.config.previous = Some(result.clone());
    check(&network).unwrap();
    site.has_no_route.set(true);
    assert_eq!(check(&network).unwrap_err().code, Code::Differs);
    // A later plugin of the list has removed the route.
    let mut without = result;
    without["routes"] = json!([]);
    network.config.previous = Some(without);
    check(&network).unwrap();
    site.set_down(&record::key("cloud", &attachment), "eth0").unwrap();
    assert_eq!(check(&network).unwrap_err().code, Code::Differs);
    for _ in 0..2 {
        network.plugin(&site).del(&attachment).unwrap();
        assert!(site.is_empty() && network.count() == 0);
    }
    assert_eq!(check(&network).unwrap_err().code, Code::UnknownContainer);
}

#[test]
fn the_result_of_the_plugins_before_is_a_part_of_the_result() {
    let (site, mut network) = (Site::default(), Network::new());
    let other = json!({"name": "net1", "sandbox": "/run/netns/x"});
    network.config.previous = Some(json!({"cniVersion": "1.1.0", "interfaces": [other]}));
    let result = add(&network.plugin(&site), &of("c", "eth0")).unwrap();
    assert_eq!(
        (&result["interfaces"][0], &result["interfaces"][1]["name"]),
        (&other, &"eth0".into())
    );
    assert_eq!(result["ips"][0]["interface"], 1);
    network.config.previous = Some(result);
    let plugin = network.plugin(&site);
    plugin.check(&of("c", "eth0"), Path::new("/run/netns/x")).unwrap();
    let failure = add(&plugin, &of("d", "eth0")).unwrap_err();
    assert_eq!(failure.code, Code::UnknownContainer, "a plugin before has made the device");
    plugin.del(&of("c", "eth0")).unwrap();
    assert!(site.is_empty() && network.count() == 0);
}

#[test]
fn an_add_that_fails_half_way_undoes_everything() {
    for (step, code) in [
        (Step::Announce, Code::Io),
        (Step::Launch, Code::TryAgain),
        (Step::LaunchAnswer, Code::TryAgain),
        (Step::Device, Code::NoInterface),
    ] {
        let (site, network) = (Site::default(), Network::new());
        site.set(&[step]);
        let failure = add(&network.plugin(&site), &of("c", "eth0")).unwrap_err();
        assert_eq!((failure.code, failure.details.as_str()), (code, ""), "{step:?}");
        assert!(site.is_empty() && network.count() == 0, "{step:?}");
        site.set(&[]);
        add(&network.plugin(&site), &of("c", "eth0")).unwrap();
    }
}

#[test]
fn an_add_with_wrong_settings_is_undone_without_the_api() {
    let (site, network) = (Site::default(), Network::new());
    let wrong = ApiError::Settings("the key file".to_owned());
    let steps = [Step::Launch, Step::Describe, Step::Terminate];
    *site.fails.borrow_mut() = steps.map(|step| (step, wrong.clone())).to_vec();
    let failure = add(&network.plugin(&site), &of("c", "eth0")).unwrap_err();
    assert_eq!(failure.code, Code::Config);
    assert!(site.is_empty() && network.count() == 0);
}

#[test]
fn an_add_that_cannot_be_undone_is_finished_by_the_next_command() {
    let (site, network) = (Site::default(), Network::new());
    site.set(&[Step::LaunchAnswer, Step::Terminate, Step::Describe]);
    add(&network.plugin(&site), &of("c", "eth0")).unwrap_err();
    assert_eq!((site.instances.borrow().len(), network.count()), (1, 1));
    assert!(site.pods.borrow().is_empty(), "the card does not make its device again");
    // The same container: the former instance has to end first.
    assert_eq!(add(&network.plugin(&site), &of("c", "eth0")).unwrap_err().code, Code::TryAgain);
    site.set(&[]);
    network.plugin(&site).del(&of("other", "eth0")).unwrap();
    assert!(site.is_empty() && network.count() == 0);
}

#[test]
fn a_delete_succeeds_without_the_api_and_without_the_namespace() {
    let (site, network) = (Site::default(), Network::new());
    let attachment = of("c", "eth0");
    add(&network.plugin(&site), &attachment).unwrap();
    site.set(&[Step::Terminate, Step::Describe]);
    network.plugin(&site).del(&attachment).unwrap();
    assert!(!site.devices.borrow().values().any(|(_, is_up)| *is_up), "no packet passes");
    assert_eq!((site.instances.borrow().len(), network.count()), (1, 1));
    network.plugin(&site).del(&attachment).unwrap();
    site.set(&[]);
    site.is_gone.set(true);
    network.plugin(&site).del(&attachment).unwrap();
    assert!(site.is_empty() && network.count() == 0);
}

#[test]
fn a_damaged_record_does_not_keep_an_instance() {
    let (site, network) = (Site::default(), Network::new());
    let attachment = of("c", "eth0");
    add(&network.plugin(&site), &attachment).unwrap();
    let key = record::key("cloud", &attachment);
    let path = network.directory.path().join(format!("records/{key}.json"));
    std::fs::write(path, "{").unwrap();
    let failure = add(&network.plugin(&site), &attachment).unwrap_err();
    assert!(failure.message.contains("DEL removes it"), "{failure:?}");
    network.plugin(&site).del(&attachment).unwrap();
    assert!(site.is_empty() && network.count() == 0);
}

#[test]
fn a_command_finishes_a_bounded_number_of_earlier_ones() {
    let (site, network) = (Site::default(), Network::new());
    let count = FINISHED_MAX + 2;
    for n in 0..count {
        let attachment = of("c", &format!("eth{n}"));
        add(&network.plugin(&site), &attachment).unwrap();
        site.set(&[Step::Terminate]);
        network.plugin(&site).del(&attachment).unwrap();
        // A later `ADD` would finish it.
        site.set(&[]);
        let key = record::key("cloud", &attachment);
        let record = network.records.get(&key).unwrap().unwrap();
        network.records.put(&key, &Record { is_detached: false, ..record }).unwrap();
    }
    for key in network.records.keys().unwrap() {
        let record = network.records.get(&key).unwrap().unwrap();
        network.records.put(&key, &Record { is_detached: true, ..record }).unwrap();
    }
    network.plugin(&site).del(&of("other", "eth0")).unwrap();
    assert_eq!(network.count(), count - FINISHED_MAX);
    network.plugin(&site).del(&of("other", "eth0")).unwrap();
    assert!(site.is_empty() && network.count() == 0);
}

/// Attaches a number of containers, and detaches them while the API gives no answer.
fn mark(site: &Site, network: &Network, count: usize) {
    let all: Vec<_> = (0..count).map(|n| of("c", &format!("eth{n}"))).collect();
    all.iter().for_each(|of| drop(add(&network.plugin(site), of).unwrap()));
    site.set(&[Step::Terminate]);
    all.iter().for_each(|of| network.plugin(site).del(of).unwrap());
    site.set(&[]);
    assert_eq!(network.count(), count);
}

/// The first pod that could not be removed kept all later ones.
#[test]
fn regression_a_pod_that_the_api_does_not_terminate_does_not_keep_others() {
    for protected in ["i-0", "i-1"] {
        let (site, network) = (Site::default(), Network::new());
        mark(&site, &network, 2);
        site.protected.borrow_mut().push(protected.to_owned());
        network.plugin(&site).del(&of("other", "eth0")).unwrap();
        let left: Vec<String> = site.instances.borrow().keys().cloned().collect();
        assert_eq!((left, network.count()), (vec![protected.to_owned()], 1));
    }
    // Also if a command does not get beyond them.
    let (site, network) = (Site::default(), Network::new());
    mark(&site, &network, FINISHED_MAX + 3);
    let protected = site.instances.borrow().keys().take(FINISHED_MAX).cloned().collect();
    site.protected.replace(protected);
    for n in 0..200 {
        network.plugin(&site).del(&of(&format!("other{n}"), "eth0")).unwrap();
    }
    assert_eq!(network.count(), FINISHED_MAX);
}

/// A command removed the record and the announcement of a container that was attached again while
/// it waited for the end of the former instance.
#[test]
fn regression_a_record_on_which_a_command_works_is_not_finished_by_another_one() {
    let (site, network) = (Site::default(), Network::new());
    mark(&site, &network, 1);
    let key = network.records.keys().unwrap().remove(0);
    let lock = network.records.lock_key(&key).unwrap();
    network.plugin(&site).del(&of("other", "eth0")).unwrap();
    assert_eq!((site.instances.borrow().len(), network.count()), (1, 1));
    drop(lock);
    network.plugin(&site).del(&of("other", "eth0")).unwrap();
    assert!(site.is_empty() && network.count() == 0);
}

#[test]
fn commands_for_one_attachment_follow_each_other() {
    let network = Network::new();
    let attachment = of("c", "eth0");
    let key = record::key("cloud", &attachment);
    let lock = network.records.lock_key(&key).unwrap();
    let (begun, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let command = scope.spawn(|| {
            let site = Site::default();
            begun.send(()).unwrap();
            add(&network.plugin(&site), &attachment).map(drop)
        });
        begins.recv().unwrap();
        // Long enough for a command that does not wait.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(network.count(), 0);
        drop(lock);
        command.join().unwrap().unwrap();
    });
    assert_eq!(network.count(), 1);
}

#[test]
fn gc_removes_all_but_the_valid_attachments_of_its_network() {
    let (site, mut network) = (Site::default(), Network::new());
    let all = ["a", "b", "c"].map(|container| of(container, &format!("eth-{container}")));
    for attachment in &all {
        add(&network.plugin(&site), attachment).unwrap();
    }
    network.config.name = "other".to_owned();
    add(&network.plugin(&site), &of("d", "eth-d")).unwrap();
    network.config.name = "cloud".to_owned();
    // The record of `b` was lost; that of `c` is detached.
    network.records.remove(&record::key("cloud", &all[1])).unwrap();
    site.set(&[Step::Terminate]);
    network.plugin(&site).del(&all[2]).unwrap();
    let gc = |network: &Network| network.plugin(&site).gc();
    let before = site.instances.borrow().len();
    gc(&network).unwrap();
    assert_eq!(site.instances.borrow().len(), before, "there is no list");
    network.config.valid = Some(vec![all[0].clone(), all[2].clone()]);
    assert_eq!(gc(&network).unwrap_err().code, Code::TryAgain);
    site.set(&[]);
    gc(&network).unwrap();
    let left: Vec<String> = site.instances.borrow().values().map(|of| of[0].clone()).collect();
    let mut wanted = [record::key("cloud", &all[0]), record::key("other", &of("d", "eth-d"))];
    wanted.sort();
    let mut left_sorted = left.clone();
    left_sorted.sort();
    assert_eq!(left_sorted, wanted);
    assert_eq!(network.records.keys().unwrap(), wanted);
    network.config.valid = Some(Vec::new());
    gc(&network).unwrap();
    assert_eq!(site.instances.borrow().len(), 1);
}

/// While the API gave no answer, a `GC` request waited for each of its pods, and kept the lock.
#[test]
fn regression_gc_without_an_answer_marks_the_other_pods() {
    let (site, mut network) = (Site::default(), Network::new());
    for n in 0..FINISHED_MAX + 3 {
        add(&network.plugin(&site), &of("c", &format!("eth{n}"))).unwrap();
    }
    site.set(&[Step::Terminate, Step::Describe]);
    network.config.valid = Some(Vec::new());
    assert_eq!(network.plugin(&site).gc().unwrap_err().code, Code::TryAgain);
    assert_eq!((site.terminations.get(), network.count()), (1, FINISHED_MAX + 3));
    let keys = network.records.keys().unwrap();
    assert!(keys.iter().all(|key| network.records.get(key).unwrap().unwrap().is_detached));
    site.set(&[]);
    network.plugin(&site).gc().unwrap();
    assert!(network.count() == 0 && site.instances.borrow().is_empty());
}

#[test]
fn an_add_without_the_daemon_leaves_nothing() {
    let (site, network) = (Site::default(), Network::new());
    let steps = [Step::Launch, Step::Describe, Step::Terminate];
    let down = ApiError::Down("no daemon".to_owned());
    *site.fails.borrow_mut() = steps.map(|step| (step, down.clone())).to_vec();
    let failure = add(&network.plugin(&site), &of("c", "eth0")).unwrap_err();
    assert_eq!((failure.code, failure.details.as_str()), (Code::TryAgain, ""));
    assert!(site.is_empty() && network.count() == 0);
    let status = network.plugin(&site).status().unwrap_err();
    assert_eq!((status.code as u32, status.message.as_str()), (51, "no daemon"));
}

#[test]
fn status_reports_a_silent_api_and_a_full_subnet() {
    let (site, mut network) = (Site::default(), Network::new());
    network.plugin(&site).status().unwrap();
    network.config.subnet = Some("subnet-full".to_owned());
    assert_eq!(network.plugin(&site).status().unwrap_err().code, Code::Unavailable);
    network.config.subnet = None;
    network.plugin(&site).status().unwrap();
    site.set(&[Step::Describe]);
    assert_eq!(network.plugin(&site).status().unwrap_err().code, Code::Unavailable);
}

#[test]
fn errors_of_the_api_have_a_code_for_a_later_attempt() {
    let code = |name: &str| {
        let error = ApiError::Refused { code: name.to_owned(), message: String::new() };
        refused("x", &error).code
    };
    assert_eq!(code("InvalidGroup.NotFound"), Code::Config);
    assert_eq!(code("InsufficientFreeAddressesInSubnet"), Code::TryAgain);
    assert_eq!(code("Unsupported"), Code::Config, "the host can never run the pod");
    assert_eq!(code("AuthFailure"), Code::Refused);
    assert_eq!(refused("x", &ApiError::Silent(String::new())).code, Code::TryAgain);
    assert_eq!(refused("x", &ApiError::Settings(String::new())).code, Code::Config);
}

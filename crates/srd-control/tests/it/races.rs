//! Two controllers of one store that place instances at the same moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use srd_control::control::{Access, Control};
use srd_control::sign::{DrawnKey, Keys};
use srd_control::store::{CommitError, KeyChange, News, Store};

use crate::fleet::{Nodes, capacity, enrol};
use crate::support::{NOW, SharedStore, first, request};

/// A client with the key of an account.
struct Tenant(DrawnKey);

impl Tenant {
    fn send(&self, control: &mut Control, form: &str) -> (u16, String) {
        let mut request = request("us-east-1", form);
        request.headers.retain(|(name, _)| name == "host");
        self.0.authorize(&mut request, ("us-east-1", "ec2"), "20270115T080000Z").unwrap();
        let answer = control.handle(&request, NOW);
        (answer.status, answer.body)
    }

    fn ok(&self, control: &mut Control, form: &str) -> String {
        let (status, body) = self.send(control, form);
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Makes a subnet, and returns the request that starts an instance in it.
    fn launch(&self, control: &mut Control) -> String {
        let vpc = self.ok(control, "Action=CreateVpc&CidrBlock=10.0.0.0/16");
        let form = format!(
            "Action=CreateSubnet&VpcId={}&CidrBlock=10.0.1.0/24&AvailabilityZone=us-east-1a",
            first(&vpc, "vpcId")
        );
        let subnet = first(&self.ok(control, &form), "subnetId");
        format!(
            "Action=RunInstances&ImageId=ami-12c6146b&InstanceType=c7i.large&MinCount=1&\
             MaxCount=1&SubnetId={subnet}"
        )
    }
}

/// A store in which another controller launches an instance after this one has placed its own, and
/// before this one stores that.
struct Raced {
    store: SharedStore,
    other: Option<Box<dyn FnMut() + Send>>,
    /// Whether the other controller is next.
    is_armed: Arc<AtomicBool>,
}

impl Store for Raced {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.store.load()
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        if self.is_armed.swap(false, Ordering::SeqCst)
            && let Some(other) = &mut self.other
        {
            other();
        }
        self.store.commit(changes)
    }

    fn refresh(&mut self) -> Result<News, String> {
        self.store.refresh()
    }
}

/// The instances of a host belong to one account. The transaction of the store decides which of two
/// controllers has placed its instance first; the other one places again, and finds the host taken.
#[test]
fn instances_of_two_accounts_never_get_one_host_from_two_controllers() {
    let store = SharedStore::default();
    let tenants =
        ["111111111111", "222222222222"].map(|of| (Tenant(DrawnKey::draw().unwrap()), of));
    let keys = || {
        let mut keys = Keys::default();
        for (Tenant(key), account) in &tenants {
            keys.add(&key.id, &key.secret, account);
        }
        Access::Keys(keys)
    };
    let (nodes, beside) = (Nodes::start(&["a"]), Nodes::start(&["a"]));
    let of = Box::new(store.clone());
    let mut second = Control::new(keys(), 2, of, beside.machines()).unwrap();
    enrol(&mut second, "a", 1, Some(capacity("us-east-1a", 800)));
    let [(one, _), (two, _)] = &tenants;
    let [of_one, of_two] = [one, two].map(|tenant| tenant.launch(&mut second));
    let is_armed = Arc::new(AtomicBool::new(false));
    let second = Arc::new(Mutex::new(second));
    let other: Box<dyn FnMut() + Send> = {
        let (second, key) = (Arc::clone(&second), two.0.clone());
        Box::new(move || drop(Tenant(key.clone()).ok(&mut second.lock().unwrap(), &of_two)))
    };
    let raced = Raced { store, other: Some(other), is_armed: Arc::clone(&is_armed) };
    let mut control = Control::new(keys(), 3, Box::new(raced), nodes.machines()).unwrap();
    one.ok(&mut control, "Action=DescribeVpcs");
    is_armed.store(true, Ordering::SeqCst);
    let (status, answer) = one.send(&mut control, &of_one);
    assert!(!is_armed.load(Ordering::SeqCst), "the other was in between");
    assert_eq!((status, first(&answer, "Code").as_str()), (500, "InsufficientInstanceCapacity"));
    // The account that was first gets more of the host, from each controller.
    let running = |control: &Control| {
        let all = control.cloud().regions.iter();
        let of = |region: &srd_control::state::Region| {
            region.instances.iter().filter(|i| i.host.is_some()).count()
        };
        all.filter_map(|(at, region)| Some((at.0.clone(), of(region))).filter(|(_, n)| *n > 0))
            .collect::<Vec<_>>()
    };
    assert_eq!(running(&control), [("222222222222".to_owned(), 1)]);
    assert_eq!(running(&second.lock().unwrap()), [("222222222222".to_owned(), 1)]);
    let text = nodes.text("a");
    assert_eq!(text, beside.text("a"), "both controllers send the same part");
}

//! Controllers of one state, on each kind of store.

use std::time::{Duration, Instant};

use srd_control::control::{Access, Control};
use srd_control::machines::NoMachines;
use srd_control::store::Store;
use srd_control::store::embedded::EmbeddedStore;
use srd_control::store::etcd::{EtcdStore, Settings};

use crate::etcd::Cluster;
use crate::support::SharedStore;

/// Longest wait until a cluster has a leader.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two controllers of one state. They run beside each other, or, if the store has one controller
/// only, each one starts after the end of the other.
pub(crate) struct Site {
    open: Box<dyn Fn() -> Result<Control, String>>,
    are_beside: bool,
    controllers: [Option<Control>; 2],
    _cluster: Option<Cluster>,
    _directory: Option<tempfile::TempDir>,
}

impl Site {
    fn new(
        access: Access,
        are_beside: bool,
        store: impl Fn() -> Result<Box<dyn Store>, String> + 'static,
    ) -> Self {
        let open = move || Control::new(access.clone(), 1, store()?, Box::new(NoMachines));
        let open = Box::new(open);
        Self { open, are_beside, controllers: [None, None], _cluster: None, _directory: None }
    }

    /// Returns one of the controllers, which starts unless it runs.
    pub(crate) fn controller(&mut self, number: usize) -> &mut Control {
        if !self.are_beside {
            self.controllers[1 - number] = None;
        }
        let (open, controller) = (&self.open, &mut self.controllers[number]);
        controller.get_or_insert_with(|| {
            let until = Instant::now() + PATIENCE;
            loop {
                match open() {
                    Ok(control) => return control,
                    Err(why) => assert!(Instant::now() < until, "{why}"),
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        })
    }

    /// Ends both controllers, as a failure of their machines does.
    pub(crate) fn crash(&mut self) {
        self.controllers = [None, None];
    }
}

/// Runs a test on each kind of store.
pub(crate) fn on_each_store(access: &Access, test: impl Fn(Site)) {
    let shared = SharedStore::default();
    test(Site::new(access.clone(), true, move || Ok(Box::new(shared.clone()) as Box<dyn Store>)));

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let open =
        move || -> Result<Box<dyn Store>, String> { Ok(Box::new(EmbeddedStore::open(&path)?)) };
    let site = Site::new(access.clone(), false, open);
    test(Site { _directory: Some(directory), ..site });

    let Some(cluster) = Cluster::start(1) else { return };
    let members = cluster.urls();
    let open = move || -> Result<Box<dyn Store>, String> {
        let (members, prefix) = (members.clone(), "/srd/".to_owned());
        let settings = Settings { members, prefix, tls: None, report: |_| {} };
        Ok(Box::new(EtcdStore::new(&settings)?))
    };
    let site = Site::new(access.clone(), true, open);
    test(Site { _cluster: Some(cluster), ..site });
}

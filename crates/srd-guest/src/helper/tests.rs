//! Tests of helpers that run on threads of this process. Without privileges they can create only
//! sockets and files.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::{self, JoinHandle};

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::files::Files;
use super::publics::Publics;
use super::serve::Helping;
use super::*;

pub(super) struct Site {
    directory: tempfile::TempDir,
}

impl Site {
    pub(super) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn spec(&self) -> Spec {
        let logs = self.path("logs").to_str().unwrap().to_owned();
        Spec {
            socket: self.path("card.sock"),
            vhost_user: [self.path("web.sock")].into(),
            logs: [logs].into(),
            is_of_controller: false,
            config: None,
            publics: BTreeSet::new(),
            internet: false,
            internet_private: false,
        }
    }

    /// Starts a helper on a thread, for a card whose node listens at its control socket.
    fn start(&self) -> (Ending, JoinHandle<()>) {
        self.start_with(self.spec())
    }

    fn start_with(&self, spec: Spec) -> (Ending, JoinHandle<()>) {
        let socket = spec.socket.clone();
        let (card, end) = wire::pair().unwrap();
        let helping = Helping::new(spec, &self.path("locks"), end).unwrap();
        let thread = thread::spawn(move || drop(helping.run().unwrap()));
        let helper = Helper::over(card, None, None).unwrap();
        drop(UnixListener::bind(socket).unwrap());
        helper.listens().unwrap();
        (Ending::new(helper), thread)
    }
}

/// Returns a further connection to a helper. A helper refuses it until all received descriptors are
/// closed.
fn another(helper: &Helper) -> std::os::fd::OwnedFd {
    let begun = std::time::Instant::now();
    loop {
        match helper.another() {
            Ok(connection) => return connection,
            Err(error) => {
                let is_busy = format!("{error:#}").contains(STILL_CLOSING);
                assert!(is_busy && begun.elapsed().as_secs() < 60, "{error:#}");
                thread::yield_now();
            }
        }
    }
}

fn listen(helper: &Helper, path: &Path) -> Result<(), String> {
    helper.vhost(path, Meet::Listens).map(drop).map_err(|error| format!("{error:#}"))
}

#[test]
fn what_a_card_has_goes_when_it_ends() {
    let site = Site::new();
    let (helper, thread) = site.start();
    let (web, other) = (site.path("web.sock"), site.path("web.sock.ens6"));
    listen(&helper, &web).unwrap();
    listen(&helper, &other).unwrap();
    assert!(web.exists() && other.exists());
    helper.vhost_gone(other.clone());
    // Requests are done in their order: when this one is answered, the socket is gone.
    helper.end_programs(BTreeSet::new()).unwrap();
    assert!(!other.exists());
    // A file of the same name that another program has put there stays.
    std::fs::remove_file(&web).unwrap();
    std::fs::write(&web, "a file").unwrap();
    drop(helper);
    thread.join().unwrap();
    assert!(web.exists() && !site.path("card.sock").exists());
}

/// A process that takes a node over has a connection of its own.
#[test]
fn a_helper_of_two_processes_gives_nothing_back_until_both_have_gone() {
    let site = Site::new();
    let (first, thread) = site.start();
    let web = site.path("web.sock");
    listen(&first, &web).unwrap();
    // A process that was to take over has failed.
    drop(another(&first));
    let second = Ending::new(Helper::over(another(&first), None, None).unwrap());
    listen(&second, &site.path("web.sock.ens6")).unwrap();
    drop(first);
    second.end_programs(BTreeSet::new()).unwrap();
    assert!(web.exists());
    let third = Ending::new(Helper::over(another(&second), None, None).unwrap());
    drop(second);
    assert!(web.exists());
    // When this returns, everything is given back.
    drop(third);
    assert!(!web.exists() && !site.path("web.sock.ens6").exists());
    thread.join().unwrap();
}

#[test]
fn so_many_processes_have_a_helper_and_no_more() {
    let site = Site::new();
    let (helper, thread) = site.start();
    let others: Vec<_> = (1..CARDS_MAX).map(|_| another(&helper)).collect();
    let error = format!("{:#}", helper.another().unwrap_err());
    assert!(error.contains("processes have this helper already"), "{error}");
    drop(others);
    // Requests of one connection are served in their order with the ends of others.
    while helper.another().is_err() {
        thread::yield_now();
    }
    drop(helper);
    thread.join().unwrap();
}

#[test]
fn files_of_flow_logs_are_made_where_root_has_said_and_nowhere_else() {
    let site = Site::new();
    let (helper, _thread) = site.start();
    let logs = site.path("logs").to_str().unwrap().to_owned();
    let stem = || String::from("123456789010_vpcflowlogs_eu-central-1_fl-1_20261123T1745Z");
    let (_, first) = helper.log(&logs, stem(), "log.parquet.part").unwrap();
    let (_, second) = helper.log(&logs, stem(), "log.parquet.part").unwrap();
    assert_ne!(first, second, "no file is overwritten");
    helper.log_ended(&logs, first.clone(), true).unwrap();
    helper.log_ended(&logs, second.clone(), false).unwrap();
    let whole = first.strip_suffix(".part").unwrap();
    assert!(site.path("logs").join(whole).exists());
    assert_eq!(std::fs::read_dir(site.path("logs")).unwrap().count(), 1);
    let elsewhere = site.path("etc").to_str().unwrap().to_owned();
    assert!(helper.log(&elsewhere, stem(), "log").is_err());
    for name in ["vpcflowlogs", "../vpcflowlogs_", ".vpcflowlogs_", "a vpcflowlogs_", "passwd"] {
        assert!(helper.log(&logs, name.to_owned(), "log").is_err(), "{name}");
    }
    for ending in ["", "conf", "log.parquet", "log/../x"] {
        assert!(helper.log(&logs, stem(), ending).is_err(), "{ending}");
    }
    for name in [whole, "../x_vpcflowlogs_.part", "/etc/x_vpcflowlogs_.part"] {
        assert!(helper.log_ended(&logs, name.to_owned(), false).is_err(), "{name}");
    }
}

/// A helper opens no file that does not describe a cloud, for example a file that only root may
/// read.
#[test]
fn no_file_is_opened_that_is_not_of_a_cloud() {
    let site = Site::new();
    let (helper, _thread) = site.start();
    let cloud = site.path("cloud.toml");
    let text = |logs: &str| {
        format!("[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n[flow_log.a]\nvpc = \"main\"\n{logs}")
    };
    let more = site.path("more").to_str().unwrap().to_owned();
    std::fs::write(&cloud, text(&format!("directory = {more:?}\n"))).unwrap();
    let secret = site.path("secret");
    std::fs::write(&secret, "root:hush:\n").unwrap();
    let error = format!("{:#}", helper.vpc(&secret).unwrap_err());
    assert!(error.contains("no file of a cloud") && !error.contains("hush"), "{error}");
    let stem = || String::from("1_vpcflowlogs_x");
    assert!(helper.log(&more, stem(), "log").is_err());
    helper.vpc(&cloud).unwrap();
    // A file that only root may change permits its directories of flow logs.
    let (mut log, name) = helper.log(&more, stem(), "log").unwrap();
    // A file that the card has written permits none, under any name.
    let further = site.path("further").to_str().unwrap().to_owned();
    log.write_all(text(&format!("directory = {further:?}\n")).as_bytes()).unwrap();
    let log = std::path::Path::new(&more).join(name);
    assert!(helper.vpc(&log).is_err());
    let renamed = site.path("renamed.toml");
    std::fs::rename(&log, &renamed).unwrap();
    helper.vpc(&renamed).unwrap();
    assert!(helper.log(&further, stem(), "log").is_err());
    std::fs::write(&cloud, "hush = 1\n").unwrap();
    let error = format!("{:#}", helper.vpc(&cloud).unwrap_err());
    assert!(error.contains("no file of a cloud") && !error.contains("hush"), "{error}");
    assert!(helper.reload().is_err(), "there is no configuration in a file");
}

/// If the controller of a host sends the file of the cloud, it cannot make root write files in
/// directories of the host.
#[test]
fn a_file_from_a_controller_permits_no_directory() {
    let site = Site::new();
    let config = site.path("srd.toml");
    std::fs::write(&config, "[cloud]\nvpc = \"cloud.toml\"\n").unwrap();
    let spec = Spec { is_of_controller: true, config: Some(config), ..site.spec() };
    let (helper, _thread) = site.start_with(spec);
    let more = site.path("more").to_str().unwrap().to_owned();
    let cloud = site.path("cloud.toml");
    let text = format!(
        "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n[flow_log.a]\nvpc = \"main\"\n\
         directory = {more:?}\n"
    );
    std::fs::write(&cloud, text).unwrap();
    helper.vpc(&cloud).unwrap();
    assert!(helper.log(&more, String::from("1_vpcflowlogs_x"), "log").is_err());
    // A reload put a file in force that had been refused.
    let error = format!("{:#}", helper.reload().unwrap_err());
    assert!(error.contains("directories"), "{error}");
    // A reload of settings without [enrol.instances] put a local file in force.
    for (settings, cloud_text) in [
        ("[cloud]\nvpc = \"cloud.toml\"\n", "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n"),
        ("[cloud]\n", ""),
    ] {
        std::fs::write(site.path("srd.toml"), settings).unwrap();
        std::fs::write(&cloud, cloud_text).unwrap();
        let error = format!("{:#}", helper.reload().unwrap_err());
        assert!(error.contains("no [enrol.instances] any more"), "{error}");
    }
}

#[test]
fn requests_name_nothing_but_instances_and_what_the_settings_say() {
    let site = Site::new();
    let spec = site.spec();
    let read = |text: &str| serde_json::from_str::<Request>(text).map_err(|e| e.to_string());
    let refused = |text: &str| {
        let check = |of: Request| of.check(&spec, &Publics::default()).map_err(|e| e.to_string());
        let checked = read(text).and_then(check);
        assert!(checked.is_err(), "{text}");
    };
    let taken = |text: &str| read(text).unwrap().check(&spec, &Publics::default()).unwrap();
    let device = |name: &str, address: &str, length: u8| {
        format!(r#"{{"name":{name:?},"addresses":[["{address}",{length}]],"is_primary":true}}"#)
    };
    let make = |name: &str, device: &str| {
        format!(
            r#"{{"Make":[{{"name":{name:?},"devices":[{device}],"queues":2,"tx_ring":1024,
            "resolver":null,"may_find":false}}]}}"#
        )
    };
    taken(&make("web", &device("ens5", "10.0.0.4", 24)));
    // The runtime of a pod chooses the name of its device, and root announces the pod.
    let in_pod = |pod: &str, name: &str| {
        let made = make("web", &device(name, "10.0.0.4", 24));
        made.replace("\"may_find\":false", &format!("\"may_find\":false,\"pod\":{pod:?}"))
    };
    taken(&in_pod("cni-1", "eth0"));
    for (pod, device) in [("../locks/x", "eth0"), ("cni-1", "eth0 up"), ("cni-1", "lo")] {
        refused(&in_pod(pod, device));
    }
    for (name, device) in [
        ("../web", device("ens5", "10.0.0.4", 24)),
        ("web", device("ens5 up", "10.0.0.4", 24)),
        ("web", device("eth0", "10.0.0.4", 24)),
        ("web", device("ens05", "10.0.0.4", 24)),
        ("web", device("ens5\nlink del eth0", "10.0.0.4", 24)),
        ("web", device("ens5", "10.0.0.4", 33)),
        ("web", device("ens5", "default", 0)),
    ] {
        refused(&make(name, &device));
    }
    taken(r#"{"Queues":{"namespace":"srd-i-web","device":"renamed","more":2}}"#);
    for device in ["-force", "a/b", "a b", "", "0123456789abcdef", "a\\u0000"] {
        refused(&format!(
            r#"{{"Ring":{{"namespace":"srd-i-web","device":"{device}","entries":512}}}}"#
        ));
    }
    refused(r#"{"Queues":{"namespace":"eth0","device":"ens5","more":2}}"#);
    refused(r#"{"Queues":{"namespace":"srd-i-web","device":"ens5","more":2000}}"#);
    refused(r#"{"Remove":{"namespace":"srd-i-../x","ends_programs":true}}"#);
    // This card has no internet's side.
    refused(r#"{"Edge":["198.51.100.1"]}"#);
    refused(r#"{"Route":{"add":["198.51.100.1"],"remove":[]}}"#);
    for path in ["/etc/passwd", "web.sock.ens6/../x", "web.sock.passwd", "web.sock.ens6x"] {
        let path = site.path(path);
        refused(&serde_json::to_string(&Request::VhostGone(path)).unwrap());
    }
    refused(r#"{"Vpc":"etc/shadow"}"#);
    refused(r#"{"Run":"sh"}"#);
    refused(r#""Reload now""#);
    // Messages without a valid request get an answer, and the helper continues.
    let (helper, _thread) = site.start();
    let error = format!(
        "{:#}",
        helper
            .make(&[NetworkRequest {
                name: "x".repeat(41),
                devices: Vec::new(),
                queues: 1,
                tx_ring: 1,
                resolver: None,
                may_find: false,
                pod: None,
            }])
            .unwrap_err()
    );
    assert!(error.contains("no name of an instance"), "{error}");
    helper.end_programs(BTreeSet::new()).unwrap();
}

/// Namespaces of instances of other cards have names of the same form.
#[test]
fn regression_devices_of_other_cards_are_neither_changed_nor_read() {
    let site = Site::new();
    let (helper, thread) = site.start();
    let other = NamespaceName::of_instance("other").unwrap();
    let error = helper.set_ring(other.clone(), "lo".to_owned(), 512).unwrap_err();
    assert!(format!("{error:#}").contains("this card has no namespace"), "{error:#}");
    let devices = || vec!["lo".to_owned(), "ens5".to_owned()];
    let drops = helper.drops(vec![(other.clone(), devices()), (other, Vec::new())]).unwrap();
    assert_eq!(drops, [vec![None, None], Vec::new()]);
    drop(helper);
    thread.join().unwrap();
}

/// A program that controlled the card got packets to any address: the helper routed the addresses
/// of any request.
#[test]
fn regression_only_public_addresses_that_root_has_named_are_routed() {
    let site = Site::new();
    let spec =
        Spec { internet: true, publics: [Ipv4Addr::new(192, 0, 2, 7)].into(), ..site.spec() };
    let mut files = Files::new(&spec).unwrap();
    let set = |of: &[&str]| of.iter().map(|address| address.parse().unwrap()).collect();
    let asked = |files: &Files, add: &[&str]| {
        let route = Request::Route { add: set(add), remove: BTreeSet::new() };
        let both = [route, Request::Edge(set(add))];
        let checked = both.map(|of| of.check(&spec, files.publics()).map_err(|e| e.to_string()));
        assert_eq!(checked[0], checked[1]);
        let [checked, _] = checked;
        checked
    };
    asked(&files, &["192.0.2.7", "198.18.0.1", "198.51.100.128"]).unwrap();
    for hostile in ["8.8.8.8", "10.0.0.1", "127.0.0.1", "0.0.0.0", "203.0.113.1", "192.0.2.6"] {
        let error = asked(&files, &["192.0.2.7", hostile]).unwrap_err();
        assert!(error.contains(hostile) && error.contains("only root may change"), "{error}");
    }
    // Removals name routes into the device of the card, which may be of an earlier file.
    let remove = Request::Route { add: BTreeSet::new(), remove: set(&["192.0.2.99"]) };
    remove.check(&spec, files.publics()).unwrap();
    // A file that others may change permits nothing, and one of root permits its addresses.
    let path = site.path("cloud.toml");
    let file = "[elastic_address.e]\npublic = \"8.8.8.8\"\n";
    std::fs::write(&path, file).unwrap();
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o666);
    files.vpc(&path).unwrap();
    asked(&files, &["8.8.8.8"]).unwrap_err();
    mode(0o644);
    files.vpc(&path).unwrap();
    asked(&files, &["8.8.8.8", "192.0.2.7"]).unwrap();
    // So does a file that the configuration names, unless a controller sends its content.
    let config = site.path("srd.toml");
    std::fs::write(&config, "[cloud]\nvpc = \"cloud.toml\"\n").unwrap();
    std::fs::write(&path, file.replace("8.8.8.8", "192.0.2.99")).unwrap();
    mode(0o666);
    let spec = Spec { config: Some(config), ..spec.clone() };
    files.reload(&spec).unwrap();
    asked(&files, &["192.0.2.99"]).unwrap();
    let mut controlled = Files::new(&Spec { is_of_controller: true, ..spec.clone() }).unwrap();
    assert!(controlled.reload(&spec).is_err());
    mode(0o644);
    controlled.vpc(&path).unwrap();
    asked(&controlled, &["192.0.2.99"]).unwrap_err();
}

#[test]
fn an_end_may_ask_for_its_own_and_hears_why_not() {
    let site = Site::new();
    let (card, end) = wire::pair().unwrap();
    drop(UnixListener::bind(site.path("card.sock")).unwrap());
    let helping = Helping::new(site.spec(), &site.path("locks"), end).unwrap();
    let thread = thread::spawn(move || drop(helping.run().unwrap()));
    let mut receiver = wire::Receiver::new();
    let mut answer = || {
        let said = receiver.next::<Answer>(&card).unwrap().unwrap().message.unwrap();
        match said.body {
            Some(Answer::Failed { what, .. }) => (said.id, what),
            other => panic!("{other:?}"),
        }
    };
    let edge = Message { id: 5, body: Some(Request::Edge(BTreeSet::new())) };
    wire::send(&card, &edge, &[], wire::WITHOUT_LIMIT).unwrap();
    assert_eq!(answer(), (5, String::from("this card has no internet's side")));
    wire::send(&card, &Message::<Request> { id: 6, body: None }, &[], wire::WITHOUT_LIMIT).unwrap();
    assert_eq!(answer(), (6, String::from("no request")));
    rustix::io::write(&card, b"rubbish").unwrap();
    assert!(answer().1.contains("not a message"));
    rustix::io::write(&card, &vec![b' '; PACKET_BYTES_MAX + 1]).unwrap();
    assert!(answer().1.contains("bytes at once"));
    drop(card);
    thread.join().unwrap();
}

/// The longest answer has more descriptors than one packet can carry.
#[test]
fn an_answer_has_all_its_descriptors_in_their_order() {
    let (here, there) = wire::pair().unwrap();
    let pipes: Vec<_> = (0..DESCRIPTORS_ONCE * 2).map(|_| rustix::pipe::pipe().unwrap()).collect();
    for count in [0, 1, DESCRIPTORS_ONCE, DESCRIPTORS_ONCE + 1, 2 * DESCRIPTORS_ONCE] {
        let all: Vec<_> = pipes.iter().take(count).map(|(read, _)| read.as_fd()).collect();
        wire::send(&here, &Message { id: 9, body: Some(Answer::Done) }, &all, wire::WITHOUT_LIMIT)
            .unwrap();
        let (mut receiver, mut got) = (wire::Receiver::new(), Vec::new());
        loop {
            let received = receiver.next::<Answer>(&there).unwrap().unwrap();
            got.extend(received.descriptors);
            if received.message.unwrap().body.is_some() {
                break;
            }
        }
        assert_eq!(got.len(), count);
        let number = |fd: &std::os::fd::OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        let wanted = pipes.iter().take(count).map(|(read, _)| number(read));
        assert!(got.iter().map(number).eq(wanted));
    }
}

/// Only the log contained the end of a helper.
#[test]
fn regression_a_helper_that_has_ended_is_a_warning() {
    let (card, end) = wire::pair().unwrap();
    let helper = Helper::over(card, None, None).unwrap();
    assert_eq!(helper.warning(), None);
    drop(end);
    while helper.warning().is_none() {
        thread::yield_now();
    }
    assert!(helper.warning().unwrap().contains("has ended"));
}

/// In an earlier version such a request waited without a limit for space in the socket.
#[test]
fn regression_a_helper_that_does_not_read_delays_a_request_to_its_limit_only() {
    let (card, _end) = wire::pair().unwrap();
    let helper = Helper::over(card, None, None).unwrap();
    // Fills the socket; requests that need no answer do not wait.
    let path = PathBuf::from("x".repeat(4000));
    (0..1000).for_each(|_| helper.vhost_gone(path.clone()));
    let (done, result) = std::sync::mpsc::channel();
    thread::spawn(move || done.send(helper.another().map(drop)));
    let asked = result.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits");
    let error = format!("{:#}", asked.unwrap_err());
    assert!(error.contains("does not read"), "{error}");
}

/// In an earlier version the card got no answer in these cases, and waited until its limit.
#[test]
fn regression_an_answer_that_is_too_long_becomes_a_failure() {
    let (card, end) = wire::pair().unwrap();
    let long_wait = Some(std::time::Duration::from_secs(60));
    set_socket_timeout(&card, Timeout::Recv, long_wait).unwrap();
    let mut receiver = wire::Receiver::new();
    let mut answer = || {
        let said = receiver.next::<Answer>(&card).unwrap().unwrap().message.unwrap();
        match said.body {
            Some(Answer::Failed { what, .. }) => (said.id, what),
            other => panic!("{other:?}"),
        }
    };
    let long = "é".repeat(PACKET_BYTES_MAX);
    let (send, done) = std::sync::mpsc::channel();
    thread::spawn(move || {
        serve::say(&end, 5, Ok((Answer::Log(long.clone()), Vec::new())));
        serve::say(&end, 6, Err(anyhow::anyhow!(long).context("a reason")));
        send.send(())
    });
    done.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    let (id, what) = answer();
    assert!(id == 5 && what.contains("too long"), "{what}");
    let (id, what) = answer();
    assert!(id == 6 && what.starts_with("a reason: é") && what.len() < 10_000);
}

/// The helper in this test refuses the socket, and then the removal of the routes.
#[test]
fn regression_a_failure_is_not_replaced_by_the_failure_to_undo_what_came_before() {
    let (card, end) = wire::pair().unwrap();
    let helper = Helper::over(card, None, None).unwrap();
    let answers = thread::spawn(move || {
        let mut receiver = wire::Receiver::new();
        for answer in ["", "the socket is in use", "no such route"] {
            let id = receiver.next::<Request>(&end).unwrap().unwrap().message.unwrap().id;
            let failed = || Err(anyhow::anyhow!(answer));
            serve::say(&end, id, if answer.is_empty() { Ok(serve::done()) } else { failed() });
        }
    });
    let needs = crate::machine::maker::Needs {
        wanted: Vec::new(),
        sockets: vec![(String::from("web"), vec![PathBuf::from("/web.sock")])],
        routes: [Ipv4Addr::new(192, 0, 2, 1)].into(),
    };
    let error = format!("{:#}", needs.make(&helper).unwrap_err());
    assert!(error.contains("the socket is in use"), "{error}");
    answers.join().unwrap();
}

/// The user had to repeat a take-over during which the helper still closed descriptors of an
/// earlier one.
#[test]
fn regression_a_connection_that_is_refused_for_a_moment_is_requested_again() {
    let (card, end) = wire::pair().unwrap();
    let helper = Helper::over(card, None, None).unwrap();
    let answers = thread::spawn(move || {
        let mut receiver = wire::Receiver::new();
        let mut next = || receiver.next::<Request>(&end).unwrap().unwrap().message.unwrap().id;
        for _ in 0..client::ANOTHER_TRIES_MAX + 3 {
            serve::say(&end, next(), Err(anyhow::anyhow!(STILL_CLOSING)));
        }
        let (_, other) = wire::pair().unwrap();
        serve::say(&end, next(), Ok((Answer::Done, vec![other])));
    });
    // The first call ends at its limit, and the second one after three refusals.
    assert_eq!(helper.another().unwrap_err().to_string(), STILL_CLOSING);
    helper.another().unwrap();
    answers.join().unwrap();
}

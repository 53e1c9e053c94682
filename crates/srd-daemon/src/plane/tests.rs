//! Tests of requests to the control thread: bounds, order, and the end at a hand-over.

use super::*;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicU32, Ordering};

/// A source of statistics for tests that read no statistics.
struct None;

impl Statistics for None {
    fn snapshot(&self, _: &Detail) -> Result<Snapshot, PlaneError> {
        Err(PlaneError::Gone)
    }
}

pub(crate) fn quiet() -> (PlaneHandle, Receiver<Command>) {
    PlaneHandle::new(Arc::new(|| {}), Arc::new(None))
}

#[test]
fn a_command_wakes_the_plane_and_its_answer_comes_back() {
    let woken = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&woken);
    let waker = move || {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let (handle, commands) = PlaneHandle::new(Arc::new(waker), Arc::new(None));
    let plane = std::thread::spawn(move || {
        let Ok(Command::Set { change, reply }) = commands.recv() else { return };
        reply.send(Err(change.to_string()));
    });
    let change = Change { udp: Some(true), ..Change::default() };
    let answer = handle.set(change).unwrap();
    assert_eq!(answer, Err("to set for the whole interface: udp on".to_owned()));
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    plane.join().unwrap();
    assert_eq!(handle.set(Change::default()), Err(PlaneError::Gone));
}

#[test]
fn beyond_the_bound_a_command_is_refused_at_once() {
    let (handle, commands) = quiet();
    for _ in 0..COMMANDS_MAX {
        handle.command(Command::Stop).unwrap();
    }
    assert_eq!(handle.command(Command::Stop), Err(PlaneError::Busy));
    drop(commands);
    assert_eq!(handle.command(Command::Stop), Err(PlaneError::Gone));
}

#[test]
fn a_plane_that_drops_the_reply_is_gone_and_a_late_answer_harms_nobody() {
    let (handle, commands) = quiet();
    let plane = std::thread::spawn(move || drop(commands.recv()));
    assert_eq!(handle.set(Change::default()), Err(PlaneError::Gone));
    plane.join().unwrap();
    let (reply, answer) = oneshot();
    drop(answer);
    reply.send(1);
}

fn changes(reload: ReloadInstances) -> InstanceChanges {
    let freeze = || Ok(FrozenInstances(Box::new(())));
    InstanceChanges { reload, apply: Arc::new(|_| Ok(())), freeze: Arc::new(freeze) }
}

/// Returns a configuration whose only peer has this name.
fn with_peer(name: &str) -> Config {
    let text = format!(
        "[interface]\nmode = \"transparent\"\nlisten = \"0.0.0.0:7471\"\n\
         protection = \"plain\"\n[[peer]]\nname = \"{name}\"\n\
         endpoint = \"192.0.2.2:7471\"\nallowed = [\"192.0.2.2\"]\n"
    );
    Config::parse(&text, std::path::Path::new("test.toml")).unwrap()
}

#[test]
fn a_reload_that_waited_applies_the_file_as_it_is_after_the_wait() {
    let (handle, commands) = quiet();
    let file = Arc::new(Mutex::new("old"));
    let changing = handle.alone();
    let (other, read) = (handle.clone(), Arc::clone(&file));
    let (begins, begun) = mpsc::channel();
    let waiting = std::thread::spawn(move || {
        begins.send(()).unwrap();
        other.reload(|| Ok::<_, String>(with_peer(*read.lock().unwrap())))
    });
    begun.recv().unwrap();
    // The other thread has time to read the file too early.
    std::thread::sleep(Duration::from_millis(50));
    *file.lock().unwrap() = "new";
    drop(changing);
    let applied = loop {
        match commands.recv().unwrap() {
            Command::Running { reply } => reply.send(Box::new(with_peer("running"))),
            Command::Reload { config, reply } => {
                reply.send(Ok(ReloadReport::default()));
                break config;
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(applied.peers[0].name, "new");
    waiting.join().unwrap().unwrap().unwrap();
}

#[test]
fn a_reload_reports_changes_in_the_file_of_the_vpc() {
    let (handle, commands) = quiet();
    let plane = std::thread::spawn(move || {
        for command in &commands {
            match command {
                Command::Reload { reply, .. } => reply.send(Ok(ReloadReport::default())),
                _ => return,
            }
        }
    });
    let report = |is_new| {
        let waits = Vec::new();
        let of_daemon = Vec::new();
        let reloaded = ReloadedInstances { is_new, waits, of_daemon };
        let reload = move || Ok(reloaded.clone());
        let handle = handle.clone().with_instances(Some(changes(Arc::new(reload))));
        let report = handle.reload(|| Ok::<_, String>(with_peer("b"))).unwrap().unwrap();
        report.to_string()
    };
    assert_eq!(report(true), "changes in the VPC's file taken over");
    assert_eq!(report(false), "nothing has changed");
    handle.command(Command::Stop).unwrap();
    plane.join().unwrap();
}

/// The helper of the instances may read a file that this process may not read.
#[test]
fn a_file_that_only_the_helper_reads_changes_the_instances_alone() {
    let (handle, _commands) = quiet();
    let load = || Err::<Config, _>("permission denied".to_owned());
    assert_eq!(handle.reload(load).unwrap().unwrap_err(), "permission denied");
    let with = |reload: ReloadInstances| handle.clone().with_instances(Some(changes(reload)));
    let reload = Arc::new(|| {
        let [waits, of_daemon] = ["scale", "interface and peer"].map(|key| vec![key.into()]);
        Ok(ReloadedInstances { is_new: true, waits, of_daemon })
    });
    let report = with(reload).reload(load).unwrap().unwrap();
    assert_eq!(
        (report.vpc, report.restart),
        (true, ["scale", "interface and peer"].map(str::to_owned).to_vec())
    );
    let fails = Arc::new(|| Err("there is no table [cloud]".to_owned()));
    let refusal = with(fails).reload(load).unwrap().unwrap_err();
    assert_eq!(refusal, "nothing was changed: there is no table [cloud]");
    // Both processes read the same text.
    let fails = Arc::new(|| Err("permission denied".to_owned()));
    assert_eq!(with(fails).reload(load).unwrap().unwrap_err(), "permission denied");
}

#[test]
fn a_reload_that_fails_after_the_instances_says_that_they_were_changed() {
    let (handle, commands) = quiet();
    let plane = std::thread::spawn(move || {
        for command in &commands {
            match command {
                Command::Running { reply } => reply.send(Box::new(with_peer("running"))),
                Command::Reload { reply, .. } => {
                    reply.send(Err("nothing was changed: no".to_owned()));
                }
                _ => return,
            }
        }
    });
    let load = || Ok::<_, String>(with_peer("b"));
    let refused = |handle: &PlaneHandle| handle.reload(load).unwrap().unwrap_err();
    assert_eq!(refused(&handle), "nothing was changed: no");
    let reload = Arc::new(|| Ok(ReloadedInstances::default()));
    let with = handle.clone().with_instances(Some(changes(reload)));
    let why = refused(&with);
    assert!(why.starts_with("the rules of the instances were applied"), "{why}");
    handle.command(Command::Stop).unwrap();
    plane.join().unwrap();
    // The same if the control thread gives no answer.
    let why = refused(&with);
    assert!(why.starts_with("the rules of the instances were applied"), "{why}");
    assert_eq!(handle.reload(load).unwrap_err(), PlaneError::Gone);
}

/// A daemon that got SIGTERM while another process took over was replaced by this process, which
/// went on.
#[test]
fn regression_a_stop_during_a_hand_over_reaches_the_other_process() {
    let (handle, commands) = quiet();
    handle.stop().unwrap();
    let waiting = std::thread::spawn({
        let handle = handle.clone();
        move || handle.set(Change::default())
    });
    // Both commands wait for the control thread.
    let waits = loop {
        match commands.try_recv() {
            Ok(command @ Command::Set { .. }) => break command,
            Ok(_) => handle.stop().unwrap(),
            Err(_) => std::thread::yield_now(),
        }
    };
    let (here, there) = UnixStream::pair().unwrap();
    handle.hand_over(here, &commands);
    drop(waits);
    assert_eq!(waiting.join().unwrap(), Err(PlaneError::Gone));
    let mut lines = BufReader::new(there).lines();
    assert_eq!(lines.next().unwrap().unwrap(), STOP);
    // Later requests reach the other process as well, and everything else is refused.
    handle.stop().unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), STOP);
    assert_eq!(handle.set(Change::default()), Err(PlaneError::HandedOver));
    let load = || Ok::<_, String>(with_peer("b"));
    assert_eq!(handle.reload(load).unwrap_err(), PlaneError::HandedOver);
    let reload = Arc::new(|| Ok(ReloadedInstances::default()));
    let with = handle.with_instances(Some(changes(reload)));
    assert!(with.apply_cloud(Path::new("a.toml")).unwrap_err().contains("try again"));
}

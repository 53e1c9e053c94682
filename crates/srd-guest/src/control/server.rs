//! Requests about instances at the control socket of the node. The node accepts connections, and
//! serves each on a thread of its own.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections, and a time limit for each wait.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Result, bail};
use srd_card::device::ring::{RingSize, Side};
use srd_daemon::control::{ServeInstances, log_asked, log_refused};
use srd_net::clock;
use srd_trust::peer;

use crate::control::orders::{Command, Orders, Repair, RulesReply, hand};
use crate::control::protocol::{Answer, Attach, DeviceChange, LINE_BYTES_MAX, Request};
use crate::control::several;
use crate::control::tracing::Tracing;
use crate::control::views;
use crate::figures::pages::WRITTEN_WITHIN;

/// Maximum number of connections: each instance that `srd run` adds has a connection.
const CONNECTIONS_MAX: usize = 256;
/// Longest wait for the repair of instances that other programs have changed, after other rules are
/// in force.
const REPAIR_WAIT_MAX: Duration = Duration::from_secs(20);
/// Longest time for one write. The connection of a slower reader is closed.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Error message for a process of a user that may not send requests to the card.
const REFUSED: &str = "only root and the user of this card may ask it";

/// A slot for one connection. The slot is free again when this value is dropped.
struct ConnectionSlot {
    open: Arc<AtomicUsize>,
}

impl ConnectionSlot {
    /// Takes a slot; `None` if [`CONNECTIONS_MAX`] are taken.
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let slot = Self { open: Arc::clone(open) };
        let before = open.fetch_add(1, Ordering::Relaxed);
        (before < CONNECTIONS_MAX).then_some(slot)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the function that serves requests about instances at the socket of a node. Root and the
/// user `owner`, which has started the node, may send requests. The user to which the node has
/// changed may not. `controller`: the controller that sends the instances of the node, if one does.
/// Then no request puts the rules of a file in force.
pub(crate) fn of_node(orders: Orders, owner: u32, controller: Option<String>) -> ServeInstances {
    let open = Arc::default();
    Arc::new(move |stream| {
        let Some(_slot) = ConnectionSlot::take(&open) else { return };
        if let Err(error) = serve(stream, &orders, owner, controller.as_deref()) {
            tracing::debug!("a connection ended: {error:#}");
        }
    })
}

/// Instances and traces that a connection has begun, and that end with it.
struct Begun<'a> {
    orders: &'a Orders,
    instances: Vec<String>,
    traces: BTreeMap<u64, Tracing>,
    /// Number of the last trace of this connection.
    last_trace: u64,
    /// Repair of instances that follows the last request for other rules.
    repair: Option<Repair>,
    /// The controller that sends the instances of the node, if one does.
    controller: Option<&'a str>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        for name in self.instances.drain(..) {
            several::detach(self.orders, &name);
        }
    }
}

fn serve(
    mut stream: UnixStream,
    orders: &Orders,
    user: u32,
    controller: Option<&str>,
) -> Result<()> {
    stream.set_write_timeout(Some(WRITE_WAIT_MAX))?;
    // The mode of the file keeps other users out, but the mode can change.
    if let Err(error) = peer::check_one(&stream, user) {
        tracing::warn!("a request is refused: {error}");
        return say(&mut stream, &Answer::Failed { what: REFUSED.into() });
    }
    let mut stream = BufReader::new(stream);
    let (instances, traces) = (Vec::new(), BTreeMap::new());
    let mut begun = Begun { orders, instances, traces, last_trace: 0, repair: None, controller };
    loop {
        let mut line = String::new();
        let bytes = (&mut stream).take(LINE_BYTES_MAX as u64).read_line(&mut line)?;
        if bytes == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') {
            bail!("a request of more than {LINE_BYTES_MAX} bytes, or one that was cut off");
        }
        let request = serde_json::from_str::<Request>(&line);
        let change = request.as_ref().ok().and_then(change_in_words);
        if let Some(what) = &change {
            log_asked(stream.get_ref(), what);
        }
        let answer = match request {
            Ok(Request::Traced { id }) => begun.traced(id)?,
            Ok(Request::Attach(attach)) => begun.attached(attach)?,
            Ok(Request::Apply { file, removes_all }) => begun.applied(&file, removes_all)?,
            Ok(Request::Repaired) => begun.repaired(REPAIR_WAIT_MAX),
            Ok(request @ Request::Trace { .. }) => begun.tracing(&request)?,
            Ok(request) => ask(orders, request)?,
            Err(error) => Answer::Failed { what: format!("this is no request: {error}") },
        };
        if let (Some(change), Answer::Failed { what }) = (&change, &answer) {
            log_refused(change, what);
        }
        say(stream.get_mut(), &answer)?;
    }
}

/// Returns the words of the log about a request that changes something; `None` for other requests.
fn change_in_words(request: &Request) -> Option<String> {
    match request {
        Request::Apply { file, .. } => Some(format!("to apply the file {}", file.display())),
        Request::Attach(Attach { name, instance_type, .. }) => Some(match name {
            Some(name) => format!("to add the instance {name:?}, {instance_type}"),
            None => format!("to add an instance, {instance_type}"),
        }),
        Request::Device { instance: name, device, change }
            if *change != DeviceChange::default() =>
        {
            let device = match device {
                Some(device) => format!("the device {device}"),
                None => String::from("the first device"),
            };
            Some(format!("to change {device} of the instance {name:?}"))
        }
        _ => None,
    }
}

fn say(stream: &mut UnixStream, answer: &Answer) -> Result<()> {
    let mut text = serde_json::to_string(answer)?;
    text.push('\n');
    Ok(stream.write_all(text.as_bytes())?)
}

impl Begun<'_> {
    /// Adds an instance.
    fn attached(&mut self, attach: Attach) -> Result<Answer> {
        let name = match several::attach(self.orders, attach)? {
            Ok(name) => name,
            Err(what) => return Ok(Answer::Failed { what }),
        };
        self.instances.push(name.clone());
        // An instance that cannot be shown ends with the connection, like any other.
        Ok(match views::made(self.orders, &name) {
            Ok(instance) => Answer::Attached(instance),
            Err(error) => Answer::Failed { what: format!("{error:#}") },
        })
    }

    /// Puts the rules of a file in force. `removes_all`: whether a file without instances may end
    /// all instances.
    fn applied(&mut self, file: &Path, removes_all: bool) -> Result<Answer> {
        if let Some(controller) = self.controller {
            let what = format!(
                "the controller {controller} sends the instances of this node: change them there"
            );
            return Ok(Answer::Failed { what });
        }
        // Until the rules are in force, or refused.
        let _passage = match self.orders.gate.enter() {
            Ok(passage) => passage,
            Err(what) => return Ok(Answer::Failed { what }),
        };
        let began = clock::now();
        // The file is read here and not in the packet thread, because reading may take a while.
        let read = self.orders.helper().and_then(|helper| helper.vpc(file));
        let file = match read.and_then(|read| Ok(read.for_card(file)?)) {
            Ok(file) => file,
            Err(error) => return Ok(Answer::Failed { what: format!("{error:#}") }),
        };
        let RulesReply { answer, repair } = several::apply(self.orders, file, began, removes_all)?;
        self.repair = repair;
        Ok(answer)
    }

    /// Waits until instances are repaired, for at most `time`.
    fn repaired(&mut self, time: Duration) -> Answer {
        let Some(repair) = &mut self.repair else {
            let what = String::from("this connection has put no rules in force");
            return Answer::Failed { what };
        };
        let left = repair.wait(time);
        let unfinished_s = left.is_none().then_some(time.as_secs());
        Answer::Repaired { warnings: left.unwrap_or_default(), unfinished_s }
    }

    /// Begins a trace.
    fn tracing(&mut self, request: &Request) -> Result<Answer> {
        let begun = match Tracing::begin(self.orders, request)? {
            Ok(begun) => begun,
            Err(refused) => return Ok(refused),
        };
        self.last_trace += 1;
        self.traces.insert(self.last_trace, begun);
        Ok(Answer::Tracing { id: self.last_trace })
    }

    /// Returns the new records of a trace as text.
    fn traced(&mut self, id: u64) -> Result<Answer> {
        match self.traces.get_mut(&id) {
            Some(trace) => trace.read(id),
            None => Ok(Answer::Failed { what: format!("this connection has no trace {id}") }),
        }
    }
}

fn ask(orders: &Orders, request: Request) -> Result<Answer> {
    let failed = |what: String| Ok(Answer::Failed { what });
    // The worker that has the instance.
    let mut orders = orders;
    if let Request::Device { instance, .. } = &request {
        match views::worker_with(orders, instance)? {
            Some((worker, _)) => orders = worker,
            None => return failed(views::why_unknown(orders, instance)),
        }
    }
    let (back, answer) = channel();
    let command = match request {
        Request::Status => return views::status(orders).map(Answer::Status),
        Request::Logs => {
            orders.refresh(WRITTEN_WITHIN)?;
            return Ok(Answer::Logs { logs: views::logs(orders) });
        }
        Request::Flows { instance, most } => {
            return match views::flows(orders, &instance, most.into()) {
                Ok(flows) => Ok(Answer::Flows { flows }),
                Err(error) => failed(format!("{error:#}")),
            };
        }
        Request::Device { instance, device, change } if change.tx_ring.is_some() => {
            return set_rings(orders, (&instance, device.as_deref()), change);
        }
        request => Command::Ask(request, back),
    };
    hand(orders, command, &answer)
}

/// Changes a device, including the rings for packets from the instance. The kernel owns these
/// rings: they are set first, and restored if the rest of the change fails. // D10
fn set_rings(
    orders: &Orders,
    (instance, device): (&str, Option<&str>),
    change: DeviceChange,
) -> Result<Answer> {
    let ask = |change: DeviceChange| {
        let (back, answer) = channel();
        let (instance, device) = (instance.to_owned(), device.map(str::to_owned));
        hand(orders, Command::Ask(Request::Device { instance, device, change }, back), &answer)
    };
    let failed = |what: String| Ok(Answer::Failed { what });
    let asked = change.tx_ring.unwrap_or_default();
    let entries = match RingSize::new(Side::Tx, asked) {
        Ok(size) => size.entries(),
        Err(error) => return failed(error.to_string()),
    };
    let before = match ask(DeviceChange::default())? {
        Answer::Device(report) => report,
        other => return Ok(other),
    };
    let set = |entries| {
        let Some(namespace) = &before.namespace else { return Ok(()) };
        let name = before.renamed.as_ref().unwrap_or(&before.device);
        orders.helper()?.set_ring(namespace.clone(), name.clone(), entries)
    };
    if let Err(error) = set(entries) {
        return failed(format!("the ring: {error:#}"));
    }
    let answer = ask(change)?;
    if let Answer::Failed { what } = &answer
        && let Err(error) = set(before.settings.tx_ring)
    {
        return failed(format!("{what}; and the ring stays at {entries}: {error:#}"));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `srd card apply` left no line in the log.
    #[test]
    fn regression_requests_that_change_something_are_logged_and_others_are_not() {
        let words = |request| change_in_words(&request);
        let apply = Request::Apply { file: "/etc/srd/cloud.toml".into(), removes_all: false };
        // As earlier versions write it.
        let text = r#"{"request":"apply","file":"/etc/srd/cloud.toml"}"#;
        assert_eq!(serde_json::from_str::<Request>(text).unwrap(), apply);
        assert_eq!(serde_json::to_string(&apply).unwrap(), text);
        assert_eq!(words(apply).unwrap(), "to apply the file /etc/srd/cloud.toml");
        let device = |change| {
            let (instance, device) = (String::from("web"), Some(String::from("ens6")));
            Request::Device { instance, device, change }
        };
        assert_eq!(words(device(DeviceChange::default())), None);
        let change = DeviceChange { tx_ring: Some(512), ..DeviceChange::default() };
        let text = "to change the device ens6 of the instance \"web\"";
        assert_eq!(words(device(change)).unwrap(), text);
        let attach = Attach { instance_type: String::from("c7i.large"), ..Attach::default() };
        assert_eq!(words(Request::Attach(attach)).unwrap(), "to add an instance, c7i.large");
        assert_eq!((words(Request::Status), words(Request::Repaired)), (None, None));
    }

    fn begun<'a>(orders: &'a Orders, controller: Option<&'a str>) -> Begun<'a> {
        let (instances, traces) = (Vec::new(), BTreeMap::new());
        Begun { orders, instances, traces, last_trace: 0, repair: None, controller }
    }

    /// The instances that the controller had sent ended.
    #[test]
    fn regression_no_file_replaces_the_instances_of_a_controller() {
        let (orders, commands, _wake) = Orders::new().unwrap();
        let mut begun = begun(&orders, Some("192.0.2.10:4600"));
        let Answer::Failed { what } = begun.applied(Path::new("/cloud.toml"), true).unwrap() else {
            panic!("it was not refused")
        };
        assert!(what.starts_with("the controller 192.0.2.10:4600 sends the instances"), "{what}");
        assert!(commands.try_recv().is_err(), "no worker gets the file");
    }

    /// `srd card apply` ended before a deleted namespace was there again.
    #[test]
    fn regression_a_repair_is_over_when_it_has_ended_or_after_a_limit() {
        let (orders, _commands, _wake) = Orders::new().unwrap();
        let mut begun = begun(&orders, None);
        let failed = begun.repaired(Duration::from_secs(60));
        assert!(matches!(failed, Answer::Failed { .. }), "{failed:?}");
        let (repair, back) = Repair::new();
        begun.repair = Some(repair);
        let unfinished = Answer::Repaired { warnings: Vec::new(), unfinished_s: Some(0) };
        assert_eq!(begun.repaired(Duration::from_millis(1)), unfinished);
        let warnings = vec![String::from("the name srd-i-a leads to another namespace")];
        let left = warnings.clone();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            back.send(left)
        });
        let answer = begun.repaired(Duration::from_secs(60));
        assert_eq!(answer, Answer::Repaired { warnings, unfinished_s: None });
        ends.join().unwrap().unwrap();
    }
}

//! The figures of several workers as those of one card.

use crate::control::protocol::{FlowLog, Instance, PeerHost, Status, Tables};

/// Adds the status of the worker with the next number.
pub(crate) fn add(status: &mut Status, further: Status) {
    let Status { tables, hosts, instances, drops, internet_gone, uptime_s, .. } = further;
    status.uptime_s = status.uptime_s.max(uptime_s);
    add_tables(&mut status.tables, &tables);
    for host in hosts {
        match status.hosts.iter_mut().find(|of| of.name == host.name) {
            Some(of) => add_host(of, host),
            None => status.hosts.push(host),
        }
    }
    status.hosts.sort_by(|one, other| one.name.cmp(&other.name));
    let worker = status.workers;
    status.workers = worker.saturating_add(1);
    status.instances.extend(instances.into_iter().map(|of| Instance { worker, ..of }));
    status.instances.sort_by(|one, other| one.name.cmp(&other.name));
    for (cause, packets) in drops {
        *status.drops.entry(cause).or_default() += packets;
    }
    if status.internet_gone.is_none() {
        status.internet_gone = internet_gone;
    }
}

fn add_tables(tables: &mut Tables, further: &Tables) {
    let Tables { interfaces, mapped, members, answers, bytes, .. } = *further;
    let Tables { asked, answered, refused, not_asked, .. } = *further;
    tables.interfaces += interfaces;
    tables.mapped += mapped;
    tables.members += members;
    tables.answers += answers;
    tables.bytes += bytes;
    tables.asked += asked;
    tables.answered += answered;
    tables.refused += refused;
    tables.not_asked += not_asked;
}

/// Adds the traffic of a further worker to and from a host. The host is up if it has a session with
/// one of the workers.
fn add_host(host: &mut PeerHost, further: PeerHost) {
    host.sent_frames += further.sent_frames;
    host.sent_bytes += further.sent_bytes;
    host.sent_by_srd_frames += further.sent_by_srd_frames;
    host.received_frames += further.received_frames;
    host.received_bytes += further.received_bytes;
    host.received_by_srd_frames += further.received_by_srd_frames;
    host.heard_s = host.heard_s.into_iter().chain(further.heard_s).reduce(f64::min);
    host.up |= further.up;
    if host.up {
        (host.down_s, host.silent, host.problem) = (None, false, None);
    } else if host.problem.is_none() {
        host.problem = further.problem;
    }
}

/// Adds the flow logs of a further worker, which has the same logs.
pub(crate) fn add_logs(logs: &mut Vec<FlowLog>, further: Vec<FlowLog>) {
    for log in further {
        let Some(of) = logs.iter_mut().find(|of| of.id == log.id) else {
            logs.push(log);
            continue;
        };
        of.interfaces += log.interfaces;
        of.records_written += log.records_written;
        of.records_dropped += log.records_dropped;
        if of.failure.is_none() {
            of.failure = log.failure;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::metrics::sample_status;

    fn host(name: &str, up: bool, heard_s: Option<f64>) -> PeerHost {
        let sample = sample_status().hosts.remove(0);
        let down_s = (!up).then_some(7.0);
        PeerHost {
            name: name.into(),
            up,
            heard_s,
            down_s,
            silent: !up,
            sent_frames: 3,
            received_bytes: 100,
            ..sample
        }
    }

    #[test]
    fn figures_of_workers_add_up_and_instances_are_listed_once_by_name() {
        let status = |instance: &str, hosts| {
            let mut status = sample_status();
            status.instances[0].name = instance.into();
            status.tables = Tables { interfaces: 1, bytes: 1000, asked: 5, ..Tables::default() };
            status.drops = [("CAUSE".into(), 2)].into();
            Status { hosts, ..status }
        };
        let mut all = status("b", vec![host("x", false, Some(9.0)), host("y", true, None)]);
        add(&mut all, status("a", vec![host("x", true, Some(2.0)), host("y", false, None)]));
        let listed = all.instances.iter().map(|of| (of.name.as_str(), of.worker));
        assert_eq!(listed.collect::<Vec<_>>(), [("a", 1), ("b", 0)]);
        assert_eq!(all.workers, 2);
        assert_eq!((all.tables.interfaces, all.tables.bytes, all.tables.asked), (2, 2000, 10));
        assert_eq!(all.drops["CAUSE"], 4);
        let [x, y] = all.hosts.as_slice() else { panic!("{:?}", all.hosts) };
        assert_eq!((x.up, x.silent, x.down_s, x.heard_s), (true, false, None, Some(2.0)));
        assert_eq!((y.up, y.silent, y.down_s, y.heard_s), (true, false, None, None));
        assert_eq!((x.sent_frames, y.received_bytes), (6, 200));
    }

    #[test]
    fn records_of_a_flow_log_add_up_and_a_failure_stays() {
        let log = |failure: Option<&str>| FlowLog {
            name: "l".into(),
            id: "fl-1".into(),
            resource: String::new(),
            traffic: String::new(),
            directory: String::new(),
            files: String::new(),
            interfaces: 2,
            records_written: 10,
            records_dropped: 1,
            failure: failure.map(str::to_owned),
        };
        let mut all = vec![log(None)];
        add_logs(&mut all, vec![log(Some("full"))]);
        let wanted =
            FlowLog { interfaces: 4, records_written: 20, records_dropped: 2, ..log(Some("full")) };
        assert_eq!(all, [wanted]);
    }
}

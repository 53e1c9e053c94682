//! Checks of other machines: the address, the route, the size of packets that pass, and the login
//! of a launcher's agent.

use super::exchange::{self, JobEnvironment};
use super::key::Variables;
use super::local::Machine;
use super::remote::Host;
use super::{List, Options};
use crate::check::finding::{Class, Fix, Outcome};
use crate::check::system::System;
use serde_json::Value;
use srd_lab::enter::quoted;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::process::Command;

/// Bytes of an ICMP echo packet before its payload, with IPv4: IP header and ICMP header.
const ECHO_V4_BYTES: u64 = 28;
const ECHO_V6_BYTES: u64 = 48;
/// Smallest MTU in bytes, which every IPv6 network supports.
const MTU_LEAST: u64 = 1280;

/// The route to a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Route {
    interface: String,
    source: String,
}

/// Checks every host that the options name, and adds the findings to `list`.
pub(super) fn check(
    options: &Options,
    system: &System,
    machine: &Machine,
    work: &Path,
    list: &mut List,
) {
    let agent: Vec<String> = options.agent.split_whitespace().map(str::to_owned).collect();
    for name in &options.hosts {
        check_one(&Host { name, agent: &agent }, system, machine, work, list);
    }
}

fn check_one(host: &Host<'_>, system: &System, machine: &Machine, work: &Path, list: &mut List) {
    let name = |what: &str| format!("{}: {what}", host.name);
    let (address, outcome) = address(host.name);
    list.add(name("address"), "a job is told names or addresses of its machines", outcome);
    let Some(address) = address else { return };
    let (route, outcome) = check_route(system, machine, address);
    list.add(name("route"), "SRD uses the paths behind one interface", outcome);
    let outcome = check_mtu(system, machine, address);
    list.add(
        name("mtu"),
        "larger packets cost less; what does not pass is found out late",
        outcome,
    );
    let login = host.must("true", None);
    let why = "launchers start their agents there by logging in";
    list.add(name("login"), why, check_login(host, &login));
    if login.is_err() {
        return;
    }
    if let Some(outcome) = check_key(host, &Variables::read()) {
        list.add(name("job-key"), "machines with different keys do not hear each other", outcome);
    }
    let Some(route) = route else { return };
    let place = JobEnvironment { host, here: &route.source, work };
    exchange::check(&place, machine, list);
}

fn address(name: &str) -> (Option<IpAddr>, Outcome) {
    let class = Class::Required;
    let wanted = "a name that resolves, or an address";
    match (name, 0).to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(found)) => {
            let ip = found.ip();
            (Some(ip), Outcome::ok(class, ip.to_string(), wanted))
        }
        Ok(None) | Err(_) => {
            let command = format!("getent hosts {}", quoted(name));
            let fix = Fix::by_hand(command, "put it into DNS or /etc/hosts, on every machine");
            (None, Outcome::failed(class, format!("`{name}` does not resolve"), wanted, fix))
        }
    }
}

fn check_route(system: &System, machine: &Machine, address: IpAddr) -> (Option<Route>, Outcome) {
    let (class, wanted) = (Class::Required, "a route by the interface that is checked");
    let address = address.to_string();
    let own = &machine.subject.interface;
    let text = match system.run(&["ip", "-j", "route", "get", &address]) {
        Ok(text) => text,
        Err(error) => {
            let fix = Fix::by_hand(format!("ip route get {address}"), "there is no way to it");
            return (None, Outcome::failed(class, format!("{error:#}"), wanted, fix));
        }
    };
    let Some(route) = parse_route(&text) else {
        let reason = format!("`ip -j route get {address}` says {}", text.trim());
        return (None, Outcome::not_applicable(reason));
    };
    let found = format!("{} from {}", route.interface, route.source);
    if route.interface == *own {
        return (Some(route), Outcome::ok(class, found, wanted));
    }
    let command = format!("srd mpi-check --interface {}", route.interface);
    let fix = Fix::by_hand(command, "and start jobs with that FI_SRD_IFACE");
    (Some(route), Outcome::weak(found, wanted, fix))
}

fn parse_route(text: &str) -> Option<Route> {
    let json: Value = serde_json::from_str(text).ok()?;
    let field = |name: &str| Some(json.get(0)?.get(name)?.as_str()?.to_owned());
    Some(Route { interface: field("dev")?, source: field("prefsrc")? })
}

fn check_mtu(system: &System, machine: &Machine, address: IpAddr) -> Outcome {
    let class = Class::Recommended;
    let Some(mtu) = system.number(&machine.subject.file("mtu")) else {
        return Outcome::not_applicable("the MTU of the interface cannot be read");
    };
    let passes = |bytes| echo(system, address, bytes);
    let wanted = format!("packets of {mtu} bytes, as large as the interface sends");
    match passes(mtu) {
        Ok(true) => Outcome::ok(class, format!("{mtu} bytes pass"), wanted),
        Err(why) => Outcome::not_applicable(why),
        Ok(false) => {
            // Bisection between a size that passes and a size that does not.
            let (mut least, mut most) = (MTU_LEAST.min(mtu), mtu);
            if passes(least) != Ok(true) {
                return Outcome::not_applicable("it does not answer to ping");
            }
            while most - least > 8 {
                let middle = u64::midpoint(least, most);
                if passes(middle) == Ok(true) { least = middle } else { most = middle }
            }
            let command = format!("sudo ip link set dev {} mtu {least}", machine.subject.interface);
            let fix = Fix::by_hand(command, "or raise the MTU of the switches and the machine");
            Outcome::failed(class, format!("only about {least} bytes pass"), wanted, fix)
        }
    }
}

/// Whether the address answers a ping packet of `bytes` bytes that must not be fragmented. An error
/// means that `ping` is not installed.
fn echo(system: &System, address: IpAddr, bytes: u64) -> Result<bool, String> {
    let headers = if address.is_ipv4() { ECHO_V4_BYTES } else { ECHO_V6_BYTES };
    let payload = bytes.saturating_sub(headers).to_string();
    let target = address.to_string();
    let words = ["ping", "-n", "-q", "-c", "1", "-W", "1", "-M", "do", "-s", &payload, &target];
    match system.run(&words) {
        Ok(_) => Ok(true),
        Err(error) if format!("{error:#}").contains("not installed") => {
            Err("ping is not installed".into())
        }
        Err(_) => Ok(false),
    }
}

fn check_login(host: &Host<'_>, login: &Result<String, String>) -> Outcome {
    let (class, wanted) = (Class::Recommended, "a login without a password");
    match login {
        Ok(_) => Outcome::ok(class, "it works", wanted),
        Err(why) => {
            let name = host.name;
            let command = format!("ssh-copy-id {0}   # and on {0}: srd mpi-check", quoted(name));
            let fix = Fix::by_hand(command, "or start jobs by a batch system that is set up there");
            Outcome::failed(class, format!("{}: {why}", host.agent.join(" ")), wanted, fix)
        }
    }
}

/// Returns a finding whether the other machine has the same job key; `None` if there is no key file
/// to compare.
fn check_key(host: &Host<'_>, variables: &Variables) -> Option<Outcome> {
    let file = variables.file.as_ref()?.to_str()?;
    let (class, wanted) = (Class::Required, "the same key, which only you can read");
    let sum = format!("sha256sum < {}", quoted(file));
    let here = Command::new("sh").args(["-c", &sum]).output().ok()?;
    let here = String::from_utf8_lossy(&here.stdout).into_owned();
    let copy = format!("scp -p {0} {1}:{0}", quoted(file), quoted(host.name));
    let fix = Fix::by_hand(copy, "keep it private there, too");
    let failed = |found: &str| Outcome::failed(class, found, wanted, fix);
    Some(match host.must(&format!("stat -Lc %a {} && {sum}", quoted(file)), None) {
        Err(why) => failed(&why),
        Ok(text) => match text.split_once('\n') {
            Some((mode, _)) if !mode.ends_with("00") => failed(&format!("its mode is {mode}")),
            Some((_, there)) if there == here => Outcome::ok(class, "the same", wanted),
            _ => failed("another key"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Status;

    fn status(outcome: &Outcome) -> Status {
        match outcome {
            Outcome::Checked { status, .. } => *status,
            Outcome::NotApplicable(_) => Status::NotApplicable,
        }
    }

    #[test]
    fn a_route_is_interface_and_source() {
        let text = r#"[{"dst":"10.0.0.2","gateway":"10.0.0.9","dev":"eth0","prefsrc":"10.0.0.1",
                        "flags":[],"uid":0,"cache":[]}]"#;
        let route = Route { interface: "eth0".into(), source: "10.0.0.1".into() };
        assert_eq!(parse_route(text), Some(route));
        for bad in ["", "[]", "[{\"dev\":\"eth0\"}]", "{}"] {
            assert_eq!(parse_route(bad), None, "{bad}");
        }
    }

    #[test]
    fn addresses_need_no_name() {
        let (ip, outcome) = address("192.0.2.7");
        assert_eq!(ip, Some("192.0.2.7".parse().unwrap()));
        assert_eq!(status(&outcome), Status::Ok);
        let (ip, outcome) = address("no host.invalid");
        assert_eq!((ip, status(&outcome)), (None, Status::Error));
    }

    #[test]
    fn a_login_that_is_refused_says_what_to_run_there() {
        let agent = ["sh", "-c", "echo refused >&2; exit 255"].map(str::to_owned);
        let host = Host { name: "b", agent: &agent };
        let login = host.must("true", None);
        assert_eq!(login, Err("refused".into()));
        let Outcome::Checked { status, fix, .. } = check_login(&host, &login) else { panic!() };
        assert_eq!(status, Status::Warn);
        assert!(fix.unwrap().command.contains("on b: srd mpi-check"));
    }

    #[test]
    fn keys_are_compared_by_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "k").unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).unwrap();
        let variables = Variables { file: Some(path.clone()), ..Variables::default() };
        // As with ssh, the words after the host are run by a shell.
        let agent = ["sh", "-c", "eval \"$1\""].map(str::to_owned);
        let same = Host { name: "b", agent: &agent };
        assert_eq!(check_key(&same, &variables).map(|j| status(&j)), Some(Status::Ok));
        let other = ["sh", "-c", "echo 600; echo other"].map(str::to_owned);
        let other = Host { name: "b", agent: &other };
        assert_eq!(check_key(&other, &variables).map(|j| status(&j)), Some(Status::Error));
        assert!(check_key(&other, &Variables::default()).is_none());
    }
}

//! Rules about settings of the kernel: TCP, socket buffers, routing.

use super::finding::{Class, Fix, Outcome, Purpose, Step, Subject};
use super::system::System;
use serde_json::Value;
use srd_net::BindOptions;

const MIB: u64 = 1 << 20;
/// Recommended limit, in bytes, of the data of one TCP flow that waits in queues below TCP, for
/// near peers. [`OUTPUT_BYTES_FAR`] is the limit for far peers.
const OUTPUT_BYTES_NEAR: u64 = MIB;
const OUTPUT_BYTES_FAR: u64 = 4 * MIB;
/// Recommended limit of a socket buffer for far peers, in bytes.
const BUFFER_BYTES_FAR: u64 = 8 * MIB;
/// Recommended initial socket buffer for far peers, in bytes.
const DEFAULT_BYTES_FAR: u64 = 4 * MIB;
/// The bit in `fib_multipath_hash_fields` that adds the source port to the hash.
const HASH_SOURCE_PORT: u64 = 0x10;
const HYSTART: &str = "sys/module/tcp_cubic/parameters/hystart_detect";

const FAR_ONLY: &str = "for far peers only, and --low-rtt says that they are near";

pub(super) fn tcp_limit_output_bytes(system: &System, subject: &Subject) -> Outcome {
    let least = if subject.low_rtt { OUTPUT_BYTES_NEAR } else { OUTPUT_BYTES_FAR };
    let class = subject.required_by_card();
    at_least(system, class, &[("net.ipv4.tcp_limit_output_bytes", least)])
}

pub(super) fn tcp_autocorking(system: &System, _: &Subject) -> Outcome {
    let key = "net.ipv4.tcp_autocorking";
    let class = Class::Recommended;
    match system.sysctl(key) {
        None => invisible(key),
        Some(value) if value == "0" => Outcome::ok(class, value, "0"),
        Some(value) => {
            Outcome::failed(class, value, "0", Fix::sysctls(vec![(key, "0".to_owned())]))
        }
    }
}

pub(super) fn tcp_memory(system: &System, subject: &Subject) -> Outcome {
    if subject.low_rtt {
        return Outcome::not_applicable(FAR_ONLY);
    }
    let (mut found, mut short) = (Vec::new(), Vec::new());
    for key in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        let Some(value) = system.sysctl(key) else { return invisible(key) };
        let fields: Vec<&str> = value.split_whitespace().collect();
        let [least, begin, most] = fields[..] else { return unreadable(key, &value) };
        let Ok(bytes) = most.parse::<u64>() else { return unreadable(key, &value) };
        found.push(most.to_owned());
        if bytes < BUFFER_BYTES_FAR {
            short.push((key, format!("{least} {begin} {BUFFER_BYTES_FAR}")));
        }
    }
    compare(
        Class::Recommended,
        format!("rmem {} wmem {}", found[0], found[1]),
        format!("at least {BUFFER_BYTES_FAR}"),
        short,
    )
}

pub(super) fn socket_memory(system: &System, subject: &Subject) -> Outcome {
    if subject.low_rtt {
        return Outcome::not_applicable(FAR_ONLY);
    }
    let settings = [
        ("net.core.rmem_default", DEFAULT_BYTES_FAR),
        ("net.core.rmem_max", BUFFER_BYTES_FAR),
        ("net.core.wmem_default", DEFAULT_BYTES_FAR),
        ("net.core.wmem_max", BUFFER_BYTES_FAR),
    ];
    at_least(system, subject.required_by_card(), &settings)
}

pub(super) fn congestion_control(system: &System, subject: &Subject) -> Outcome {
    if subject.low_rtt {
        return Outcome::not_applicable(FAR_ONLY);
    }
    let key = "net.ipv4.tcp_congestion_control";
    let Some(law) = system.sysctl(key) else { return invisible(key) };
    let detects = system.read(HYSTART);
    let class = subject.required_by_card();
    let wanted = "cubic, hystart_detect 0";
    let found = match &detects {
        Some(value) => format!("{law}, hystart_detect {value}"),
        None => format!("{law}, hystart_detect unknown"),
    };
    let (is_cubic, is_off) = (law == "cubic", detects.as_deref() == Some("0"));
    if is_cubic && is_off {
        return Outcome::ok(class, found, wanted);
    }
    // The order matters if cubic is a module: setting it as the congestion control loads the
    // module, and its parameters exist only after that.
    let mut fix = Fix::sysctls(if is_cubic { vec![] } else { vec![(key, "cubic".to_owned())] });
    let mut commands = if is_cubic { vec![] } else { vec![fix.command] };
    if !is_off {
        commands.push(format!("echo 0 | sudo tee /{HYSTART}"));
        fix.steps.push(Step::Write { file: HYSTART.to_owned(), value: "0".to_owned() });
        fix.lasting = Some(
            "`options tcp_cubic hystart_detect=0` in /etc/modprobe.d/srd.conf, or \
             tcp_cubic.hystart_detect=0 on the kernel's command line where cubic is built in"
                .to_owned(),
        );
    }
    fix.command = commands.join("; ");
    Outcome::failed(class, found, wanted, fix)
}

pub(super) fn daemon_buffers(system: &System, subject: &Subject) -> Outcome {
    if subject.purpose == Purpose::Ena {
        return card_alone();
    }
    let wanted = BindOptions::default();
    let settings = [
        ("net.core.rmem_max", u64::from(wanted.receive_buffer_bytes)),
        ("net.core.wmem_max", u64::from(wanted.send_buffer_bytes)),
    ];
    at_least(system, Class::Recommended, &settings)
}

pub(super) fn tun(system: &System, subject: &Subject) -> Outcome {
    if subject.purpose == Purpose::Ena {
        return card_alone();
    }
    let wanted = "/dev/net/tun";
    if system.exists("dev/net/tun") {
        return Outcome::ok(Class::Required, "there", wanted);
    }
    let lasting = "`tun` in /etc/modules-load.d/srd.conf".to_owned();
    Outcome::failed(Class::Required, "missing", wanted, Fix::run(&["modprobe", "tun"], lasting))
}

pub(super) fn reverse_path(system: &System, subject: &Subject) -> Outcome {
    if subject.purpose == Purpose::Ena {
        return card_alone();
    }
    if !subject.transparent {
        return Outcome::not_applicable("for transparent mode only (--transparent)");
    }
    let of = |name: &str| system.number(&format!("proc/sys/net/ipv4/conf/{name}/rp_filter"));
    let (Some(all), Some(new)) = (of("all"), of("default")) else {
        return invisible("net.ipv4.conf.all.rp_filter");
    };
    // The kernel uses the larger value of `all` and of the interface; a new interface, such as the
    // daemon's, starts with `default`.
    let outer = all.max(of(&subject.interface).unwrap_or(new));
    let inner = all.max(new);
    let found = format!("{} {outer}, new interfaces {inner}", subject.interface);
    let wanted = "0 or 2 (loose)";
    if outer != 1 && inner != 1 {
        return Outcome::ok(Class::Required, found, wanted);
    }
    let fix = Fix::sysctls(vec![("net.ipv4.conf.all.rp_filter", "2".to_owned())]);
    Outcome::failed(Class::Required, found, wanted, fix)
}

pub(super) fn flow_labels(system: &System, subject: &Subject) -> Outcome {
    if subject.purpose == Purpose::Ena {
        return card_alone();
    }
    let key = "net.ipv6.auto_flowlabels";
    let (class, wanted) = (Class::Recommended, "1 or more");
    match system.sysctl(key) {
        None => Outcome::not_applicable("this system has no IPv6"),
        Some(value) if value == "0" => {
            Outcome::failed(class, value, wanted, Fix::sysctls(vec![(key, "1".to_owned())]))
        }
        Some(value) => Outcome::ok(class, value, wanted),
    }
}

pub(super) fn uplink_hash(system: &System, subject: &Subject) -> Outcome {
    if subject.purpose == Purpose::Ena {
        return card_alone();
    }
    let (mut found, mut short) = (Vec::new(), Vec::new());
    let families = [("-4", "net.ipv4"), ("-6", "net.ipv6")];
    for (family, tree) in families {
        let routes = match system.run(&["ip", "-j", family, "route", "show", "default"]) {
            Ok(routes) => routes,
            Err(error) => return Outcome::not_applicable(format!("{error:#}")),
        };
        if !has_several_ways(&routes) {
            continue;
        }
        let key = if tree == "net.ipv4" {
            "net.ipv4.fib_multipath_hash_policy"
        } else {
            "net.ipv6.fib_multipath_hash_policy"
        };
        let Some(policy) = system.sysctl(key) else { return invisible(key) };
        let fields = system.sysctl(&format!("{tree}.fib_multipath_hash_fields"));
        let hashes_port = |fields: String| {
            let bits = u64::from_str_radix(fields.trim_start_matches("0x"), 16).unwrap_or(0);
            bits & HASH_SOURCE_PORT != 0
        };
        let by_ports = policy == "1" || policy == "3" && fields.is_some_and(hashes_port);
        found.push(format!("{key} {policy}"));
        if !by_ports {
            short.push((key, "1".to_owned()));
        }
    }
    if found.is_empty() {
        return Outcome::not_applicable("there are no default routes with several ways out");
    }
    compare(Class::Recommended, found.join(", "), "1 (by ports)".to_owned(), short)
}

/// Whether a route in the JSON of `ip` has more than one next hop.
fn has_several_ways(routes: &str) -> bool {
    let routes: Value = serde_json::from_str(routes).unwrap_or(Value::Null);
    let hops = |route: &Value| route["nexthops"].as_array().map_or(1, Vec::len);
    routes.as_array().is_some_and(|routes| routes.iter().any(|route| hops(route) > 1))
}

/// Returns the outcome of a check that the value of each setting is at least the value given with
/// it.
fn at_least(system: &System, class: Class, settings: &[(&'static str, u64)]) -> Outcome {
    let (mut found, mut wanted, mut short) = (Vec::new(), Vec::new(), Vec::new());
    for (key, least) in settings {
        let Some(value) = system.sysctl(key) else { return invisible(key) };
        let Ok(bytes) = value.parse::<u64>() else { return unreadable(key, &value) };
        let name = key.rsplit('.').next().unwrap_or(key);
        found.push((name, bytes));
        wanted.push((name, *least));
        if bytes < *least {
            short.push((*key, least.to_string()));
        }
    }
    let found = listed(&found);
    compare(class, found, format!("at least {}", listed(&wanted)), short)
}

/// Returns values as text: one value alone (`4194304`), several with names (`rmem_max 4194304
/// wmem_max 4194304`).
fn listed(values: &[(&str, u64)]) -> String {
    if let [(_, one)] = values {
        return one.to_string();
    }
    let words: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value}")).collect();
    words.join(" ")
}

fn compare(
    class: Class,
    found: String,
    wanted: String,
    short: Vec<(&'static str, String)>,
) -> Outcome {
    if short.is_empty() {
        Outcome::ok(class, found, wanted)
    } else {
        Outcome::failed(class, found, wanted, Fix::sysctls(short))
    }
}

fn card_alone() -> Outcome {
    Outcome::not_applicable("for `srd up` only (--for daemon)")
}

fn invisible(key: &str) -> Outcome {
    Outcome::not_applicable(format!(
        "{key} is not to be seen here: only in the first network namespace, or not in this kernel"
    ))
}

fn unreadable(key: &str, value: &str) -> Outcome {
    Outcome::not_applicable(format!("{key} reads `{value}`, which is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_ways_are_several_next_hops_of_one_route() {
        assert!(!has_several_ways(r#"[{"dst":"default","dev":"eth0"}]"#));
        assert!(!has_several_ways(r#"[{"dev":"eth0"},{"dev":"wlan0"}]"#));
        assert!(has_several_ways(r#"[{"nexthops":[{"dev":"a"},{"dev":"b"}]}]"#));
        for nothing in ["", "[]", "[{}]", "{"] {
            assert!(!has_several_ways(nothing), "{nothing}");
        }
    }
}

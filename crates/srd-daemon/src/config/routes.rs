//! The settings for routing: the routing table, the kill switch, and checks for endpoints inside
//! the overlay.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use toml::{Spanned, Value};

use super::file::{ExpertTable, InterfaceTable, PeerTable};
use super::{Interface, Mode, Table};
use crate::netconf::GUARDED_MAX;
use srd_config::{ConfigError, Source};

type Result<T> = std::result::Result<T, ConfigError>;

/// Numbers of routing tables that cannot be chosen, because the kernel or every Linux system uses
/// them.
const TAKEN: [i64; 5] = [0, 252, 253, 254, 255];

/// Reads the routing table of the interface.
pub(super) fn table(source: &Source<'_>, value: Option<&Spanned<Value>>) -> Result<Table> {
    let Some(value) = value else { return Ok(Table::Usual) };
    let refuse = |what: String| {
        let remedy = "write the number of an unused table, as in table = 7471, or \"off\" for no \
                      routes and no rules";
        Err(source.error(Some(value.span()), what, remedy))
    };
    match value.as_ref() {
        Value::String(word) if word == "off" => Ok(Table::Off),
        Value::Integer(number) if TAKEN.contains(number) => {
            refuse(format!("table {number} belongs to the system"))
        }
        Value::Integer(number) => match u32::try_from(*number) {
            Ok(number) => Ok(Table::Number(number)),
            Err(_) => refuse(format!("no table has the number {number}")),
        },
        other => refuse(format!("`table` cannot be {other}")),
    }
}

/// Reads `kill_switch`: whether the prefixes behind peers stay unreachable after the daemon has
/// ended. It is an error in transparent mode and without routes.
pub(super) fn kill_switch(
    source: &Source<'_>,
    table: &InterfaceTable,
    expert: &ExpertTable,
    mode: Mode,
) -> Result<bool> {
    let Some(value) = table.kill_switch.as_ref().filter(|value| *value.as_ref()) else {
        return Ok(false);
    };
    let off = expert.table.as_ref().is_some_and(|t| t.as_ref().as_str() == Some("off"));
    let what = match mode {
        Mode::Transparent => "in transparent mode packets go on without the daemon",
        // The key is refused before.
        Mode::Cloud => "without an interface there is nothing to keep unreachable",
        Mode::Overlay if off => "without routes there is nothing to keep unreachable",
        Mode::Overlay => return Ok(true),
    };
    let remedy = "take `kill_switch` out, or use an overlay with a `table` in [expert]";
    Err(source.error(Some(value.span()), what, remedy))
}

/// Refuses an address to listen at that is inside the overlay: only the daemon's own packets could
/// arrive there.
pub(super) fn check_listen(
    source: &Source<'_>,
    text: Option<&Spanned<String>>,
    listen: SocketAddr,
    address: &[IpNet],
) -> Result<()> {
    let Some(net) = address.iter().find(|net| net.contains(&listen.ip())) else { return Ok(()) };
    let what = format!("{} is inside the overlay {}, which this carries", listen.ip(), net.trunc());
    let remedy = "listen on an address of the network outside, or on 0.0.0.0 or [::]; give the \
                  overlay a subnet of its own";
    Err(source.error(text.map(Spanned::span), what, remedy))
}

/// Returns the subnet of the overlay that contains an endpoint's address: its route would lead into
/// the interface itself. An endpoint inside `allowed` is valid, because the daemon's own packets do
/// not enter the interface.
pub(super) fn leads_to_itself(ip: IpAddr, address: &[IpNet]) -> Option<IpNet> {
    address.iter().find(|net| net.contains(&ip)).map(IpNet::trunc)
}

/// Returns the error for an endpoint inside a subnet of the overlay, and how to correct it.
pub(super) fn circle(ip: IpAddr, net: IpNet) -> (String, String) {
    let what = format!("the endpoint {ip} is inside the overlay {net}, which leads to it");
    let remedy = "write the peer's address in the network outside, or give the overlay a subnet of \
                  its own";
    (what, remedy.into())
}

impl Interface {
    /// Returns why the kill switch cannot keep all these prefixes unreachable; `None` if it can, or
    /// if it is off.
    pub(crate) fn unguarded(&self, prefixes: impl Iterator<Item = IpNet>) -> Option<String> {
        if !self.kill_switch {
            return None;
        }
        let is_outside = |net: &IpNet| !self.address.iter().any(|own| own.trunc().contains(net));
        let count = IpNet::aggregate(&prefixes.filter(is_outside).collect()).len();
        (count > GUARDED_MAX).then(|| {
            format!(
                "`kill_switch` guards at most {GUARDED_MAX} prefixes outside the interface's \
                 subnet, and there are {count}"
            )
        })
    }
}

/// Refuses a configuration with more prefixes than the kill switch can keep unreachable.
pub(super) fn check_guarded(
    source: &Source<'_>,
    tables: &[Spanned<PeerTable>],
    interface: &Interface,
    prefixes: &[(IpNet, usize)],
) -> Result<()> {
    let Some(what) = interface.unguarded(prefixes.iter().map(|(net, _)| *net)) else {
        return Ok(());
    };
    let remedy = "give the interface an `address` whose subnet contains them, or join neighbours \
                  to shorter prefixes";
    Err(source.error(tables.last().map(Spanned::span), what, remedy))
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Table};
    use std::path::Path;

    /// Returns the error in a configuration with the given lines in its two tables, if there is
    /// one.
    fn complaint(interface: &str, peer: &str) -> Option<String> {
        parse(interface, peer).err()
    }

    fn parse(interface: &str, peer: &str) -> Result<Config, String> {
        let text = format!(
            "[interface]\nprotection = \"plain\"\nlisten = \"192.0.2.1:7471\"\n{interface}\n\
             [[peer]]\nallowed = [\"10.78.0.2/32\"]\n{peer}\n"
        );
        Config::parse(&text, Path::new("/etc/srd/srd0.toml")).map_err(|e| e.to_string())
    }

    const OVERLAY: &str = "address = [\"10.78.0.1/24\"]\n";
    const PEER: &str = "endpoint = \"192.0.2.2:7471\"";

    #[test]
    fn a_table_is_a_number_of_one_s_own_or_off() {
        for (line, expected) in [
            ("", Table::Usual),
            ("table = \"off\"", Table::Off),
            ("table = 1", Table::Number(1)),
            ("table = 4294967295", Table::Number(u32::MAX)),
        ] {
            let config = parse(&format!("{OVERLAY}[expert]\n{line}"), PEER).unwrap();
            assert_eq!(config.interface.table, expected, "{line}");
        }
        for bad in ["0", "253", "254", "255", "-1", "4294967296", "\"on\"", "1.5", "true"] {
            let error = complaint(&format!("{OVERLAY}[expert]\ntable = {bad}"), PEER).expect(bad);
            assert!(error.contains("unused table"), "{error}");
        }
    }

    #[test]
    fn a_kill_switch_is_for_overlays_with_routes() {
        assert!(
            parse(&format!("{OVERLAY}kill_switch = true"), PEER).unwrap().interface.kill_switch
        );
        for bad in [
            format!("{OVERLAY}kill_switch = true\n[expert]\ntable = \"off\""),
            "mode = \"transparent\"\nkill_switch = true".to_owned(),
        ] {
            let error = complaint(&bad, PEER).expect(&bad);
            assert!(error.contains("kill_switch"), "{error}");
        }
    }

    #[test]
    fn regression_addresses_that_lead_into_the_overlay_itself_are_refused() {
        let inside = "endpoint = \"10.78.0.9:7471\"";
        assert!(complaint(OVERLAY, inside).unwrap().contains("inside the overlay"));
        let lan = "address = [\"192.0.2.77/24\"]\n";
        assert!(complaint(lan, PEER).unwrap().contains("inside the overlay"));
        assert_eq!(complaint(OVERLAY, PEER), None);
        // An endpoint may be inside `allowed`: the daemon's packets to it carry a mark, and do not
        // enter the interface.
        let covered = "endpoint = \"192.0.2.2:7471\"".replace("endpoint", "name = \"b\"\nendpoint");
        let text = format!(
            "{covered}\n[[peer]]\nendpoint = \"192.0.2.3:7471\"\nallowed = [\"192.0.2.0/24\"]"
        );
        assert_eq!(complaint(OVERLAY, &text), None);
    }

    #[test]
    fn a_kill_switch_guards_a_bounded_number_of_prefixes() {
        let switch = format!("{OVERLAY}kill_switch = true");
        let peer = |count: usize| {
            let one = |i: usize| {
                let nets: Vec<String> =
                    (0..64).map(|j| format!("\"172.16.{}.0/24\"", 2 * j + i % 2 * 128)).collect();
                nets.join(", ").replace("172.16", &format!("172.{}", 16 + i / 2))
            };
            let mut text = PEER.to_owned();
            for i in 0..count {
                text += &format!(
                    "\n[[peer]]\nendpoint = \"192.0.2.{}:7471\"\nallowed = [{}]",
                    10 + i,
                    one(i)
                );
            }
            text
        };
        assert_eq!(complaint(&switch, &peer(4)), None);
        let error = complaint(&switch, &peer(5)).unwrap();
        assert!(error.contains("guards at most 256"), "{error}");
        assert_eq!(complaint(OVERLAY, &peer(5)), None);
    }
}

//! Results of the specification (*Success*). The results of versions before 1.0.0 name the version
//! of each address.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde_json::{Value, json};

use crate::config::{Config, VERSIONS};
use crate::host::Interface;

/// Returns the answer to `VERSION`. `version`: the version of the input.
pub fn versions(version: &str) -> Value {
    json!({"cniVersion": version, "supportedVersions": VERSIONS})
}

/// Returns the result of `ADD` for an interface in a namespace.
pub fn added(config: &Config, ifname: &str, netns: &Path, interface: &Interface) -> Value {
    let is_old = !config.version.is_at_least("1.0.0");
    let ips = interface.addresses.iter().map(|(address, length)| {
        let mut ip = json!({"address": format!("{address}/{length}"), "interface": 0});
        if let Some(router) = router(*address, *length) {
            ip["gateway"] = router.to_string().into();
        }
        if is_old {
            ip["version"] = if address.is_ipv4() { "4" } else { "6" }.into();
        }
        ip
    });
    let ips: Vec<Value> = ips.collect();
    let has = |v4: bool| interface.addresses.iter().any(|(address, _)| address.is_ipv4() == v4);
    let defaults = [(true, "0.0.0.0/0"), (false, "::/0")];
    let defaults = defaults.into_iter().filter(|(v4, _)| config.default_route && has(*v4));
    let routes: Vec<Value> = defaults.map(|(_, block)| json!({"dst": block})).collect();
    let sandbox = netns.display().to_string();
    // Some runtimes, such as Podman, need a MAC address.
    let mut shown = json!({"name": ifname, "sandbox": sandbox, "mac": interface.mac});
    if config.version.is_at_least("1.1.0") {
        shown["mtu"] = interface.mtu.into();
    }
    json!({
        "cniVersion": config.version.to_string(),
        "interfaces": [shown],
        "ips": ips,
        "routes": routes,
        "dns": config.dns,
    })
}

/// Returns the address of the VPC's router in the subnet of an address: the first after that of the
/// subnet. The router of IPv6 has a link-local address, which is not a gateway of a route here.
fn router(address: IpAddr, length: u8) -> Option<IpAddr> {
    let IpAddr::V4(address) = address else { return None };
    let mask = u32::MAX.checked_shl(32_u32.checked_sub(length.into())?).unwrap_or(0);
    let router = (u32::from(address) & mask).checked_add(1)?;
    Some(Ipv4Addr::from(router).into())
}

/// Adds a result to the result of the plugins that precede this one in their list: each list has
/// the entries of both, and the settings of DNS are those of this plugin.
pub fn after(previous: &Value, mut own: Value) -> Value {
    let list = |of: &Value, key: &str| of[key].as_array().cloned().unwrap_or_default();
    let at = list(previous, "interfaces").len();
    for ip in own["ips"].as_array_mut().into_iter().flatten() {
        ip["interface"] = at.into();
    }
    for key in ["interfaces", "ips", "routes"] {
        let mut all = list(previous, key);
        all.extend(list(&own, key));
        own[key] = all.into();
    }
    own
}

/// Whether a result of `ADD` has a default route of IPv4.
pub fn has_default_route(result: &Value) -> bool {
    let routes = result["routes"].as_array().into_iter().flatten();
    routes.filter_map(|route| route["dst"].as_str()).any(|block| block == "0.0.0.0/0")
}

/// Returns the addresses of an interface in a result of `ADD`; `None` if the result has no such
/// interface.
pub fn addresses_of(result: &Value, ifname: &str) -> Option<Vec<(IpAddr, u8)>> {
    let interfaces = result["interfaces"].as_array()?;
    let at = interfaces.iter().position(|of| of["name"].as_str() == Some(ifname))?;
    let ips = result["ips"].as_array().map_or(&[][..], Vec::as_slice);
    let of_interface =
        |ip: &&Value| ip["interface"].as_u64().is_none_or(|n| usize::try_from(n) == Ok(at));
    let parse = |ip: &Value| {
        let (address, length) = ip["address"].as_str()?.split_once('/')?;
        Some((address.parse().ok()?, length.parse().ok()?))
    };
    ips.iter().filter(of_interface).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(version: &str) -> Config {
        let text = json!({"cniVersion": version, "name": "n", "type": "srd-cni", "keyFile": "/k"});
        Config::parse(text.to_string().as_bytes()).unwrap()
    }

    fn interface() -> Interface {
        let v4 = (Ipv4Addr::new(10, 0, 1, 9).into(), 24);
        let v6 = ("fd00::9".parse().unwrap(), 64);
        let mac = "0a:00:00:00:00:01".to_owned();
        Interface { addresses: vec![v4, v6], mtu: 9001, is_up: true, has_default: true, mac }
    }

    #[test]
    fn a_result_has_the_form_of_its_version() {
        let netns = Path::new("/run/netns/x");
        let new = added(&config("1.1.0"), "eth0", netns, &interface());
        let wanted = json!({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x",
                            "mac": "0a:00:00:00:00:01", "mtu": 9001}],
            "ips": [
                {"address": "10.0.1.9/24", "gateway": "10.0.1.1", "interface": 0},
                {"address": "fd00::9/64", "interface": 0},
            ],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            "dns": {"nameservers": ["169.254.169.253"]},
        });
        assert_eq!(new, wanted);
        let old = added(&config("0.4.0"), "eth0", netns, &interface());
        assert_eq!(
            (&old["ips"][0]["version"], &old["ips"][1]["version"]),
            (&"4".into(), &"6".into())
        );
        assert!(old["interfaces"][0].get("mtu").is_none());
        let mut without = config("1.0.0");
        without.default_route = false;
        assert_eq!(added(&without, "eth0", netns, &interface())["routes"], json!([]));
    }

    #[test]
    fn the_addresses_of_a_result_are_read_again() {
        for version in VERSIONS {
            let result = added(&config(version), "eth0", Path::new("/n"), &interface());
            assert_eq!(addresses_of(&result, "eth0").unwrap(), interface().addresses);
            assert_eq!(addresses_of(&result, "eth1"), None);
        }
        assert_eq!(addresses_of(&json!({"interfaces": 7}), "eth0"), None);
        let wrong = json!({"interfaces": [{"name": "eth0"}], "ips": [{"address": "x/24"}]});
        assert_eq!(addresses_of(&wrong, "eth0"), None);
    }

    #[test]
    fn a_result_follows_that_of_the_plugins_before() {
        let own = added(&config("1.0.0"), "eth0", Path::new("/n"), &interface());
        let other = json!({"name": "net1", "sandbox": "/n"});
        let route = json!({"dst": "192.0.2.0/24"});
        let previous = json!({
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "host0"}, other],
            "ips": [{"address": "192.0.2.7/24", "interface": 1}],
            "routes": [route],
            "dns": {"nameservers": ["192.0.2.1"]},
        });
        let both = after(&previous, own.clone());
        assert_eq!((&both["dns"], &both["cniVersion"]), (&own["dns"], &own["cniVersion"]));
        assert_eq!(both["routes"], json!([route, {"dst": "0.0.0.0/0"}, {"dst": "::/0"}]));
        assert_eq!(
            (&both["interfaces"][1], &both["interfaces"][2]),
            (&other, &own["interfaces"][0])
        );
        assert_eq!(addresses_of(&both, "eth0").unwrap(), interface().addresses);
        assert_eq!(addresses_of(&both, "net1").unwrap(), [("192.0.2.7".parse().unwrap(), 24)]);
        assert!(has_default_route(&both) && !has_default_route(&previous));
        // A plugin without interfaces of its own may pass an empty result.
        assert_eq!(after(&json!({}), own.clone()), own);
    }

    #[test]
    fn the_router_is_the_first_host_of_the_subnet() {
        let of = |address: &str, length| router(address.parse().unwrap(), length);
        assert_eq!(of("10.0.1.200", 25), Some("10.0.1.129".parse().unwrap()));
        assert_eq!(of("10.0.1.9", 0), Some("0.0.0.1".parse().unwrap()));
        assert_eq!((of("10.0.1.9", 33), of("255.255.255.255", 32)), (None, None));
    }
}

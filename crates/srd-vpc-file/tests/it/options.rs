//! DHCP options and propagated routes in cloud files.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use srd_vpc::judge::{Origin, Step, judge};
use srd_vpc::object::{Route, Target, World};
use srd_vpc::packet::{Inner, Packet};
use srd_vpc_file::parse;
use srd_vpc_file::warnings::warnings;

fn world(text: &str) -> World {
    parse(text, Path::new("vpc.toml")).unwrap().world
}

#[test]
fn a_cloud_has_the_options_that_it_names() {
    let world = world(
        "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\ndhcp_options = \"corp\"\n\
         [vpc.other]\ncidr = [\"10.1.0.0/16\"]\ndhcp_options = \"own\"\n\
         [vpc.plain]\ncidr = [\"10.2.0.0/16\"]\n\
         [dhcp_options.corp]\ndomain_name = \"corp.example\"\n\
         name_servers = [\"10.0.0.53\", \"fd00::53\"]\nntp_servers = [\"169.254.169.123\"]\n\
         [dhcp_options.own]\nname_servers = [\"AmazonProvidedDNS\"]\n",
    );
    let of = |name: &str| {
        let vpc = world.vpcs.values().find(|vpc| vpc.name == name).unwrap();
        vpc.dhcp_options.map(|id| &world.dhcp_options[&id])
    };
    let corp = of("main").unwrap();
    assert_eq!(corp.domain_name.as_deref(), Some("corp.example"));
    let servers: Vec<_> = corp.name_servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.53", "fd00::53"]);
    assert_eq!(corp.ntp_servers.len(), 1);
    assert!(of("other").unwrap().name_servers.is_empty(), "the cloud's own resolver");
    assert!(of("plain").is_none());
}

const ROUTES: &str = "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n\
    [subnet.s]\ncidr = \"10.0.1.0/24\"\nroute_table = \"r\"\n\
    [interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.10\"]\n\
    [interface.fw]\nsubnet = \"s\"\naddress = [\"10.0.1.11\"]\nsource_dest_check = false\n\
    [internet_gateway.door]\n[route_table.r]\nroutes = [\n\
    \"10.8.0.0/16 to interface fw propagated\",\n\
    \"10.8.0.0/16 to blackhole\",\n\
    \"10.9.0.0/16 to interface fw propagated\"]\n";

/// Of two routes with prefixes of equal length, the static route beats the propagated route.
#[test]
fn a_static_route_beats_a_propagated_one() {
    let world = world(ROUTES);
    let (id, _) = world.enis.iter().find(|(_, eni)| eni.name == "e").unwrap();
    let fw = *world.enis.iter().find(|(_, eni)| eni.name == "fw").unwrap().0;
    let target = |to: &str| {
        let (source, destination) = ("10.0.1.10".parse().unwrap(), to.parse().unwrap());
        let packet = Packet { source, destination, inner: Inner::Udp(1, 2) };
        let steps = judge(&world, Origin::Eni(*id), &packet).steps;
        steps.into_iter().find_map(|step| match step {
            Step::Route { route, .. } => route.map(|(_, target)| target),
            _ => None,
        })
    };
    assert_eq!(target("10.8.0.1"), Some(Target::Blackhole));
    assert_eq!(target("10.9.0.1"), Some(Target::Eni(fw)));
    let table = world.route_tables.values().find(|table| table.name == "r").unwrap();
    let propagated = |route: &Route| route.propagated;
    assert_eq!(table.routes.iter().map(propagated).collect::<Vec<_>>(), [true, false, true]);
}

const ZONES: &str = "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n\
    [subnet.s]\nvpc = \"main\"\ncidr = \"10.0.1.0/24\"\nzone = \"us-east-1b\"\n\
    [interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.10\"]\ninstance = \"web\"\n\
    [instance.web]\ntype = \"c7i.large\"\n";

/// The zone was that of no subnet, and the metadata of the instance had it.
#[test]
fn regression_an_instance_is_in_the_zone_of_its_subnet() {
    let file = parse(ZONES, Path::new("vpc.toml")).unwrap();
    assert_eq!(file.world.instances.values().next().unwrap().zone, "us-east-1b");
    assert_eq!(warnings(&file), Vec::<String>::new());
    let other = format!("{ZONES}zone = \"us-esat-1b\"\n");
    let file = parse(&other, Path::new("vpc.toml")).unwrap();
    let [warning] = &warnings(&file)[..] else { panic!("{:?}", warnings(&file)) };
    for part in ["instance web", "`us-esat-1b`", "subnet s", "interface e", "`us-east-1b`"] {
        assert!(warning.contains(part), "{warning}");
    }
}

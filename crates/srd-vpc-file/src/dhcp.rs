//! Sets of DHCP options.

use std::net::IpAddr;

use srd_vpc::id::DhcpOptionsId;
use srd_vpc::object::DhcpOptions;
use toml::Spanned;

use super::build::{Build, Result};
use super::document::Document;
use super::names::Kind;

/// Largest number of resolvers, and of time servers, of one address family in a set of DHCP
/// options: the limit of EC2.
const SERVERS_MAX: usize = 4;
/// The word by which EC2 names the cloud's own resolver in a list of resolvers.
const OWN: &str = "AmazonProvidedDNS";

pub(crate) fn build(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.dhcp_options {
        let id = DhcpOptionsId(build.find(Kind::DhcpOptions, name)?);
        let table = spanned.as_ref();
        if let Some(domain) = &table.domain_name
            && !is_domain(domain.as_ref())
        {
            let what = format!("`{}` is no domain name", domain.as_ref());
            let remedy = "write labels of letters, digits and hyphens with dots between them, as \
                          in \"corp.example\"";
            return Err(build.error(domain.span(), what, remedy));
        }
        let own = table.name_servers.iter().find(|server| server.as_ref() == OWN);
        let name_servers = match own {
            None => servers(build, &table.name_servers, "resolvers")?,
            Some(_) if table.name_servers.len() == 1 => Vec::new(),
            Some(own) => {
                let what = format!("{OWN} stands beside other resolvers");
                let remedy = "leave it alone in the list, or write the addresses only";
                return Err(build.error(own.span(), what, remedy));
            }
        };
        let options = DhcpOptions {
            name: name.as_ref().clone(),
            domain_name: table.domain_name.as_ref().map(|domain| domain.as_ref().clone()),
            name_servers,
            ntp_servers: servers(build, &table.ntp_servers, "time servers")?,
        };
        build.world.dhcp_options.insert(id, options);
    }
    Ok(())
}

fn servers(build: &Build<'_>, list: &[Spanned<String>], what: &str) -> Result<Vec<IpAddr>> {
    let mut all: Vec<IpAddr> = Vec::new();
    for text in list {
        let address = text.as_ref().parse::<IpAddr>().ok();
        let usable = address.filter(|at| !at.is_unspecified() && !at.is_multicast());
        let Some(address) = usable else {
            let what = format!("`{}` is no address of a server", text.as_ref());
            let remedy = format!("write an address as 10.0.0.2, or {OWN} as the only resolver");
            return Err(build.error(text.span(), what, remedy));
        };
        if all.contains(&address) {
            let what = format!("{address} is in the list already");
            return Err(build.error(text.span(), what, "take it out"));
        }
        let of_family = all.iter().filter(|other| other.is_ipv4() == address.is_ipv4()).count();
        if of_family == SERVERS_MAX {
            let what = format!("there are more than {SERVERS_MAX} {what} of a family");
            return Err(build.error(text.span(), what, "take some out"));
        }
        all.push(address);
    }
    Ok(all)
}

fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len())
            && label.chars().all(good)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

//! The two ends of a connection that the user names: an interface, an instance, an address, or the
//! internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use srd_vpc::id::EniId;
use srd_vpc::judge::Origin;
use srd_vpc::object::Eni;

use crate::{Kind, VpcFile};

/// IPv4 address that stands for the end `internet`. Like [`OUTSIDE_V6`], it is a documentation
/// address, which is outside of all clouds.
const OUTSIDE_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
const OUTSIDE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// One end of a connection, as the user named it.
#[derive(Debug, Clone, Copy)]
enum End<'a> {
    Internet,
    Address(IpAddr),
    Eni(EniId, &'a Eni),
}

/// Returns the origin, the source address and the destination address of a packet between two ends.
pub(super) fn of(
    file: &VpcFile,
    from: &str,
    to: &str,
    ipv6: bool,
) -> Result<(Origin, IpAddr, IpAddr), String> {
    let (from_end, to_end) = (end(file, from)?, end(file, to)?);
    let ipv4 = match (from_end, to_end) {
        (End::Address(address), _) | (_, End::Address(address)) => address.is_ipv4(),
        _ => !ipv6,
    };
    let source = address(from_end, from, ipv4)?;
    let origin = match from_end {
        End::Eni(id, _) => Origin::Eni(id),
        End::Internet | End::Address(_) => {
            owner(file, source)?.map_or(Origin::Internet, Origin::Eni)
        }
    };
    let destination = match (origin, to_end) {
        (Origin::Internet, End::Eni(id, eni)) if ipv4 => public(file, id, eni, to)?,
        _ => address(to_end, to, ipv4)?,
    };
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(format!("{source} and {destination} are of different families"));
    }
    Ok((origin, source, destination))
}

fn end<'a>(file: &'a VpcFile, text: &str) -> Result<End<'a>, String> {
    if text == "internet" {
        return Ok(End::Internet);
    }
    if let Ok(address) = text.parse() {
        return Ok(End::Address(address));
    }
    let world = &file.world;
    if let Some(number) = file.names.number(Kind::Interface, text)
        && let Some(eni) = world.enis.get(&EniId(number))
    {
        return Ok(End::Eni(EniId(number), eni));
    }
    let instance = file.names.number(Kind::Instance, text);
    let primary = world.enis.iter().find(|(_, eni)| {
        let at = eni.attachment.as_ref();
        at.is_some_and(|at| Some(at.instance.0) == instance && at.device_index == 0)
    });
    match primary {
        Some((id, eni)) => Ok(End::Eni(*id, eni)),
        None => Err(format!(
            "`{text}` is no interface, no instance with one, no address, and not `internet`"
        )),
    }
}

fn address(end: End<'_>, text: &str, ipv4: bool) -> Result<IpAddr, String> {
    let of_eni = |eni: &Eni| {
        let v4 = eni.ipv4.first().map(|address| IpAddr::V4(*address));
        let v6 = eni.ipv6.first().map(|address| IpAddr::V6(*address));
        if ipv4 { v4 } else { v6 }
    };
    match end {
        End::Internet => Ok(if ipv4 { OUTSIDE_V4 } else { OUTSIDE_V6 }),
        End::Address(address) => Ok(address),
        End::Eni(_, eni) => match of_eni(eni) {
            Some(address) => Ok(address),
            None => Err(format!("`{text}` has no IPv{} address", if ipv4 { 4 } else { 6 })),
        },
    }
}

/// Returns the interface that has the address `source`; `None` if the address belongs to no cloud.
fn owner(file: &VpcFile, source: IpAddr) -> Result<Option<EniId>, String> {
    let has = |eni: &Eni| match source {
        IpAddr::V4(address) => eni.ipv4.contains(&address),
        IpAddr::V6(address) => eni.ipv6.contains(&address),
    };
    let owners: Vec<_> = file.world.enis.iter().filter(|(_, eni)| has(eni)).collect();
    match owners[..] {
        [] => Ok(None),
        [(id, _)] => Ok(Some(*id)),
        _ => Err(format!("{source} belongs to interfaces of several clouds: name the interface")),
    }
}

/// Returns the public address (elastic address) of an interface.
fn public(file: &VpcFile, id: EniId, eni: &Eni, text: &str) -> Result<IpAddr, String> {
    let primary = eni.ipv4.first().copied();
    let mut all = file.world.addresses.values();
    let address = all.find(|a| a.association.map(|(of, at)| (of, Some(at))) == Some((id, primary)));
    match address {
        Some(address) => Ok(IpAddr::V4(address.public)),
        None => Err(format!("`{text}` has no elastic address, so the internet cannot name it")),
    }
}

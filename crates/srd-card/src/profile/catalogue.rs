//! All instance types, by name.
//!
//! Source: the EC2 API `DescribeInstanceTypes`; `data/README.md` describes the columns. The text
//! is a part of the program, and rows are read on demand.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::str::Split;

use crate::profile::generation::Generation;
use crate::profile::suggest;
use crate::track::timeouts::Timeouts;

/// Table with one row for each type, sorted by name.
const ROWS: &str = include_str!("../../data/instance-types.csv");

/// Hypervisor of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hypervisor {
    /// The Nitro hypervisor.
    Nitro,
    /// The Xen hypervisor.
    Xen,
    /// Without a hypervisor: bare metal.
    Metal,
}

/// Support of a type for the elastic network adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ena {
    /// The type has only this adapter.
    Required,
    /// The type may use this adapter or another adapter.
    Supported,
    /// The type cannot use this adapter.
    Unsupported,
}

/// An instance type (P1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceType {
    /// Name of the type, such as `c7i.large`.
    pub name: &'static str,
    /// Hypervisor of the type.
    pub hypervisor: Hypervisor,
    /// Number of vCPUs of the type.
    pub vcpus: u32,
    /// Memory of the type in MiB.
    pub memory_mib: u64,
    /// Bandwidth that is available without limit in time, of each direction, bits per second.
    pub baseline_bps: u64,
    /// Bandwidth while credits are left, of each direction, bits per second.
    pub peak_bps: u64,
    /// Number of network cards.
    pub network_cards: u16,
    /// Largest number of ENIs.
    pub enis_max: u16,
    /// Largest number of private IPv4 addresses of an ENI.
    pub ipv4_per_eni: u16,
    /// Largest number of IPv6 addresses of an ENI.
    pub ipv6_per_eni: u16,
    /// Default number of queue pairs of an ENI.
    pub queues_default: u16,
    /// Largest number of queue pairs of an ENI; `None` if the number is fixed.
    pub queues_max_per_eni: Option<u16>,
    /// Largest number of queue pairs of all ENIs; `None` if the number is fixed.
    pub queues_max: Option<u16>,
    /// Support for the elastic network adapter.
    pub ena: Ena,
    /// Whether the type supports ENA Express.
    pub ena_srd: bool,
    /// Whether the type supports the elastic fabric adapter.
    pub efa: bool,
    /// Whether the card encrypts traffic between instances.
    pub encryption_in_transit: bool,
    /// Default idle times of tracked connections.
    pub timeouts: Timeouts,
}

/// Error: no type has this name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownType {
    /// Similar names, the most similar first.
    pub suggestions: Vec<&'static str>,
}

impl fmt::Display for UnknownType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such instance type")?;
        for (n, name) in self.suggestions.iter().enumerate() {
            write!(f, "{}{name}", if n == 0 { "; did you mean " } else { ", " })?;
        }
        if self.suggestions.is_empty() { Ok(()) } else { f.write_str("?") }
    }
}

impl core::error::Error for UnknownType {}

impl InstanceType {
    /// Returns the type with this name (P1).
    ///
    /// # Errors
    /// [`UnknownType`], with similar names, if no type has this name.
    pub fn find(name: &str) -> Result<Self, UnknownType> {
        row_of(name)
            .and_then(parse)
            .ok_or_else(|| UnknownType { suggestions: suggest::like(name, rows().map(name_of)) })
    }

    /// Whether instances of the type of this name have no ENA Express. Nothing is known of a type
    /// that the catalogue does not contain, so the result is false.
    pub fn lacks_express(name: &str) -> bool {
        Self::find(name).is_ok_and(|kind| !kind.ena_srd)
    }

    /// Returns all types, by name.
    pub fn all() -> impl Iterator<Item = Self> {
        rows().filter_map(parse)
    }

    /// Returns the family: the name up to the point.
    pub fn family(&self) -> &'static str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// Returns the version of the type's Nitro system; `None` if the data of its family do not show
    /// the version. All types of a family have one version, also types that are too small for ENA
    /// Express (P4).
    pub fn generation(&self) -> Option<Generation> {
        let (mut encrypts, mut express) = (false, false);
        let family = self.family();
        let of_family =
            |row: &&str| row.strip_prefix(family).is_some_and(|size| size.starts_with('.'));
        for kind in rows().filter(of_family).filter_map(parse) {
            encrypts |= kind.encryption_in_transit;
            express |= kind.ena_srd;
        }
        let facts = (encrypts, express, self.timeouts);
        Generation::of(family, self.hypervisor == Hypervisor::Xen, facts)
    }
}

fn rows() -> impl Iterator<Item = &'static str> {
    ROWS.lines().skip(1)
}

/// Returns the row of the type with this name. The rows are sorted by name, so half of those that
/// are left are excluded at each step.
fn row_of(name: &str) -> Option<&'static str> {
    let (_, mut left) = ROWS.split_once('\n')?;
    while !left.is_empty() {
        let (before, _) = left.split_at_checked(left.len() / 2)?;
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let (before, from) = left.split_at(begin);
        let (row, after) = from.split_once('\n').unwrap_or((from, ""));
        match name.cmp(name_of(row)) {
            Ordering::Less => left = before,
            Ordering::Equal => return Some(row),
            Ordering::Greater => left = after,
        }
    }
    None
}

fn name_of(row: &'static str) -> &'static str {
    row.split(',').next().unwrap_or_default()
}

/// Reads a row; `None` if the text is no valid row.
fn parse(row: &'static str) -> Option<InstanceType> {
    let mut cells = row.split(',');
    let kind = InstanceType {
        name: cells.next()?,
        hypervisor: match cells.next()? {
            "nitro" => Hypervisor::Nitro,
            "xen" => Hypervisor::Xen,
            "metal" => Hypervisor::Metal,
            _ => return None,
        },
        vcpus: number(&mut cells)?,
        memory_mib: number(&mut cells)?,
        baseline_bps: gbps(cells.next()?)?,
        peak_bps: gbps(cells.next()?)?,
        network_cards: number(&mut cells)?,
        enis_max: number(&mut cells)?,
        ipv4_per_eni: number(&mut cells)?,
        ipv6_per_eni: number(&mut cells)?,
        queues_default: number(&mut cells)?,
        queues_max_per_eni: optional(&mut cells)?,
        queues_max: optional(&mut cells)?,
        ena: match cells.next()? {
            "required" => Ena::Required,
            "supported" => Ena::Supported,
            "unsupported" => Ena::Unsupported,
            _ => return None,
        },
        ena_srd: flag(&mut cells)?,
        efa: flag(&mut cells)?,
        encryption_in_transit: flag(&mut cells)?,
        timeouts: {
            let (tcp, stream) = (number(&mut cells)?, number(&mut cells)?);
            Timeouts::new(tcp, stream, number(&mut cells)?).ok()?
        },
    };
    let sound = cells.next().is_none() && kind.peak_bps >= kind.baseline_bps;
    sound.then_some(kind)
}

fn number<N: core::str::FromStr>(cells: &mut Split<'_, char>) -> Option<N> {
    cells.next()?.parse().ok()
}

fn optional(cells: &mut Split<'_, char>) -> Option<Option<u16>> {
    match cells.next()? {
        "" => Some(None),
        cell => cell.parse().ok().map(Some),
    }
}

fn flag(cells: &mut Split<'_, char>) -> Option<bool> {
    match cells.next()? {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

/// Converts a decimal number of Gb/s to bits per second, without rounding. Returns `None` if the
/// text is no number of this kind, or if the result is zero.
fn gbps(cell: &str) -> Option<u64> {
    let (whole, part) = cell.split_once('.').unwrap_or((cell, ""));
    if part.len() > 9 || !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let mut rest: u64 = if part.is_empty() { 0 } else { part.parse().ok()? };
    (part.len()..9).for_each(|_| rest *= 10);
    let bps = whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(rest)?;
    (bps > 0).then_some(bps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_row_is_a_type() {
        assert_eq!(rows().count(), 1395);
        for row in rows() {
            let kind = parse(row).unwrap_or_else(|| panic!("{row}"));
            assert_eq!(InstanceType::find(kind.name), Ok(kind));
            assert!(kind.vcpus > 0 && kind.enis_max > 0 && kind.queues_default > 0, "{row}");
        }
        assert_eq!(InstanceType::all().count(), 1395);
        assert!(rows().map(name_of).is_sorted(), "a search finds sorted rows only");
        for unknown in ["", "a", "c7i", "c7i.", "c7i.larg", "c7i.large,", "zz", "é"] {
            assert!(InstanceType::find(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn figures_are_those_of_the_guide() {
        let of = |name| InstanceType::find(name).unwrap();
        let large = of("c7i.large");
        assert_eq!((large.baseline_bps, large.peak_bps), (781_000_000, 12_500_000_000));
        assert_eq!((large.enis_max, large.ipv4_per_eni, large.vcpus), (3, 10, 2));
        assert!(!large.ena_srd && large.encryption_in_transit);
        assert_eq!(large.timeouts, Timeouts::DEFAULT);
        assert!(of("c7i.12xlarge").ena_srd && !of("c7i.8xlarge").ena_srd);
        assert_eq!(of("c5.large").peak_bps, 10_000_000_000);
        assert_eq!(of("m6i.8xlarge").vcpus, 32);
        let queues = of("c6in.large");
        assert_eq!((queues.queues_max_per_eni, queues.queues_max), (Some(2), Some(6)));
        assert_eq!(of("c8i.large").timeouts, Timeouts::DEFAULT_V6);
    }

    #[test]
    fn a_misspelt_name_brings_the_right_one() {
        let error = InstanceType::find("c7i.lrage").unwrap_err();
        assert_eq!(error.suggestions.first(), Some(&"c7i.large"));
        assert!(error.to_string().starts_with("there is no such instance type; did you mean c7i"));
        let far = InstanceType::find("a machine with very many queues").unwrap_err();
        assert_eq!(far.to_string(), "there is no such instance type");
    }

    #[test]
    fn decimals_are_read_exactly_and_nonsense_is_no_row() {
        assert_eq!(gbps("0.781"), Some(781_000_000));
        assert_eq!(gbps("400"), Some(400_000_000_000));
        for bad in ["", "0.0", "x", "1.x", "-1", "1.0000000001", "99999999999999999999"] {
            assert_eq!(gbps(bad), None, "{bad}");
        }
        assert_eq!(parse("type,hypervisor,vcpus"), None);
        assert_eq!(parse(""), None);
    }
}

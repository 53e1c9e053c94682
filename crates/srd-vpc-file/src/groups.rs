//! Check of new rules of security groups against a valid file, without reading the whole file
//! again. The control plane replaces the rules of groups often, also in files of thousands of
//! interfaces.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use srd_config::Source;
use srd_vpc::id::{GroupId, VpcId};
use srd_vpc::object::World;
use toml::Spanned;

use super::build::Build;
use super::document::{GroupTable, Named};
use super::names::{Kind, Names};
use super::network;
use super::read::VpcFile;

/// A text with tables of groups only.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    group: Named<GroupTable>,
}

/// The contents of a valid file on which the validity of the tables of its groups depends. They are
/// the same after a change of these tables that was accepted.
#[derive(Debug, Clone)]
pub struct GroupCheck {
    /// Names of clouds, groups and prefix lists.
    names: Names,
    /// Clouds and prefix lists.
    world: World,
    groups: BTreeMap<GroupId, Use>,
}

/// The use of a group.
#[derive(Debug, Clone, Copy)]
struct Use {
    vpc: VpcId,
    /// Largest number of groups of an interface that has the group; 0: no interface has it.
    together: usize,
}

impl GroupCheck {
    /// The check of the tables of the groups of this file.
    pub fn new(file: &VpcFile) -> Self {
        let of = &file.world;
        let own = of.groups.iter().map(|(id, group)| (*id, Use { vpc: group.vpc, together: 0 }));
        let mut groups: BTreeMap<GroupId, Use> = own.collect();
        for eni in of.enis.values() {
            for id in &eni.groups {
                if let Some(used) = groups.get_mut(id) {
                    used.together = used.together.max(eni.groups.len());
                }
            }
        }
        let (vpcs, prefix_lists) = (of.vpcs.clone(), of.prefix_lists.clone());
        Self {
            names: file.names.of_kinds(&[Kind::Vpc, Kind::Group, Kind::PrefixList]),
            world: World { vpcs, prefix_lists, ..World::default() },
            groups,
        }
    }

    /// Whether the file is valid with these tables of groups in place of its tables of the same
    /// names. If a table belongs to a new group or to another kind, the result is `false`, and a
    /// read of the whole file is necessary.
    pub fn accepts(&self, text: &str) -> bool {
        let Ok(document) = toml::from_str::<Document>(text) else { return false };
        let has = |name: &Spanned<String>| self.names.number(Kind::Group, name.as_ref()).is_some();
        if !document.group.keys().all(has) {
            return false;
        }
        let mut build = Build::new(Source { path: Path::new("groups"), text });
        build.names = self.names.clone();
        build.world = self.world.clone();
        if network::groups(&mut build, &document.group).is_err() {
            return false;
        }
        build.world.groups.iter().all(|(id, group)| {
            let used = self.groups.get(id).filter(|used| used.vpc == group.vpc);
            used.is_some_and(|used| network::is_within_quotas(&build, group, used.together))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    /// A file with this content of the group `one`, which an interface has together with `two`.
    fn file(content: &str) -> String {
        format!(
            "[vpc.a]\ncidr = [\"10.0.0.0/16\"]\n[vpc.b]\ncidr = [\"10.1.0.0/16\"]\n\
             [subnet.s]\nvpc = \"a\"\ncidr = \"10.0.1.0/24\"\n\
             [prefix_list.l]\nentries = [\"192.0.2.0/24\", \"198.51.100.0/24\"]\n\
             [group.two]\nvpc = \"a\"\n\
             [interface.i]\nsubnet = \"s\"\naddress = [\"10.0.1.10\"]\n\
             groups = [\"one\", \"two\"]\n[group.one]\n{content}"
        )
    }

    /// The content of a group of the cloud `a` with this number of rules for ports, and one more.
    fn rules(ports: usize, more: &str) -> String {
        let rules = (1..=ports).map(|port| format!("\"tcp {port} from 0.0.0.0/0\", "));
        let rules: String = rules.collect();
        format!("vpc = \"a\"\ningress = [{rules}\"{more}\"]\n")
    }

    #[test]
    fn tables_of_groups_are_accepted_if_the_whole_file_is_valid_with_them() {
        let path = Path::new("vpc.toml");
        let check = GroupCheck::new(&parse(&file("vpc = \"a\"\n"), path).unwrap());
        let cases = [
            (rules(0, "all from group two"), true),
            (rules(0, "all from group one"), true),
            (rules(0, "all from group three"), false),
            (rules(0, "all from list l"), true),
            (rules(0, "all from list m"), false),
            (rules(499, "udp 1 from 0.0.0.0/0"), true),
            (rules(500, "udp 1 from 0.0.0.0/0"), false),
            (rules(500, "udp 1 from ::/0"), true),
            (rules(498, "all from list l"), true),
            (rules(499, "all from list l"), false),
            (rules(1, "tcp 1 from 0.0.0.0/0"), false),
            (rules(1, "tcp 65536 from 0.0.0.0/0"), false),
            ("vpc = \"b\"\n".to_owned(), false),
            ("vpc = \"c\"\n".to_owned(), false),
            ("description = \"of which cloud?\"\n".to_owned(), false),
            ("vpc = \"a\"\nother = 1\n".to_owned(), false),
        ];
        for (content, is_valid) in cases {
            assert_eq!(parse(&file(&content), path).is_ok(), is_valid, "{content}");
            let is_accepted = check.accepts(&format!("[group.one]\n{content}"));
            assert_eq!(is_accepted, is_valid, "{content}");
        }
    }

    #[test]
    fn a_new_group_and_another_kind_need_a_read_of_the_whole_file() {
        let own = "[group.one]\nvpc = \"a\"\n";
        let check = GroupCheck::new(&parse(&file("vpc = \"a\"\n"), Path::new("x")).unwrap());
        assert!(check.accepts(own));
        for more in ["[group.three]\nvpc = \"a\"\n", "[vpc.c]\ncidr = [\"10.2.0.0/16\"]\n"] {
            assert!(!check.accepts(&format!("{own}{more}")), "{more}");
        }
        assert!(!check.accepts(""));
    }
}

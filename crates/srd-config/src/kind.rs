//! The kind of a configuration file, by its tables: settings of a node (`srd.toml`), or the objects
//! of a virtual private cloud (`vpc.toml`). If a file of one kind is given in the place of the
//! other kind, the error names both.

use std::path::Path;

/// Tables that only a file of settings has. `[interface]` is such a table, too; files of a VPC have
/// `[interface.NAME]`.
const OF_SETTINGS: [&str; 6] = ["cloud", "control", "enrol", "expert", "metrics", "peer"];
/// Tables of objects, each with a name (`[subnet.NAME]`), that only a file of a VPC has.
const OF_VPC: [&str; 20] = [
    "acl",
    "dhcp_options",
    "egress_only_gateway",
    "elastic_address",
    "endpoint",
    "flow_log",
    "group",
    "instance",
    "interface",
    "internet_gateway",
    "mirror_filter",
    "mirror_session",
    "mirror_target",
    "nat_gateway",
    "peering",
    "placement",
    "prefix_list",
    "route_table",
    "subnet",
    "vpc",
];

/// Kind of a configuration file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// Settings of a node: `srd.toml`.
    Settings,
    /// Objects of a virtual private cloud: `vpc.toml`.
    Vpc,
}

impl FileKind {
    /// Returns the kind to which the first table of a text belongs; `None` if no table belongs to
    /// one kind only.
    pub fn of(text: &str) -> Option<Self> {
        text.lines().find_map(of_line)
    }

    /// Returns the fault and the remedy if a file of the other kind is given in the place of this
    /// kind; `None` if the text has no table of the other kind, or its first table is of this kind.
    pub fn mistaken(self, path: &Path, text: &str) -> Option<(&'static str, String)> {
        let found = Self::of(text).filter(|found| *found != self)?;
        let file = path.display();
        Some(match found {
            Self::Settings => (
                "this is a file of settings (srd.toml(5)), and the file of a VPC is needed here \
                 (vpc.toml(5))",
                format!(
                    "name the file that `vpc` in its table [cloud] names; `srd up -c {file}` or, \
                     without an interface, `srd card up -c {file}` runs the settings"
                ),
            ),
            Self::Vpc => (
                "this is the file of a VPC (vpc.toml(5)), and a file of settings is needed here \
                 (srd.toml(5))",
                format!(
                    "`srd card up {file}` runs its instances; in a file of settings, `vpc` in the \
                     table [cloud] names it"
                ),
            ),
        })
    }
}

/// Returns the kind of file to which the header of a table belongs.
fn of_line(line: &str) -> Option<FileKind> {
    let header = line.split('#').next()?.trim();
    let header = header.strip_prefix('[')?.strip_suffix(']')?;
    let inner = header.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let mut names = inner.unwrap_or(header).splitn(2, '.').map(str::trim);
    let (table, has_name) = (names.next()?, names.next().is_some());
    if OF_SETTINGS.contains(&table) || (table == "interface" && !has_name) {
        return Some(FileKind::Settings);
    }
    (has_name && OF_VPC.contains(&table)).then_some(FileKind::Vpc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_table_of_a_file_decides() {
        use FileKind::{Settings, Vpc};
        for (text, wanted) in [
            ("[interface]\nlisten = \"0.0.0.0:7471\"\n", Some(Settings)),
            ("# [vpc.a]\n\n[cloud] # instances\nvpc = \"a.toml\"\n", Some(Settings)),
            ("[[peer]]\nname = \"b\"\n", Some(Settings)),
            ("[cloud.vhost_user]\nweb = \"w.sock\"\n[vpc.a]\n", Some(Settings)),
            ("region = \"us-east-1\"\n[vpc.main]\n[cloud]\n", Some(Vpc)),
            ("[interface.web]\nsubnet = \"s\"\n", Some(Vpc)),
            ("[ interface . web ]\n", Some(Vpc)),
            ("", None),
            ("[other]\nlist = [[1], [2]]\n", None),
        ] {
            assert_eq!(FileKind::of(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_file_of_the_other_kind_is_named_with_the_command_for_it() {
        let path = Path::new("/etc/srd/a.toml");
        let (what, remedy) = FileKind::Vpc.mistaken(path, "[cloud]\n").unwrap();
        assert!(what.contains("this is a file of settings (srd.toml(5))"), "{what}");
        assert!(remedy.contains("`srd card up -c /etc/srd/a.toml`"), "{remedy}");
        let (what, remedy) = FileKind::Settings.mistaken(path, "[vpc.a]\n").unwrap();
        assert!(what.contains("this is the file of a VPC (vpc.toml(5))"), "{what}");
        assert!(remedy.contains("`srd card up /etc/srd/a.toml` runs"), "{remedy}");
        for own in ["[vpc.a]\n[cloud]\n", ""] {
            assert_eq!(FileKind::Vpc.mistaken(path, own), None);
        }
    }
}

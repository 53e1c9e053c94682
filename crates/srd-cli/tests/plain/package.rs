//! The Debian package: its files, man pages and completions. The tests need Debian's tools. If
//! these are missing, each test prints so and passes, except in CI.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SRD: &str = env!("CARGO_BIN_EXE_srd");

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn run(program: &str, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    // The width of 100 columns avoids warnings about long words that cannot be broken.
    command.args(args).stdin(Stdio::null()).env("LC_ALL", "C.UTF-8").env("MANWIDTH", "100");
    command.output().unwrap()
}

#[track_caller]
fn output(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn is_installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.unwrap().status.success()
}

/// Whether the test can run; otherwise prints why not.
fn ready() -> bool {
    let needed = [
        ("dpkg-deb", "dpkg"),
        ("gzip", "gzip"),
        ("strip", "binutils"),
        ("objdump", "binutils"),
        ("man", "man-db"),
    ];
    let missing = needed.into_iter().filter(|(program, _)| !is_installed(program));
    let (programs, packages): (Vec<_>, BTreeSet<_>) = missing.unzip();
    if programs.is_empty() {
        return true;
    }
    let packages: Vec<_> = packages.into_iter().collect();
    println!("skipped: no {} (apt-get install {})", programs.join(", no "), packages.join(" "));
    false
}

/// A command, as the help of its parent lists it.
struct Listed {
    /// `srd`, then the names of the subcommands.
    words: Vec<String>,
    /// Text of `--help`.
    help: String,
}

impl Listed {
    /// Name of the man page: `srd-perf-client`.
    fn page(&self) -> String {
        self.words.join("-")
    }
}

/// Adds the command of `words` and its subcommands.
fn commands(words: &[&str], found: &mut Vec<Listed>) {
    let help = output(SRD, &[&words[1..], &["--help"]].concat());
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let of_line = |line: &str| {
        // Only a command's line has an indentation of two columns; the rest of a wrapped
        // description has a larger one.
        let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
        name.and_then(|rest| rest.split_whitespace().next()).map(str::to_owned)
    };
    let names: Vec<String> =
        listed.take_while(|line| !line.is_empty()).filter_map(of_line).collect();
    found.push(Listed { words: words.iter().map(|&word| word.to_owned()).collect(), help });
    for name in names.iter().filter(|name| *name != "help") {
        commands(&[words, &[name.as_str()]].concat(), found);
    }
}

#[test]
fn the_package_holds_what_the_program_says_about_itself() {
    if !ready() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().to_str().unwrap();
    let script = packaging().join("deb.sh");
    let mut made = vec!["--fast", "--binary", SRD, "--out", here];
    let libraries = libraries();
    if let Some(libraries) = &libraries {
        made.extend(["--libraries", libraries.to_str().unwrap()]);
    }
    let packages = output(script.to_str().unwrap(), &made);
    let packages: Vec<&str> = packages.lines().collect();
    assert_eq!(packages.len(), 1 + usize::from(libraries.is_some()), "{packages:?}");
    let package = packages[0];
    let root = directory.path().join("root");
    for package in &packages {
        let list = output("dpkg-deb", &["--contents", package]);
        for line in list.lines() {
            assert!(line.contains(" root/root "), "{line}");
            let others = line.starts_with('l') || !line[4..10].contains("w");
            assert!(others, "others may write: {line}");
        }
        let maintainer = output("dpkg-deb", &["--field", package, "Maintainer"]);
        assert!(maintainer.contains('@') && !maintainer.contains("@localhost"), "{maintainer}");
        output("dpkg-deb", &["--extract", package, root.to_str().unwrap()]);
    }
    let list = output("dpkg-deb", &["--contents", package]);
    assert!(!list.contains("libsrd.a") && !list.contains("srd.h"), "for developers: {list}");
    let mut all = Vec::new();
    commands(&["srd"], &mut all);
    let names: Vec<String> = all.iter().map(Listed::page).collect();
    assert!(names.len() > 10 && names.contains(&"srd-check".to_owned()), "{names:?}");
    pages_can_be_read(&root, &names, libraries.is_some());
    if libraries.is_some() {
        for plugin in ["libsrd-fi.so", "libnccl-net-srd.so"] {
            assert!(root.join("usr/lib/srd").join(plugin).is_file(), "{plugin} is missing");
        }
        programs_can_be_made(&root);
    }
    completions_name_every_command(&root, &all);
    for file in [
        "usr/bin/srd",
        "lib/systemd/system/srd@.service",
        "usr/share/srd/cloud.conf",
        "usr/share/srd/card.conf",
        "lib/systemd/system/srd-check.service",
        "lib/systemd/system/srd-nfs-proxy@.service",
        "lib/systemd/system/srd-nfs-proxy@.socket",
        "sbin/mount.srd-nfs",
        "etc/srd/srd0.toml.example",
        "usr/share/doc/srd/copyright",
        "usr/share/doc/srd/changelog.gz",
        "usr/share/doc/srd/README.md",
        "usr/share/doc/srd/docs/check.md",
        "usr/share/doc/srd/examples/scenarios/paper-a-incast.toml",
        "usr/share/doc/srd/examples/grafana/srd.json",
        "usr/share/doc/srd/examples/cni/10-srd.conflist.example",
        "usr/share/doc/srd/examples/prometheus/srd.rules.yml",
    ] {
        assert!(root.join(file).is_file(), "{file} is missing");
    }
    every_name_in_the_documents_is_installed(&root.join("usr/share/doc/srd"), &all);
    let installed = root.join("usr/bin/srd");
    let mut plugin = Command::new(root.join("usr/lib/cni/srd-cni"));
    let plugin = plugin.env("CNI_COMMAND", "VERSION").stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8(plugin.stdout).unwrap().contains("supportedVersions"));
    let version = output(installed.to_str().unwrap(), &["--version"]);
    let fields = output("dpkg-deb", &["--show", "--showformat", "srd ${Version}\n", package]);
    assert_eq!(version, fields);
    let depends = output("dpkg-deb", &["--field", package, "Depends"]);
    assert!(depends.contains("libc6 (>= 2."), "{depends}");
}

/// Checks that all links and file names in the documents, in the manual and in `--help` name files
/// of the package. Names of files in `crates/` are not checked.
fn every_name_in_the_documents_is_installed(documents: &Path, commands: &[Listed]) {
    let list = output("find", &[documents.to_str().unwrap(), "-name", "*.md"]);
    let mut missing = BTreeSet::new();
    for file in list.lines().map(Path::new) {
        let text = fs::read_to_string(file).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let links = links.filter(|to| !to.is_empty() && !to.contains("://"));
        let beside = file.parent().unwrap();
        for to in links.map(|to| beside.join(to)).chain(named(&text, documents)) {
            let of_sources = to.components().any(|part| part.as_os_str() == "crates");
            if !of_sources && !to.exists() {
                missing.insert(format!("{}, in {}", to.display(), file.display()));
            }
        }
    }
    for command in commands {
        let named = named(&command.help, documents).filter(|to| !to.exists());
        let page = command.page();
        missing.extend(named.map(|to| format!("{}, in the help of {page}", to.display())));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Returns the paths of the files that a text names: words that begin with `docs/`, `scenarios/` or
/// `packaging/`.
fn named(text: &str, documents: &Path) -> impl Iterator<Item = PathBuf> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let words = text.split(move |c| !is_of_name(c)).map(|word| word.trim_end_matches('.'));
    let is_file = |word: &&str| {
        let place = ["docs/", "scenarios/", "packaging/"].iter().any(|at| word.starts_with(at));
        place && word.rsplit('/').next().is_some_and(|name| name.contains('.'))
    };
    words.filter(is_file).map(|word| documents.join(word))
}

/// Returns the directory with the built C library; `None` if it was not built. Only a test of the
/// whole workspace builds it.
fn libraries() -> Option<PathBuf> {
    let beside = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let needed = ["libsrd.so", "libsrd.a", "libsrd_fi.so", "libnccl_net_srd.so"];
    if needed.iter().all(|file| beside.join(file).exists()) {
        return Some(beside);
    }
    println!("skipped: the part about the C library, which the whole workspace builds");
    None
}

/// Builds the example of the C library from the installed files, with the flags that pkg-config
/// reports, and runs the example.
fn programs_can_be_made(root: &Path) {
    let found = output("find", &[root.to_str().unwrap(), "-name", "srd.pc"]);
    let configuration = Path::new(found.trim()).parent().unwrap();
    let library = configuration.parent().unwrap();
    for name in ["libsrd.a", "libsrd.so", "libsrd.so.0"] {
        assert!(library.join(name).is_file(), "{name} is missing");
    }
    for (program, package) in [("pkg-config", "pkgconf"), ("cc", "gcc")] {
        if !is_installed(program) {
            return println!("skipped: no {program} (apt-get install {package})");
        }
    }
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "srd"])
        .env("PKG_CONFIG_PATH", configuration)
        .env("PKG_CONFIG_SYSROOT_DIR", root)
        .output()
        .unwrap();
    let flags = String::from_utf8(flags.stdout).unwrap();
    let example = root.join("usr/share/doc/libsrd-dev/examples/pingpong.c");
    let program = root.join("pingpong");
    let mut arguments = vec!["-o", program.to_str().unwrap(), example.to_str().unwrap()];
    arguments.extend(flags.split_whitespace());
    output("cc", &arguments);
    let library = library.to_str().unwrap();
    let mut command = Command::new(program);
    let run = command.args(["-n", "0"]).env("LD_LIBRARY_PATH", library).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.code() == Some(2) && said.contains("usage: pingpong"), "{said}");
}

fn pages_can_be_read(root: &Path, names: &[String], library: bool) {
    let mut expected: BTreeSet<String> = names.iter().map(|name| format!("{name}.1.gz")).collect();
    expected.extend(["vpc.toml.5.gz", "srd-metrics.7.gz"].map(str::to_owned));
    let mut found = BTreeSet::new();
    let mut sections = vec!["man1", "man5", "man7"];
    // The man pages in `packaging/` are written by hand.
    for entry in fs::read_dir(packaging()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        match name.rsplit_once('.') {
            Some((_, "5")) => _ = expected.insert(format!("{name}.gz")),
            Some((_, "8")) => {
                expected.insert(format!("{name}.gz"));
                // The page is installed under two names: `mount.srd-nfs` and `umount.srd-nfs`.
                expected.insert(format!("u{name}.gz"));
                sections.push("man8");
            }
            _ => {}
        }
    }
    sections.dedup();
    if library {
        expected.insert("srd.3.gz".to_owned());
        sections.push("man3");
    }
    for section in sections {
        for entry in fs::read_dir(root.join("usr/share/man").join(section)).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            let page = run("man", &["--warnings", "-E", "UTF-8", "-l", file.to_str().unwrap()]);
            let warnings = String::from_utf8_lossy(&page.stderr);
            assert!(page.status.success() && warnings.is_empty(), "{name}: {warnings}");
            let text = String::from_utf8(page.stdout).unwrap();
            // Spaces and line breaks are reduced to single spaces, because `man` justifies the
            // lines.
            let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
            let title = name.split_once(".gz").unwrap().0.rsplit_once('.').unwrap().0;
            assert!(text.contains(&format!("{title} - ")), "{name}: {text}");
            assert!(!text.contains("@VERSION@"), "{name} has a placeholder: {text}");
            found.insert(name);
        }
    }
    assert_eq!(found, expected);
}

fn completions_name_every_command(root: &Path, commands: &[Listed]) {
    let files = [
        ("bash", "usr/share/bash-completion/completions/srd"),
        ("zsh", "usr/share/zsh/vendor-completions/_srd"),
        ("fish", "usr/share/fish/vendor_completions.d/srd.fish"),
    ];
    for (shell, file) in files {
        let path = root.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("COMPLETE"), "{file} does not ask the program: {text}");
        if is_installed(shell) {
            output(shell, &["-n", path.to_str().unwrap()]);
        }
    }
    let mut of_parents = BTreeMap::new();
    for command in commands {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        let (last, before) = words.split_last().unwrap();
        if !before.is_empty() {
            let offered = of_parents.entry(before.to_vec()).or_insert_with(|| offered(before));
            assert!(offered.iter().any(|word| word == last), "no {words:?} among {offered:?}");
        }
    }
    for hidden in ["flood", "enter", "network", "man"] {
        for before in [&["srd"][..], &["srd", "lab"]] {
            let offered = offered(before);
            assert!(!offered.iter().any(|word| word == hidden), "{hidden} among {offered:?}");
        }
    }
}

/// Returns the completions that bash offers after `words`.
fn offered(words: &[&str]) -> Vec<String> {
    let mut command = Command::new(SRD);
    command.env("COMPLETE", "bash").env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let output = command.arg("--").args(words).arg("").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Returns the example of the daemon's configuration, with its commented-out keys and tables
/// active.
fn whole_example() -> String {
    let text = fs::read_to_string(packaging().join("srd0.toml.example")).unwrap();
    let whole = |line: &str| {
        let rest = line.strip_prefix("# ").unwrap_or(line);
        let key = rest.split_once(" = ").map(|(key, _)| key);
        let is_key = key.is_some_and(|k| k.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        let is_line = is_key || rest.starts_with('[');
        if is_line { format!("{rest}\n") } else { format!("{line}\n") }
    };
    text.lines().map(whole).collect()
}

#[test]
fn the_example_and_its_manual_know_the_same_keys() {
    let example: toml::Table = whole_example().parse().unwrap();
    let tables = ["interface", "expert", "cloud", "enrol", "control", "metrics"];
    let tables = tables.map(|name| example[name].as_table().unwrap());
    let peer = example["peer"][0].as_table().unwrap();
    let instances = example["enrol"]["instances"].as_table().unwrap();
    let keys: BTreeSet<&str> = tables
        .into_iter()
        .chain([peer, instances])
        .flat_map(|table| table.keys())
        .map(String::as_str)
        .collect();
    assert!(keys.contains("order_wait_ms") && keys.contains("preshared_key_file"), "{keys:?}");
    let manual = fs::read_to_string(packaging().join("srd.toml.5")).unwrap();
    let headings = manual.lines().filter_map(|line| line.strip_prefix(".BR "));
    let explained: BTreeSet<&str> =
        headings.filter_map(|line| line.split_once(" \" = ")).map(|(key, _)| key).collect();
    assert_eq!(keys, explained);
}

/// dpkg calls the script `postrm` with `remove` when the package is removed, and with `purge` when
/// its configuration is deleted, too.
#[test]
fn regression_removal_leaves_no_link_of_a_unit_that_was_enabled() {
    let directory = tempfile::tempdir().unwrap();
    let wants = directory.path().join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    fs::create_dir_all(directory.path().join("etc/srd")).unwrap();
    let units = "/lib/systemd/system";
    let ours = [
        ("srd@srd0.service", "srd@.service"),
        ("srd@b.service", "srd@.service"),
        ("srd-nfs-proxy@nas.service", "srd-nfs-proxy@.service"),
        ("srd-card.service", "srd-card.service"),
        ("srd-check.service", "srd-check.service"),
    ];
    for (link, unit) in ours {
        std::os::unix::fs::symlink(format!("{units}/{unit}"), wants.join(link)).unwrap();
    }
    // The two units that must keep their links are a unit that `srd check --persist` or a user has
    // written, and a unit of another package.
    let own = "/etc/systemd/system/srd-card.service";
    fs::create_dir_all(wants.with_file_name("own.target.wants")).unwrap();
    let link = wants.with_file_name("own.target.wants").join("srd-card.service");
    std::os::unix::fs::symlink(own, &link).unwrap();
    std::os::unix::fs::symlink(format!("{units}/ssh.service"), wants.join("ssh.service")).unwrap();
    let run = |word: &str| {
        let mut script = Command::new("sh");
        script.arg(packaging().join("postrm")).arg(word).env("DPKG_ROOT", directory.path());
        script.output().unwrap()
    };
    // The link of the rights of a node, beside a file of the administrator.
    let conf = |name: &str| wants.with_file_name(format!("srd@{name}.service.d/cloud.conf"));
    for (name, to) in [
        ("n", "/usr/share/srd/cloud.conf"),
        ("card", "/usr/share/srd/cloud.conf"),
        ("own", "/etc/own.conf"),
    ] {
        fs::create_dir_all(conf(name).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, conf(name)).unwrap();
    }
    let of_card = conf("card").with_file_name("card.conf");
    std::os::unix::fs::symlink("/usr/share/srd/card.conf", of_card).unwrap();
    let removed = run("remove");
    assert!(removed.status.success(), "{removed:?}");
    assert!(!conf("n").parent().unwrap().exists() && conf("own").is_symlink());
    assert!(!conf("card").parent().unwrap().exists());
    let left: Vec<_> = fs::read_dir(&wants).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["ssh.service"]);
    assert!(link.is_symlink());
    let purged = run("purge");
    let said = String::from_utf8(purged.stdout).unwrap();
    assert!(purged.status.success() && said.contains("deluser --system srd;"), "{said}");
    assert!(said.contains("/etc/srd-nfs") && said.contains("deluser --system srd-nfs"), "{said}");
    assert!(run("upgrade").status.success());
}

/// The unit was ready before the card was, and a take-over ended the unit: without Type=notify, the
/// process that takes over is no process of the unit.
#[test]
fn regression_the_unit_of_a_card_is_ready_when_the_card_is() {
    let read = |name: &str| fs::read_to_string(packaging().join(name)).unwrap();
    assert!(read("srd@.service").lines().any(|line| line == "Type=notify"));
    for drop_in in ["card.conf", "cloud.conf"] {
        assert!(!read(drop_in).lines().any(|line| line.starts_with("Type=")), "{drop_in}");
    }
}

/// An earlier version had the unit srd-card. A machine on which it was enabled starts the same
/// command after the upgrade, by the unit srd@card. A unit of the administrator stays.
#[test]
fn an_upgrade_replaces_the_unit_of_a_card_that_was_enabled() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let units = root.join("etc/systemd/system");
    let wants = units.join("multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    // The users of the package exist.
    let programs = directory.path().join("bin");
    fs::create_dir_all(&programs).unwrap();
    fs::write(programs.join("getent"), "#!/bin/sh\nexit 0\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(programs.join("getent"), mode).unwrap();
    let upgrade = || {
        let path = format!("{}:/usr/bin:/bin", programs.display());
        let mut script = Command::new("sh");
        script.arg(packaging().join("postinst")).args(["configure", "1.0"]);
        let output = script.env("DPKG_ROOT", &root).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let link = wants.join("srd-card.service");
    std::os::unix::fs::symlink("/etc/systemd/system/srd-card.service", &link).unwrap();
    assert_eq!(upgrade(), "");
    assert!(link.is_symlink() && !units.join("srd@card.service.d").exists());
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/lib/systemd/system/srd-card.service", &link).unwrap();
    fs::create_dir_all(units.join("srd-card.service.d")).unwrap();
    let said = upgrade();
    assert!(said.contains("systemctl start srd@card") && said.contains("have no effect"), "{said}");
    assert!(!link.is_symlink());
    let target = |path: &str| fs::read_link(units.join(path)).unwrap();
    let unit = target("multi-user.target.wants/srd@card.service");
    assert_eq!(unit, Path::new("/lib/systemd/system/srd@.service"));
    for file in ["cloud.conf", "card.conf"] {
        let to = target(&format!("srd@card.service.d/{file}"));
        assert_eq!(to, Path::new("/usr/share/srd").join(file));
    }
    assert_eq!(upgrade(), "", "the second upgrade finds nothing to do");
}

/// Returns the lines `KEY=VALUE` of a unit file.
fn settings(unit: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(packaging().join(unit)).unwrap();
    text.lines()
        .filter(|line| line.contains('=') && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// Options that give a unit a mount namespace of its own, unless their value is `no`, `default` or
/// empty.
const OF_MOUNTS: [&str; 17] = [
    "ProtectSystem",
    "ProtectHome",
    "ProtectProc",
    "ProtectControlGroups",
    "ProtectHostname",
    "ProtectKernel",
    "Private",
    "ReadOnlyPaths",
    "ReadWritePaths",
    "InaccessiblePaths",
    "TemporaryFileSystem",
    "BindPaths",
    "BindReadOnlyPaths",
    "Root",
    "MountFlags",
    "DynamicUser",
    "ProcSubset",
];

/// Returns the settings of the unit `srd@` with `cloud.conf`. Each setting of `cloud.conf` replaces
/// those of the same key, except lists, to which it adds.
fn settings_of_node() -> BTreeSet<String> {
    let key = |setting: &String| setting.split('=').next().unwrap().to_owned();
    let adds = settings("cloud.conf");
    let of_adds: BTreeSet<String> = adds.iter().map(key).collect();
    let is_list = |key: &str| key == "CapabilityBoundingSet" || key == "SystemCallFilter";
    let base = settings("srd@.service").into_iter();
    let base = base.filter(|of| is_list(&key(of)) || !of_adds.contains(&key(of)));
    base.chain(adds.clone()).filter(|of| !of.ends_with('=')).collect()
}

/// In a separate mount namespace, the card would create the names of the instances' network
/// namespaces where `ip netns exec` of other programs cannot find them.
#[test]
fn regression_the_units_of_root_are_confined_and_the_card_keeps_no_namespace_to_itself() {
    let node = settings_of_node();
    let check = settings("srd-check.service");
    for setting in [
        "NoNewPrivileges=yes",
        "LimitCORE=0",
        "LockPersonality=yes",
        "MemoryDenyWriteExecute=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "SystemCallArchitectures=native",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    ] {
        let all = [&node, &check];
        assert!(all.iter().all(|unit| unit.contains(setting)), "{setting} is missing");
    }
    for unit in [&node, &check] {
        for key in [
            "CapabilityBoundingSet=CAP_",
            "SystemCallFilter=@system-service",
            "RestrictNamespaces=",
        ] {
            assert!(unit.iter().any(|setting| setting.starts_with(key)), "{key} is missing");
        }
    }
    assert!(settings("srd@.service").contains("LimitCORE=0"));
    assert!(check.contains("ProtectSystem=strict") && check.contains("ProtectHome=yes"));
    for setting in &node {
        let is_off = ["=no", "=default"].iter().any(|off| setting.ends_with(off));
        let own = OF_MOUNTS.iter().find(|key| setting.starts_with(*key) && !is_off);
        assert!(own.is_none(), "{setting} brings a mount namespace");
    }
    assert!(node.contains("RestrictNamespaces=net mnt") && node.contains("User=root"), "{node:?}");
    // The directory `/run/srd-card` belongs to root. It differs from `/run/srd`, which systemd
    // creates for the user of `srd@.service`.
    assert!(node.contains("RuntimeDirectory=srd-card"));
    assert!(node.contains("RuntimeDirectoryMode=0755"));
    // systemd would give these directories of overlays to root.
    assert!(!node.contains("RuntimeDirectory=srd") && !node.contains("StateDirectory=srd"));
    assert!(settings("srd@.service").contains("RuntimeDirectory=srd"));
}

/// systemd itself reads the units: all keys exist, and the exposure that it computes is limited.
#[test]
fn systemd_knows_each_setting_of_the_units_and_finds_them_confined() {
    if !is_installed("systemd-analyze") {
        return println!("skipped: no systemd-analyze (apt-get install systemd)");
    }
    let directory = tempfile::tempdir().unwrap();
    let copy = |name: &str, to: &str| {
        let text = fs::read_to_string(packaging().join(name)).unwrap();
        let to = directory.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        // The program of the unit has to exist.
        fs::write(to, text.replace("/usr/bin/srd", SRD)).unwrap();
    };
    copy("srd@.service", "srd@.service");
    copy("cloud.conf", "srd@node.service.d/cloud.conf");
    copy("cloud.conf", "srd@card.service.d/cloud.conf");
    copy("card.conf", "srd@card.service.d/card.conf");
    let analyze = |args: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(args).env("SYSTEMD_UNIT_PATH", format!("{}:", directory.path().display()));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:#?}");
        assert!(output.stderr.is_empty(), "{args:?}: {output:#?}");
    };
    // The highest exposure, in tenths: of an overlay, and of units that make namespaces.
    for (unit, exposure) in
        [("srd@srd0.service", "25"), ("srd@node.service", "60"), ("srd@card.service", "60")]
    {
        analyze(&["verify", "--man=no", "--recursive-errors=no", unit]);
        let threshold = format!("--threshold={exposure}");
        analyze(&["security", "--offline=yes", "--no-pager", &threshold, unit]);
    }
}

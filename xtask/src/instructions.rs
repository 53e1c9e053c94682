//! `cargo xtask instructions`: counts the instructions per packet of the hot paths, and compares
//! them with [`BASELINE`]. The count does not include the cost of cache misses and of waiting. It
//! is the same on an idle and on a busy machine, so CI can use it as a condition for a change.
//!
//! The measured programs are the examples `hotpath` and `vpc` of `srd-card`. The difference of two
//! runs of different length is used, so that the instructions of a program's start do not count.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// File in the repository with the baseline counts.
const BASELINE: &str = "bench/instructions.txt";
/// Numbers of packets in the shorter and in the longer run of the program.
const PACKETS: [u64; 2] = [2_000, 6_000];
/// Permitted increase in thousandths, if the compiler is the baseline's, and if it is another
/// compiler.
const MORE_PERMILLE: u64 = 30;
const MORE_OTHER_COMPILER_PERMILLE: u64 = 150;
/// Increase in instructions per packet that is always permitted; it matters for short paths.
const MORE_ALWAYS: u64 = 8;

/// A measured case.
struct Case {
    name: &'static str,
    /// The measured program, an example of `srd-card`.
    example: &'static str,
    /// Arguments of the program before the number of packets.
    arguments: &'static [&'static str],
    /// Functions whose instructions are counted, without the prefix `measured_`.
    functions: &'static [&'static str],
}

const CASES: [Case; 4] = [
    Case {
        name: "transport",
        example: "hotpath",
        arguments: &["transport", "plain", "1400"],
        functions: &["send", "transmit", "receive", "ack"],
    },
    Case {
        name: "transport-small",
        example: "hotpath",
        arguments: &["transport", "plain", "64"],
        functions: &["send", "transmit", "receive", "ack"],
    },
    Case {
        name: "express",
        example: "hotpath",
        arguments: &["express", "plain", "1400"],
        functions: &["egress", "transmit", "receive", "ingress", "ack"],
    },
    Case { name: "card", example: "vpc", arguments: &[], functions: &["known", "new"] },
];

type Counts = BTreeMap<String, u64>;

/// Measures all cases, and compares the counts with the baseline; with `write`, writes them as the
/// new baseline.
pub(crate) fn run(root: &Path, write: bool) -> Result<()> {
    let directory = build(root)?;
    let file = root.join(BASELINE);
    let mut counts = Counts::new();
    for case in CASES {
        for function in case.functions {
            let per_packet = per_packet(&directory, &case, function)?;
            counts.insert(format!("{}.{function}", case.name), per_packet);
        }
    }
    let compiler = compiler()?;
    if write {
        std::fs::write(file, text(&compiler, &counts)).context(BASELINE)?;
        println!("{BASELINE}: {} paths", counts.len());
        return Ok(());
    }
    let baseline = std::fs::read_to_string(file).context(BASELINE)?;
    let (then, before) = parse(&baseline)?;
    let permille = if then == compiler { MORE_PERMILLE } else { MORE_OTHER_COMPILER_PERMILLE };
    if then != compiler {
        println!("the baseline is of {then}, this is {compiler}: {permille} permille are allowed");
    }
    let (table, worse) = compare(&before, &counts, permille);
    print!("{table}");
    if !worse.is_empty() {
        println!(
            "If that is as it should be: `cargo xtask instructions --write`, and a commit that"
        );
        println!("says why.");
        bail!("more instructions than before: {}", worse.join(", "));
    }
    Ok(())
}

/// Builds the measured programs. Returns their directory.
fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments = ["build", "--release", "--quiet", "-p", "srd-card"];
    let examples = ["--example", "hotpath", "--example", "vpc"];
    let status = Command::new(cargo).args(arguments).args(examples).current_dir(root).status()?;
    ensure!(status.success(), "the programs do not build");
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
    Ok(root.join(target).join("release/examples"))
}

fn compiler() -> Result<String> {
    let out = Command::new("rustc").arg("--version").output().context("rustc")?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn per_packet(directory: &Path, case: &Case, function: &str) -> Result<u64> {
    let [short, long] = PACKETS.map(|packets| collected(directory, case, function, packets));
    let (short, long) = (short?, long?);
    ensure!(long > short, "nothing was counted in measured_{function}");
    Ok((long - short) / (PACKETS[1] - PACKETS[0]))
}

/// Returns the number of instructions that a run executes in one function, including the functions
/// that it calls.
fn collected(directory: &Path, case: &Case, function: &str, packets: u64) -> Result<u64> {
    let program = directory.join(case.example).display().to_string();
    let out = Command::new("valgrind")
        // The setting selects one implementation of the C library's copy functions, which otherwise
        // depends on the processor.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-FSRM")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={}::measured_{function}", case.example))
        .args([program.as_str(), "count"])
        .args(case.arguments)
        .arg(packets.to_string())
        .output()
        .context("valgrind, which counts the instructions (the package `valgrind`)")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{program} under valgrind: {said}");
    let count = said.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, n)| n);
    count.context("valgrind says no count")?.trim().parse().context("valgrind's count")
}

fn text(compiler: &str, counts: &Counts) -> String {
    let mut text =
        format!("# Instructions for a packet; `cargo xtask instructions`.\n# {compiler}\n");
    for (path, count) in counts {
        let _ = writeln!(text, "{path} {count}"); // writing to a string never fails
    }
    text
}

/// Returns the compiler and the counts in the text of a baseline.
fn parse(text: &str) -> Result<(String, Counts)> {
    let mut counts = Counts::new();
    let mut compiler = String::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix('#') {
            compiler = comment.trim().to_owned();
            continue;
        }
        let Some((path, count)) = line.split_once(' ') else { bail!("{BASELINE}: `{line}`") };
        counts.insert(path.to_owned(), count.trim().parse().with_context(|| line.to_owned())?);
    }
    Ok((compiler, counts))
}

/// Returns a table of the baseline's and the new counts, and a list of the paths that increased too
/// much or are missing on one side.
fn compare(before: &Counts, after: &Counts, permille: u64) -> (String, Vec<String>) {
    let mut table = String::new();
    let mut worse = Vec::new();
    for path in before.keys().chain(after.keys().filter(|path| !before.contains_key(*path))) {
        let (Some(was), Some(is)) = (before.get(path), after.get(path)) else {
            worse.push(format!("{path} (in one of both only)"));
            continue;
        };
        let mark = if *is > was + was * permille / 1000 + MORE_ALWAYS {
            worse.push(path.clone());
            "  more"
        } else {
            ""
        };
        let _ = writeln!(table, "{path:26} {was:8} {is:8}{mark}"); // never fails
    }
    (table, worse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        of.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let counts = counts(&[("a.b", 1), ("c.d", 20_000)]);
        let (compiler, read) = parse(&text("rustc 1.95.0", &counts)).unwrap();
        assert_eq!((compiler.as_str(), read), ("rustc 1.95.0", counts));
        assert!(parse("nonsense").is_err());
    }

    /// Packets of known flows pass the card's cache of verdicts, and the first packet of a flow
    /// passes all rules.
    #[test]
    fn a_known_flow_takes_less_than_half_of_the_instructions_of_a_new_flow() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(BASELINE);
        let (_, counts) = parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(2 * counts["card.known"] < counts["card.new"], "{counts:?}");
    }

    #[test]
    fn a_path_that_takes_more_than_allowed_is_named() {
        let before = counts(&[("large", 10_000), ("small", 100), ("gone", 5)]);
        let after = counts(&[("large", 10_308), ("small", 112), ("new", 5)]);
        let (_, worse) = compare(&before, &after, 30);
        assert_eq!(worse, ["gone (in one of both only)", "small", "new (in one of both only)"]);
        let (_, worse) =
            compare(&before, &counts(&[("large", 10_308), ("small", 111), ("gone", 1)]), 30);
        assert_eq!(worse, [""; 0]);
    }
}

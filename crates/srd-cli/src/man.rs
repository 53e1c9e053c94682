//! `srd man DIR`: writes a man page for every command, from the declarations that parse the
//! arguments.
//!
//! The build of packages runs this command, and users read the pages. A new command gets its page
//! without further work. The pages about file formats are documents of the project. The pages
//! contain no date, so that one version of the program always writes the same bytes.

mod markdown;
mod metrics;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, italic, roman};
use std::fs;
use std::path::Path;

/// A document of the project that becomes a man page about a file format.
struct Document {
    name: &'static str,
    about: &'static str,
    text: &'static str,
    file: &'static str,
    see_also: &'static str,
}

const DOCUMENTS: [Document; 1] = [Document {
    name: "vpc.toml",
    about: "virtual private clouds in a file",
    text: include_str!("../../../docs/vpc.md"),
    file: "FILE",
    see_also: "srd-vpc(1), srd-up(1), srd-card-apply(1), srd.toml(5)",
}];

impl Document {
    fn page(&self, version: &str) -> String {
        let title = self.name.to_uppercase();
        let mut roff = Roff::default();
        roff.control("SH", ["NAME"]);
        roff.text([roman(format!("{} - {}", self.name, self.about))]);
        roff.control("SH", ["SYNOPSIS"]);
        roff.text([italic(self.file)]);
        roff.control("SH", ["DESCRIPTION"]);
        markdown::render(&markdown::body(self.text), &mut roff);
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman(self.see_also)]);
        // The title line is written directly, as in the pages of commands.
        format!(".TH {title} 5 \"\" \"OpenSRD {version}\" OpenSRD\n{}", roff.render())
    }
}

/// Writes all pages into a directory, which is created if it does not exist.
pub(crate) fn write(command: Command, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let version = command.get_version().unwrap_or_default().to_owned();
    let documents = DOCUMENTS.iter().map(|of| (format!("{}.5", of.name), of.page(&version)));
    let metrics = (String::from("srd-metrics.7"), metrics::page(&version));
    for (name, text) in documents.chain([metrics]).chain(pages(command)) {
        let file = directory.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Returns the file names and contents of the pages of commands.
fn pages(command: Command) -> Vec<(String, String)> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, None, &mut pages);
    pages
}

/// Adds the page of a command, and the pages of its subcommands at every level.
fn add(command: &Command, parent: Option<&str>, pages: &mut Vec<(String, String)>) {
    let name = name_of(command);
    pages.push((format!("{name}.1"), page(command, parent)));
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        add(subcommand, Some(&name), pages);
    }
}

fn name_of(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(command: &Command, parent: Option<&str>) -> String {
    let name = name_of(command);
    let version = command.get_version().unwrap_or_default();
    let man = Man::new(command.clone());
    // The title line is written directly: the library omits an empty date, so that the next field
    // would take its place.
    let title = name.to_uppercase();
    let mut text = format!(".TH {title} 1 \"\" \"OpenSRD {version}\" OpenSRD\n").into_bytes();
    let mut render = |section: &dyn Fn(&mut dyn std::io::Write) -> std::io::Result<()>| {
        section(&mut text).expect("memory takes what is written");
    };
    render(&|w| name_section(command, &name).to_writer(w));
    render(&|w| man.render_synopsis_section(w));
    render(&|w| man.render_description_section(w));
    render(&|w| man.render_options_section(w));
    if command.get_subcommands().any(|c| !c.is_hide_set()) {
        render(&|w| man.render_subcommands_section(w));
    }
    render(&|w| closing_sections(command).to_writer(w));
    render(&|w| see_also(parent).to_writer(w));
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the section NAME of a page. Its text is a phrase and not a sentence, because `apropos`
/// prints it in a list.
fn name_section(command: &Command, name: &str) -> Roff {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::default();
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {}", about.trim_end_matches('.')))]);
    roff
}

/// Returns the sections for the end of the `--help` text. Each line in capitals begins a section,
/// and the lines below it stay unchanged.
fn closing_sections(command: &Command) -> Roff {
    let text = command.get_after_long_help().or(command.get_after_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::default();
    let mut inside = false;
    for line in text.lines() {
        let is_heading = line.starts_with(|c: char| c.is_ascii_uppercase())
            && line.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
        if is_heading || !inside {
            if inside {
                roff.control("fi", []);
            }
            roff.control("SH", [if is_heading { line } else { "NOTES" }]);
            roff.control("nf", []);
            inside = true;
        }
        if !is_heading && !line.trim().is_empty() {
            roff.text([roman(line)]);
        }
    }
    if inside {
        roff.control("fi", []);
    }
    roff
}

fn see_also(parent: Option<&str>) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", ["SEE ALSO"]);
    let pages = parent.map(|name| format!("{name}(1), ")).unwrap_or_default();
    let files = match parent {
        Some("srd-card") => "srd.toml(5), vpc.toml(5)",
        Some("srd-vpc") => "vpc.toml(5)",
        _ => "srd.toml(5)",
    };
    roff.text([roman(format!("{pages}{files}"))]);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Command {
        let leaf = Command::new("leaf")
            .about("Grow a leaf.")
            .after_help("EXIT CODES\n  0  green\n  1  brown\n\nEXAMPLES\n  srd tree leaf");
        let hidden = Command::new("roots").hide(true).about("Nobody sees them.");
        let tree = Command::new("tree").about("Plant a tree.").subcommand(leaf).subcommand(hidden);
        Command::new("srd").version("1.2.3").subcommand(tree).subcommand_required(true)
    }

    #[test]
    fn every_command_has_a_page_but_hidden_ones_and_help() {
        let names: Vec<String> = pages(tree()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["srd.1", "srd-tree.1", "srd-tree-leaf.1"]);
    }

    #[test]
    fn the_end_of_the_help_becomes_sections_with_their_lines() {
        let (_, page) = pages(tree()).remove(2);
        let lines: Vec<&str> = page.lines().collect();
        let at = lines.iter().position(|line| *line == r#".SH "EXIT CODES""#).expect(&page);
        assert_eq!(&lines[at + 1..at + 5], [".nf", "  0  green", "  1  brown", ".fi"]);
        assert_eq!(lines[at + 5], ".SH EXAMPLES");
        assert!(page.contains("srd\\-tree\\-leaf \\- Grow a leaf\n"), "{page}");
        assert!(page.ends_with("srd\\-tree(1), srd.toml(5)\n"), "{page}");
    }
}

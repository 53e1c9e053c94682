//! Output of results: text, and JSON with `--json`.
//!
//! One rule applies to all commands: `--json FILE` writes JSON to a file, in addition to the text;
//! `--json` and `--json -` write JSON to standard output, without the text. A command that runs a
//! program on its standard output refuses the second form.

mod private;

use crate::failure::Usage;
use anyhow::{Context, Error, Result};
use clap::Args;
use rustix::fs::{Access, access};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(crate) use private::create_private;

/// Destination of the result in JSON.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct JsonOutput {
    /// Also write the result as JSON to FILE. Without FILE, or with `-`, it goes to standard
    /// output, which then carries nothing else.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<OsString>,
}

/// Destination of results as lines of JSON.
pub(crate) struct JsonLines {
    output: JsonOutput,
    /// The open destination. A file is emptied when it is opened, so that a command that cannot
    /// begin leaves earlier results.
    to: Option<Box<dyn Write>>,
}

impl JsonOutput {
    /// Whether the user requested JSON.
    pub(crate) fn is_wanted(&self) -> bool {
        self.json.is_some()
    }

    /// Whether standard output is reserved for JSON.
    pub(crate) fn owns_stdout(&self) -> bool {
        self.json.as_ref().is_some_and(|file| file == "-")
    }

    /// Returns an error if the file for JSON cannot be written. It is called before the work
    /// starts, so that no result is lost.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.json {
            Some(file) if file != "-" => check_writable(Path::new(file)),
            _ => Ok(()),
        }
    }

    /// As [`JsonOutput::check`], for a command whose standard output belongs to the program that it
    /// runs.
    pub(crate) fn check_beside_program(&self) -> Result<()> {
        if self.owns_stdout() {
            let text = "--json -: standard output is the program's; name a file";
            return Err(Usage(text.to_owned()).into());
        }
        self.check()
    }

    /// Writes the result in JSON, if the user requested it.
    pub(crate) fn write(&self, value: &impl Serialize) -> Result<()> {
        self.write_by(value, |file, text| fs::write(file, text))
    }

    /// As [`JsonOutput::write`]. Only the owner of the file may read it.
    pub(crate) fn write_private(&self, value: &impl Serialize) -> Result<()> {
        self.write_by(value, private::write_private)
    }

    fn write_by(
        &self,
        value: &impl Serialize,
        to_file: impl FnOnce(&Path, &str) -> std::io::Result<()>,
    ) -> Result<()> {
        let Some(file) = &self.json else { return Ok(()) };
        let mut text = serde_json::to_string_pretty(value).context("the result as JSON")?;
        text.push('\n');
        if self.owns_stdout() {
            let mut out = std::io::stdout().lock();
            return out
                .write_all(text.as_bytes())
                .and_then(|()| out.flush())
                .context("standard output");
        }
        to_file(Path::new(file), &text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Returns the destination of lines of JSON; `None` if the user did not request JSON.
    pub(crate) fn lines(&self) -> Option<JsonLines> {
        self.is_wanted().then(|| JsonLines { output: self.clone(), to: None })
    }

    /// Prints a line of text, unless standard output is reserved for JSON. If the JSON goes to a
    /// file, a reader that has closed standard output is no error, because the command must still
    /// write the file.
    pub(crate) fn say(&self, text: impl std::fmt::Display) -> Result<()> {
        if self.owns_stdout() {
            return Ok(());
        }
        let said = say(text);
        if self.json.is_some() { unless_closed(said) } else { said }
    }
}

impl JsonLines {
    /// Opens the destination, unless it is open. Without a line, a file is empty.
    pub(crate) fn open(&mut self) -> Result<&mut dyn Write> {
        let to: Box<dyn Write> = match (self.to.take(), &self.output.json) {
            (Some(to), _) => to,
            (None, Some(file)) if !self.output.owns_stdout() => {
                let opened = File::create(file);
                let opened = opened.with_context(|| format!("cannot write {}", file.display()))?;
                Box::new(BufWriter::new(opened))
            }
            (None, _) => Box::new(BufWriter::new(std::io::stdout())),
        };
        Ok(self.to.insert(to).as_mut())
    }

    /// Adds a line. It may wait in memory until [`JsonLines::flush`].
    pub(crate) fn add(&mut self, value: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(value).context("a result as JSON")?;
        line.push(b'\n');
        let what = self.what();
        self.open()?.write_all(&line).context(what)
    }

    /// Writes lines that wait in memory.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let what = self.what();
        self.to.as_mut().map_or(Ok(()), |to| to.flush()).context(what)
    }

    /// Name of the destination, for errors.
    fn what(&self) -> &'static str {
        if self.output.owns_stdout() { "standard output" } else { "the file of JSON" }
    }
}

/// Collects the errors of several outputs of one result. Each output is attempted even if another
/// one fails.
#[derive(Default)]
pub(crate) struct Attempts(Option<Error>);

impl Attempts {
    /// Adds the outcome of one output.
    pub(crate) fn add(&mut self, outcome: Result<()>) {
        let Err(error) = outcome else { return };
        // A failed write to a file matters more than a reader that has closed standard output.
        if self.0.as_ref().is_none_or(is_broken_pipe) {
            self.0 = Some(error);
        }
    }

    /// Returns the first error other than a broken pipe. If there is no such error, returns the
    /// broken pipe, if any.
    pub(crate) fn end(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Prints a line of text. If the reader has closed standard output, this function returns an error
/// and does not panic.
pub(crate) fn say(text: impl std::fmt::Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("standard output")
}

/// Returns the outcome of an output. A reader that has closed standard output is no error.
pub(crate) fn unless_closed(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        outcome => outcome,
    }
}

/// Prints a line of text to standard error. In contrast to `eprintln!`, this macro does not panic
/// if standard error is on a full disk, or if its reader is gone.
macro_rules! tell {
    ($($words:tt)*) => {
        $crate::output::to_stderr(format_args!("{}\n", format_args!($($words)*)))
    };
}
pub(crate) use tell;

/// Prints a text to standard error. An error is ignored, because it cannot be reported anywhere.
pub(crate) fn to_stderr(text: impl std::fmt::Display) {
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "{text}").and_then(|()| err.flush());
}

/// Writes a file with this mode. The file is complete when it gets its name. A link of that name is
/// replaced, not followed.
///
/// # Errors
/// An error of the operating system, if the file cannot be written.
pub(crate) fn write_new(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    // A process with this number that was killed may have left its file: in a container, each start
    // has the same number.
    let _ = std::fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

/// Returns an error if a file cannot be written, or cannot be created in its directory.
pub(crate) fn check_writable(file: &Path) -> Result<()> {
    if file.is_dir() {
        let text = format!("{} is a directory: name a file", file.display());
        return Err(Usage(text).into());
    }
    if file == Path::new("-") {
        let text = "`-` is standard output for --json alone: name a file, such as ./-";
        return Err(Usage(text.to_owned()).into());
    }
    let name = file.as_os_str().as_encoded_bytes();
    if name.is_empty() || name.ends_with(b"/") {
        return Err(Usage(format!("`{}`: name a file", file.display())).into());
    }
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    if !directory.is_dir() {
        let directory = directory.display();
        let text = format!("{directory}: no such directory to write to; create it first");
        return Err(Usage(text).into());
    }
    let place: &Path = if file.exists() { file } else { &directory };
    access(place, Access::WRITE_OK).map_err(|error| {
        let error = std::io::Error::from(error);
        Usage(format!("{}: {error}: name another file", place.display())).into()
    })
}

/// Returns the text of a file that the user named. An error is a usage error.
pub(crate) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| {
        let what = match error.kind() {
            ErrorKind::NotFound => "no such file".to_owned(),
            ErrorKind::InvalidData => "not a text file (UTF-8)".to_owned(),
            _ => error.to_string(),
        };
        Usage(format!("cannot read {}: {what}", file.display())).into()
    })
}

/// Whether an error only means that the reader has closed standard output, which is no failure.
pub(crate) fn is_broken_pipe(error: &Error) -> bool {
    let is_pipe = |e: &std::io::Error| e.kind() == ErrorKind::BrokenPipe;
    let at_stdout = error.chain().any(|e| e.to_string() == "standard output");
    at_stdout && error.root_cause().downcast_ref::<std::io::Error>().is_some_and(is_pipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Some commands wrote a file with the name `-`, some refused it, and some printed.
    #[test]
    fn regression_a_hyphen_is_standard_output_for_every_kind_of_json() {
        #[derive(Debug, clap::Parser)]
        struct Arguments {
            _name: Option<String>,
            #[command(flatten)]
            json: JsonOutput,
        }
        let json = |words: &[&str]| {
            let words = [&["srd"][..], words].concat();
            <Arguments as clap::Parser>::try_parse_from(words).unwrap().json
        };
        assert!(!json(&["a"]).is_wanted() && json(&["a"]).lines().is_none());
        for words in [&["--json"][..], &["--json", "-"], &["--json=-", "a"], &["a", "--json"]] {
            let output = json(words);
            assert!(output.owns_stdout() && output.check().is_ok(), "{words:?}");
            assert_eq!(output.lines().unwrap().what(), "standard output");
            let refused = output.check_beside_program().unwrap_err().to_string();
            assert!(refused.contains("name a file"), "{refused}");
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.json");
        let output = json(&["a", "--json", file.to_str().unwrap()]);
        assert!(!output.owns_stdout() && output.check_beside_program().is_ok());
        output.write_private(&1).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let mut lines = output.lines().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n", "earlier results stay");
        lines.add(&[2]).unwrap();
        lines.add(&[3]).unwrap();
        lines.flush().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "[2]\n[3]\n");
        // Other outputs have no such rule.
        let refused = check_writable(Path::new("-")).unwrap_err().to_string();
        assert!(refused.contains("name a file"), "{refused}");
    }

    #[test]
    fn a_file_that_is_not_there_matters_more_than_a_reader_who_has_left() {
        let left = || -> Result<()> {
            Err(std::io::Error::from(ErrorKind::BrokenPipe)).context("standard output")
        };
        let mut attempts = Attempts::default();
        attempts.add(left());
        attempts.add(Err(anyhow::anyhow!("the disk is full")));
        attempts.add(left());
        attempts.add(Err(anyhow::anyhow!("the second")));
        assert_eq!(attempts.end().expect_err("an error").to_string(), "the disk is full");
        let mut attempts = Attempts::default();
        attempts.add(Ok(()));
        attempts.add(left());
        assert!(is_broken_pipe(&attempts.end().expect_err("an error")));
        assert!(Attempts::default().end().is_ok());
    }
}

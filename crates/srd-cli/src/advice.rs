//! Advice on a command line that was not understood: the command that has the unknown word at
//! another place, and files after a `--json` that takes none.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds advice to an error of the command line `words`, the arguments of `program`.
pub(crate) fn add(error: &mut clap::Error, program: &Command, words: &[OsString]) {
    let kind = match error.kind() {
        // A conflict: a command with commands below it takes the word after an option for one.
        ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict => {
            ContextKind::InvalidSubcommand
        }
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return,
    };
    let Some(ContextValue::String(unknown)) = error.get(kind) else { return };
    let advice = advice(unknown, program, words);
    if !advice.is_empty() {
        let advice = advice.into_iter().map(StyledStr::from).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(advice));
    }
}

fn advice(unknown: &str, program: &Command, words: &[OsString]) -> Vec<String> {
    if words.windows(2).any(|pair| pair[0] == "--json" && pair[1] == unknown) {
        let text = "`--json` of this command takes no file: it prints JSON on standard output";
        return vec![text.to_owned()];
    }
    // Only the first word of a command line can be a command that is below another one.
    if words.iter().find(|word| !word.as_encoded_bytes().starts_with(b"-")) != Some(&unknown.into())
    {
        return Vec::new();
    }
    let mut found = Vec::new();
    for group in visible(program) {
        let has = visible(group).any(|command| command.get_name() == unknown);
        if has {
            found.push(format!("the command is `srd {} {unknown}`", group.get_name()));
        }
    }
    found
}

/// The commands below a command, except hidden ones.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn error(words: &[&str]) -> String {
        let program = crate::Cli::command();
        let mut error = program.clone().try_get_matches_from([&["srd"][..], words].concat());
        let error = error.as_mut().expect_err("it is not understood");
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        add(error, &program, &words);
        error.to_string()
    }

    /// The error was only that there is no such command.
    #[test]
    fn regression_a_command_below_another_one_is_named() {
        for words in [&["hosts"][..], &["hosts", "--json"], &["-v", "hosts", "remove", "a"]] {
            let text = error(words);
            assert!(text.contains("the command is `srd control hosts`"), "{text}");
        }
        let text = error(&["trace"]);
        assert!(text.contains("`srd card trace`"), "{text}");
        for words in [&["fly"][..], &["control", "status"], &["card-helper", "hosts"]] {
            let text = error(words);
            assert!(!text.contains("the command is"), "{text}");
        }
    }

    /// The error was only that the word is unexpected; other commands take a file.
    #[test]
    fn regression_a_file_after_json_is_explained_where_json_takes_none() {
        for words in [
            &["status", "--json", "-"][..],
            &["stats", "--json", "out.json"],
            &["control", "token", "list", "--json", "-"],
            &["control", "hosts", "--json", "-"],
        ] {
            let text = error(words);
            assert!(text.contains("`--json` of this command takes no file"), "{text}");
        }
        let text = error(&["status", "b"]);
        assert!(!text.contains("--json` of"), "{text}");
    }
}

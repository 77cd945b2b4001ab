//! The `plimsoll` command.

mod cli;
mod commands;
mod daemon;
mod demo;
mod error;
mod meter;
mod nested;
mod output;
mod owner;
mod run;
mod sim;
mod top;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use cli::{Cli, Command};
use error::{EXIT_FAILED, Result};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match dispatch(cli.command) {
        Ok(code) => code,
        Err(error) => {
            output::tell(&error.to_string());
            error.exit_code()
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Set(args) => commands::set::run(&args),
        Command::Show(args) => commands::show::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Reload(args) => commands::reload::run(args),
        Command::Debug(args) => commands::debug::run(&args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Restore(args) => commands::restore::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Load(args) => Ok(plimsoll_load::cli::run(args)?),
        Command::Completions { shell } => Ok(commands::documents::completions(shell)),
        Command::Man { folder } => commands::documents::man_pages(&folder),
    }
}

/// Help goes to standard output as it is. Of an error, the lines that say
/// what is wrong and what was probably meant become one.
fn usage(error: &clap::Error) -> ExitCode {
    let asked_for = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
    if asked_for.contains(&error.kind()) {
        // A closed standard output is not worth a message.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(EXIT_FAILED);
    }
    output::tell(&gone(error).unwrap_or_else(|| one_line(&error.to_string())));
    ExitCode::from(EXIT_FAILED)
}

/// Commands that existed, and what took their place.
const GONE: [(&str, &str); 8] = [
    (
        "bench",
        "`make lab` measures on a real kernel, in virtual time",
    ),
    ("host", "`make lab` runs the real kernel in virtual time"),
    ("need", OF_LAB),
    ("wake", OF_LAB),
    ("serve", OF_LAB),
    ("request", OF_LAB),
    ("hold", OF_LAB),
    ("wait", OF_LAB),
];

/// What took the place of workloads that only measurements use.
const OF_LAB: &str = "`make lab` measures with its own workloads";

/// The message about a command that existed.
fn gone(error: &clap::Error) -> Option<String> {
    if let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg)
        && given == "--trace"
    {
        return Some("`load service --trace` is gone: --arrivals has the patterns".to_owned());
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (name, instead) = GONE.iter().find(|(name, _)| name == given)?;
    Some(format!("the command `{name}` is gone: {instead}"))
}

/// The sentences of a usage error, without its pointer to the help.
fn one_line(text: &str) -> String {
    let kept = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .map(|line| {
            line.trim_start_matches("error: ")
                .trim_start_matches("tip: ")
        });
    // A list that follows a colon is a part of its sentence.
    let text = kept.collect::<Vec<_>>().join("; ").replace(":; ", ": ");
    // What the standard library says of a number names nothing that is allowed.
    text.replace(
        ": invalid digit found in string",
        ": it is no whole number; allowed: digits alone, such as 10",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(args: &[&str]) -> String {
        one_line(&Cli::try_parse_from(args).unwrap_err().to_string())
    }

    #[test]
    fn errors_are_one_line_that_names_what_is_allowed() {
        let bad_value = message(&["plimsoll", "run", "--quota", "600ms/9s", "--", "true"]);
        assert!(!bad_value.contains('\n'));
        for part in ["quota", "600ms/9s", "1ms … 1s", "allowed:"] {
            assert!(bad_value.contains(part), "{bad_value}");
        }
        let typo = message(&["plimsoll", "run", "--qouta", "6cpus", "--", "true"]);
        assert!(
            typo.contains("--qouta") && typo.contains("'--quota'"),
            "{typo}"
        );
        for words in ["interference --groups -1", "interference --periods 1e6"] {
            let words = format!("plimsoll sim {words}");
            let number = message(&words.split(' ').collect::<Vec<_>>());
            assert!(
                number.ends_with("it is no whole number; allowed: digits alone, such as 10"),
                "{number}"
            );
        }
        let missing = message(&["plimsoll", "top", "--json"]);
        assert!(missing.ends_with("provided: --once"), "{missing}");
        let command = message(&["plimsoll", "retsore"]);
        assert!(command.contains("'restore'"), "{command}");
    }

    #[test]
    fn commands_that_existed_name_what_took_their_place() {
        for words in [
            &["plimsoll", "bench", "f"][..],
            &["plimsoll", "sim", "host", "f"],
            &["plimsoll", "load", "request", "--http", "/page"],
        ] {
            let message = gone(&Cli::try_parse_from(words).unwrap_err()).unwrap();
            assert!(message.contains("make lab"), "{message}");
        }
        let other = Cli::try_parse_from(["plimsoll", "retsore"]).unwrap_err();
        assert_eq!(gone(&other), None);
    }
}

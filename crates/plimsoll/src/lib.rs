//! The `plimsoll` command, as a library for what is generated from its command line.

mod caller;
mod cli;
mod commands;
mod daemon;
mod demo;
mod error;
mod expected;
mod meter;
mod nested;
mod output;
mod owner;
mod run;
mod sim;
mod target;
mod top;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};

use cli::{Cli, Command};
use error::{CommandError, EXIT_FAILED, EXIT_UNPRINTED, Result};

/// Returns the definition of the command line.
#[must_use]
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// Runs the command of this process, and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    // Children of a process that ignores it cannot be waited for.
    caller::stop_ignoring(libc::SIGCHLD);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    // `run` unblocks signals once they are queued.
    if !matches!(cli.command, Command::Run(_)) {
        caller::unblock_signals();
    }
    let is_change = match &cli.command {
        Command::Set(args) => !args.plan.dry_run,
        Command::Reload(_) | Command::Restore(_) => true,
        _ => false,
    };
    match dispatch(cli.command) {
        Ok(code) => code,
        Err(error) => {
            let is_done = is_change && matches!(error, CommandError::Output(_));
            let done = if is_done { "; the change is made" } else { "" };
            output::tell(&format!("{error}{done}"));
            match is_done {
                true => ExitCode::from(EXIT_UNPRINTED),
                false => error.exit_code(),
            }
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
        Command::Completions { shell } => commands::completions::run(shell),
    }
}

/// Prints help as it is. Of an error, prints the lines that say what is wrong and what was probably
/// meant, as one line.
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
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    output::tell(&gone(&words, error).unwrap_or_else(|| one_line(&error.to_string())));
    ExitCode::from(EXIT_FAILED)
}

/// The replacement of workloads that only measurements use.
const OF_LAB: &str = "`make lab` measures with its own workloads";

const NO_STEP: &str = "two loads, one after the other, make a step";

const NO_MODE: &str = "the scheduler takes all ordinary tasks; there is no mode";

/// Commands and options that existed, and what took their place.
const GONE: [(&str, &str); 22] = [
    (
        "bench",
        "`make lab` measures on a real kernel, in virtual time",
    ),
    (
        "sim host",
        "`make lab` runs the real kernel in virtual time",
    ),
    ("man", "`make install` writes the man pages"),
    ("load need", OF_LAB),
    ("load wake", OF_LAB),
    ("load serve", OF_LAB),
    ("load request", OF_LAB),
    ("load hold", OF_LAB),
    ("load wait", OF_LAB),
    (
        "load service --trace",
        "--rate and --burst-size have the patterns",
    ),
    (
        "load service --series",
        "--series-interval adds it to the JSON",
    ),
    (
        "load service --burst-spread",
        "the requests of a burst arrive at once",
    ),
    (
        "load service --arrivals",
        "--rate is for Poisson arrivals, --burst-size with --burst-every for bursts",
    ),
    ("load burn --processes", "`load storm` starts processes"),
    ("load steady --no-pin", "each thread is bound to its CPU"),
    ("load steady --step-to", NO_STEP),
    ("load steady --step-at", NO_STEP),
    ("sim interference --csv", "--json has all figures"),
    (
        "sim interference --threads",
        "each CPU has a thread; `taskset` gives it fewer CPUs",
    ),
    ("run --mode", NO_MODE),
    ("set --mode", NO_MODE),
    ("doctor --mode", NO_MODE),
];

/// The message about a command or an option that existed. `words` are the arguments.
fn gone(words: &[String], error: &clap::Error) -> Option<String> {
    let given = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let given = given.into_iter().find_map(|kind| error.get(kind))?;
    let ContextValue::String(given) = given else {
        return None;
    };
    let commands = words.iter().filter(|word| !word.starts_with('-'));
    let is_this = |name: &str| {
        let mut words = name.split(' ');
        let of_command = words.clone().filter(|word| !word.starts_with('-'));
        let command: Vec<&str> = of_command.collect();
        words.next_back() == Some(given) && commands.clone().take(command.len()).eq(&command)
    };
    let (name, instead) = GONE.iter().find(|(name, _)| is_this(name))?;
    Some(format!("`{name}` is gone: {instead}"))
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
    // The standard library's text about a number names nothing that is allowed.
    text.replace(
        ": invalid digit found in string",
        ": it is no whole number; allowed: digits alone, such as 10",
    )
    .replace(
        ": number too large to fit in target type",
        ": it is too large; allowed: a smaller number",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(line: &str) -> String {
        let words = ["plimsoll"].into_iter().chain(line.split(' '));
        one_line(&Cli::try_parse_from(words).unwrap_err().to_string())
    }

    #[test]
    fn errors_are_one_line_that_names_what_is_allowed_or_was_meant() {
        for (line, parts) in [
            (
                "run --quota 600ms/9s -- true",
                ["quota: `600ms/9s`", "1ms … 1s; allowed:"],
            ),
            ("run --qouta 6cpus -- true", ["--qouta", "'--quota'"]),
            (
                "run --head-room 20% -- true",
                ["--head-room", "'--headroom'"],
            ),
            ("set x --wieght 20", ["--wieght", "'--weight'"]),
            ("doctr", ["doctr", "'doctor'"]),
            ("retsore", ["retsore", "'restore'"]),
            ("run", ["required", "not provided: <CMD>"]),
            ("top --json", ["required", "provided: --once"]),
            ("sim interference --groups 1001", ["`1001`", "1 to 1000"]),
            ("sim interference --seed -1", NO_NUMBER),
            (
                "sim interference --seed 18446744073709551616",
                ["it is too large", "allowed: a smaller"],
            ),
            (
                "set --all --burst-enabled maybe",
                ["'maybe'", "possible values: yes, no"],
            ),
            ("sim interference --periods 1e6", NO_NUMBER),
        ] {
            let message = message(line);
            assert!(!message.contains('\n'), "{message}");
            for part in parts {
                assert!(message.contains(part), "{line}: {message}");
            }
        }
    }

    const NO_NUMBER: [&str; 2] = ["it is no whole number", "allowed: digits alone, such as 10"];

    #[test]
    fn what_existed_names_its_replacement_and_nothing_else_does() {
        let message = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = Cli::try_parse_from(["plimsoll".to_owned()].iter().chain(&words));
            gone(&words, &error.unwrap_err())
        };
        for (line, part) in [
            ("bench f", "`bench` is gone: `make lab`"),
            ("sim host f", "`sim host` is gone: `make lab`"),
            ("load --json need 1ms", "`load need` is gone: `make lab`"),
            (
                "load service --rate 3 --trace f",
                "`load service --trace` is gone: --rate",
            ),
            (
                "run --class batch --mode all -- true",
                "`run --mode` is gone: the scheduler takes all ordinary tasks",
            ),
            ("doctor --mode=all", "`doctor --mode` is gone: "),
            (
                "sim interference --threads 2",
                "`sim interference --threads` is gone: each CPU",
            ),
        ] {
            let message = message(line).unwrap();
            assert!(message.starts_with(part), "{message}");
        }
        for line in ["retsore", "wait", "sim need", "sim bench", "run --trace f"] {
            assert_eq!(message(line), None, "{line}");
        }
    }
}

//! `plimsoll completions`: the script for a shell, generated from the definition of the command line.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::error::Result;
use crate::output;

/// The command line without its hidden option, which the generator would offer.
fn offered() -> clap::Command {
    Cli::command().mut_subcommand("daemon", |daemon| {
        let args = daemon.get_arguments().filter(|it| !it.is_hide_set());
        let about = daemon.get_about().cloned().unwrap_or_default();
        clap::Command::new("daemon")
            .about(about)
            .args(args.cloned())
    })
}

pub fn run(shell: clap_complete::Shell) -> Result<ExitCode> {
    // The generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(), "plimsoll", &mut script);
    output::print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hidden_option_is_offered_and_no_other_is_left_out() {
        let offered = offered();
        let daemon = offered.find_subcommand("daemon").unwrap();
        let names: Vec<_> = daemon
            .get_arguments()
            .map(|it| it.get_id().as_str())
            .collect();
        assert_eq!(names, ["config", "check", "verbose"]);
    }
}

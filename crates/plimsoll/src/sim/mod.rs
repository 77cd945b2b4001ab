//! `plimsoll sim`: the policy core in virtual time.

pub mod host;
pub mod interference;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::Result;

/// Arguments of `sim`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// The simulators.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run a scenario on the model of a host
    #[command(after_help = host::EXAMPLES)]
    Host(host::Args),
    /// Ask what bursts of some groups cost the others
    #[command(after_help = interference::EXAMPLES)]
    Interference(interference::Args),
}

/// Runs a simulator.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Host(args) => host::run(args),
        Command::Interference(args) => interference::run(args),
    }
}

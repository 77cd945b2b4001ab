//! `plimsoll sim`: simulators that run the policy core in virtual time.

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
    /// Run a scenario in the host simulator
    #[command(after_help = host::EXAMPLES)]
    Host(host::Args),
    /// Simulate the cost of bursts of some groups to the others
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

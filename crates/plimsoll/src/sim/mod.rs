//! `plimsoll sim`: a simulator that runs the policy core.

mod interference;

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
    /// Simulate the cost of bursts of some groups to the others
    #[command(after_help = interference::EXAMPLES)]
    Interference(interference::Args),
}

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Interference(args) => interference::run(args),
    }
}

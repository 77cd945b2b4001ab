//! `plimsoll sim`: a simulator that runs the policy core.

mod interference;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::Result;

/// Arguments of `sim`.
#[derive(Debug, clap::Args)]
pub struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

/// The simulators.
#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Simulate the cost of bursts of some groups to the others
    #[command(after_help = interference::EXAMPLES)]
    Interference(interference::InterferenceArgs),
}

pub fn run(args: &SimArgs) -> Result<ExitCode> {
    match &args.command {
        SimCommand::Interference(args) => interference::run(args),
    }
}

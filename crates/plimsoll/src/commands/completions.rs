//! `plimsoll completions`: the script for a shell, generated from the definition of the command line.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::error::Result;
use crate::output;

pub fn run(shell: clap_complete::Shell) -> Result<ExitCode> {
    // The generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
    output::print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

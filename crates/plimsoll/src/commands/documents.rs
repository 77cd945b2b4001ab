//! Completions and man pages, generated from the definition of the command line.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::error::{CommandError, Result};
use crate::output;

pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    // The generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
    output::print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub fn man_pages(folder: &Path) -> Result<ExitCode> {
    let failed = || CommandError::io(format!("{}: cannot write man pages", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed())?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(failed())?;
    Ok(ExitCode::SUCCESS)
}

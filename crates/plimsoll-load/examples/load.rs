//! The load commands as a standalone program.

use std::process::ExitCode;

use clap::Parser;
use plimsoll_load::cli::{Standalone, run};

/// Exit code for bad input or a workload that could not be started.
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let line = match Standalone::try_parse() {
        Ok(line) => line,
        Err(error) => {
            let help = !error.use_stderr();
            // If even the error text can't be written, the exit code still
            // reports the failure.
            let _ = error.print();
            return if help {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(FAILED)
            };
        }
    };
    run(line.args).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(FAILED)
    })
}

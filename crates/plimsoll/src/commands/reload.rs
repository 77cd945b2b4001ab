//! `plimsoll reload`: lets the daemon read its configuration file again.

use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll_daemon::control::protocol::{Answer, Request};
use serde::Serialize;

use crate::cli::OutputArgs;
use crate::error::Result;
use crate::output;
use crate::owner::{Owner, not_meant};

#[derive(Debug, Serialize)]
struct Reloaded {
    config: PathBuf,
    /// Number of groups in the file.
    rules: usize,
    /// Number of groups in force.
    groups: usize,
    warnings: Vec<String>,
}

pub fn run(args: OutputArgs) -> Result<ExitCode> {
    let reloaded = match Owner::needed()?.ask(&Request::Reload)? {
        Answer::Reloaded {
            config,
            rules,
            groups,
            warnings,
        } => Reloaded {
            config,
            rules,
            groups,
            warnings,
        },
        other => return Err(not_meant(&other)),
    };
    for warning in &reloaded.warnings {
        output::tell(warning);
    }
    if args.json {
        output::print_json("plimsoll.reload/1", &reloaded)?;
    } else {
        output::print_line(&sentence(&reloaded))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn sentence(reloaded: &Reloaded) -> String {
    let plural = match reloaded.rules {
        1 => "",
        _ => "s",
    };
    format!(
        "reloaded {}: {} group{plural} of the file, {} in force",
        reloaded.config.display(),
        reloaded.rules,
        reloaded.groups
    )
}

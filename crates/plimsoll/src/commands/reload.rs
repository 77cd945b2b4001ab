//! `plimsoll reload`: lets the daemon read its configuration file again.

use std::process::ExitCode;

use plimsoll_daemon::control::protocol::{Answer, Request};

use crate::cli::OutputArgs;
use crate::error::Result;
use crate::output;
use crate::owner::{Owner, not_meant};

pub fn run(args: OutputArgs) -> Result<ExitCode> {
    let report = match Owner::needed()?.ask(&Request::Reload)? {
        Answer::Reloaded(report) => report,
        other => return Err(not_meant(&other)),
    };
    for warning in &report.warnings {
        output::tell(warning);
    }
    if args.json {
        output::print_json("plimsoll.reload/1", &report)?;
    } else {
        let config = report.config.display();
        let (rules, groups) = (report.rules, report.groups);
        let plural = if rules == 1 { "" } else { "s" };
        output::print_line(&format!(
            "reloaded {config}: {rules} group{plural} of the file, {groups} in force"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

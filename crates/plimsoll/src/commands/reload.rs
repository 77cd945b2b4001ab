//! `plimsoll reload`: lets the daemon read its configuration file again.

use std::process::ExitCode;

use plimsoll_daemon::control::protocol::{Answer, Request};
use serde_json::json;

use crate::cli::OutputArgs;
use crate::error::Result;
use crate::output;
use crate::owner::{Owner, not_meant};

pub fn run(args: OutputArgs) -> Result<ExitCode> {
    let (config, rules, groups, warnings) = match Owner::needed()?.ask(&Request::Reload)? {
        Answer::Reloaded {
            config,
            rules,
            groups,
            warnings,
        } => (config, rules, groups, warnings),
        other => return Err(not_meant(&other)),
    };
    for warning in &warnings {
        output::tell(warning);
    }
    if args.json {
        let document = json!({
            "config": config,
            "rules": rules,
            "groups": groups,
            "warnings": warnings,
        });
        output::print_json("plimsoll.reload/1", &document)?;
    } else {
        let config = config.display();
        let plural = if rules == 1 { "" } else { "s" };
        output::print_line(&format!(
            "reloaded {config}: {rules} group{plural} of the file, {groups} in force"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

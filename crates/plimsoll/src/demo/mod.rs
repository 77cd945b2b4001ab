//! demo
use crate::{cli::DemoArgs, error::Result};
pub fn run(_a: &DemoArgs) -> Result<std::process::ExitCode> {
    Ok(0.into())
}

//! Checked arguments.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_engine::EngineError;
use plimsoll_engine::knobs::KnobError;
use plimsoll_engine::knobs::units::duration_ns;

use crate::cli::DemoArgs;
use crate::error::Result;

/// Shortest and longest phase. In shorter ones, percentiles are not
/// significant.
const PHASE_RANGE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

#[derive(Debug, Clone)]
pub struct Options {
    /// Measured time of each phase.
    pub phase: Duration,
    pub report: PathBuf,
    pub json: bool,
}

impl Options {
    pub fn new(args: &DemoArgs) -> Result<Self> {
        Ok(Self {
            phase: phase(&args.phase)?,
            report: args.report.clone(),
            json: args.json,
        })
    }
}

fn phase(text: &str) -> Result<Duration> {
    let refused = |problem: &str| {
        EngineError::from(KnobError::new(
            "phase",
            text,
            problem,
            "2s … 60s, such as 8s or 2500ms",
        ))
    };
    let ns = duration_ns(text).map_err(|error| refused(error.problem()))?;
    let phase = Duration::from_nanos(ns);
    if phase < PHASE_RANGE.0 || phase > PHASE_RANGE.1 {
        return Err(refused("is out of range").into());
    }
    // Rounded to whole milliseconds, which the commands can express.
    Ok(Duration::from_millis(
        u64::try_from(phase.as_millis()).unwrap_or(u64::MAX),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_from_two_seconds_to_a_minute() {
        assert_eq!(phase("8s").unwrap(), Duration::from_secs(8));
        assert_eq!(phase("2s").unwrap(), PHASE_RANGE.0);
        assert_eq!(phase("60s").unwrap(), PHASE_RANGE.1);
        assert_eq!(phase("2500.4ms").unwrap(), Duration::from_millis(2500));
    }

    #[test]
    fn other_phases_are_refused_in_one_line() {
        let bad = [
            "",
            "8",
            "-8s",
            "1s",
            "1.999s",
            "61s",
            "NaN",
            "8 parsecs",
            "9999999999999s",
        ];
        for text in bad {
            let error = phase(text).unwrap_err();
            let line = error.to_string();
            assert!(
                line.starts_with(&format!("phase: `{text}` ")) && line.contains("2s … 60s"),
                "{line}"
            );
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(
                format!("{:?}", error.exit_code()),
                format!("{:?}", std::process::ExitCode::from(125))
            );
        }
    }
}

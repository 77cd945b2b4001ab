//! Check of which knobs one cgroup can have together.

use crate::error::{EngineError, Result};
use crate::knobs::{Class, Knobs};

const OTHER_WAY: &str =
    "a group of Plimsoll's own can have both (start the command by `plimsoll run`)";

fn not_here(knob: &'static str, value: String, reason: impl Into<String>) -> Result<()> {
    Err(EngineError::NotEnforceable {
        knob,
        value,
        reason: reason.into(),
    })
}

/// Checks that one cgroup can have all of these knobs at once, as long as a process of Plimsoll
/// runs.
///
/// # Errors
/// Names the first knob that it cannot have.
pub fn check_one_cgroup(knobs: &Knobs) -> Result<()> {
    if knobs.per_task {
        return not_here(
            "per-task",
            "true".into(),
            "each task would be moved to a cgroup of its own, and these are somebody else's; \
             a group of Plimsoll's own can do it (start the command by `plimsoll run`)",
        );
    }
    check_one_quota(knobs)?;
    if let (Some(weight), Some(Class::Batch)) = (knobs.weight, knobs.class) {
        let reason = format!("an idle cgroup has no weight; {OTHER_WAY}");
        return not_here("weight", weight.to_string(), reason);
    }
    Ok(())
}

/// Refuses quota and cap together: both are made of the cgroup's one quota.
fn check_one_quota(knobs: &Knobs) -> Result<()> {
    if let (Some(quota), Some(cap)) = (knobs.quota, knobs.cap) {
        let reason = format!("a cgroup has one quota, taken by quota {quota}; {OTHER_WAY}");
        return not_here("cap", cap.to_string(), reason);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> String {
        let knobs = serde_json::from_str(json).unwrap();
        check_one_cgroup(&knobs).unwrap_err().to_string()
    }

    #[test]
    fn knobs_beyond_one_cgroup_are_refused_with_a_way_out() {
        for (json, start) in [
            (
                r#"{"cap": "5%", "per-task": true}"#,
                "per-task: cannot be `true`",
            ),
            (r#"{"cap": "5%", "quota": "1cpus"}"#, "cap: cannot be `5%`"),
            (
                r#"{"class": "batch", "weight": "5"}"#,
                "weight: cannot be `5`",
            ),
        ] {
            let message = refused(json);
            assert!(message.starts_with(start), "{message}");
            assert!(message.contains("plimsoll run"), "{message}");
        }
        let all = r#"{"class": "batch", "nice": "3", "headroom": "30%", "soft-cap": "5%"}"#;
        check_one_cgroup(&serde_json::from_str(all).unwrap()).unwrap();
    }
}

//! Error of a knob's value.

use thiserror::Error;

/// Invalid value of a knob.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{knob}: `{value}` {problem}; allowed: {allowed}")]
pub struct KnobError {
    /// Name of the knob as the user knows it, such as `quota`.
    pub knob: &'static str,
    /// Text as it was written.
    pub value: String,
    /// Description of the problem, as the middle of a sentence.
    pub problem: String,
    pub allowed: String,
}

impl KnobError {
    pub fn new(
        knob: &'static str,
        value: impl Into<String>,
        problem: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self {
            knob,
            value: value.into(),
            problem: problem.into(),
            allowed: allowed.into(),
        }
    }
}

//! Error of a knob's value.

use thiserror::Error;

/// Invalid value of a knob: the knob's name, the text as written, and the allowed
/// forms.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{knob}: `{value}` {problem}; allowed: {allowed}")]
pub struct KnobError {
    /// The knob's name as the user knows it, such as `quota`.
    pub knob: &'static str,
    /// The text as it was written.
    pub value: String,
    /// Description of the problem, as the middle of a sentence.
    pub problem: String,
    /// Allowed forms.
    pub allowed: String,
}

impl KnobError {
    /// An error of `knob`, whose text was `value`.
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

//! What is wrong with a knob that a user wrote.

use thiserror::Error;

/// A knob's value that cannot be used: which knob, what was written, what
/// is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{knob}: `{value}` {problem}; allowed: {allowed}")]
pub struct KnobError {
    /// The knob's name as the user knows it, such as `quota`.
    pub knob: &'static str,
    /// The text as it was written.
    pub value: String,
    /// What is wrong with it, as the middle of a sentence.
    pub problem: String,
    /// What would have been right.
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

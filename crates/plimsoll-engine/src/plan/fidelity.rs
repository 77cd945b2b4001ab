//! Fidelity with which a mechanism enforces a knob.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "fidelity")]
pub enum Fidelity {
    Exact,
    /// Enforced with a loss, which is reported.
    Approximate {
        loss: String,
    },
    /// Not enforceable on this host.
    Impossible {
        /// Reason, and an alternative that can.
        reason: String,
    },
}

/// Mechanism of a knob, and its loss.
pub(super) type How = (String, Fidelity);

pub(super) fn approximate(loss: impl Into<String>) -> Fidelity {
    Fidelity::Approximate { loss: loss.into() }
}

pub(super) fn impossible(reason: impl Into<String>) -> Fidelity {
    Fidelity::Impossible {
        reason: reason.into(),
    }
}

/// Returns that a headroom is more than there is.
pub(super) fn too_many(nr_cpus: u32) -> Fidelity {
    impossible(format!("there are {nr_cpus} CPUs"))
}

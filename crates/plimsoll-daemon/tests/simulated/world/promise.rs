//! Promise to the members of a group.

use plimsoll_engine::knobs::{Class, Knobs};

/// Some limit: the grants of the headroom controller depend on the machine's past.
const HEADROOM_PPM: u64 = u64::MAX;

/// Weakest of the limits that may be in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    pub rate_max_ppm: Option<u64>,
    pub is_idle: bool,
}

impl Promise {
    /// Creates the promise for knobs. `yields`: a batch group yields to headroom.
    pub fn of(knobs: &Knobs, yields: bool) -> Self {
        let is_idle = knobs.class == Some(Class::Batch);
        let quota = knobs.quota.and_then(|quota| quota.rate_ppm());
        let cap = knobs.cap.map(|cap| u64::from(cap.permille) * 1_000);
        let headroom = (is_idle && yields).then_some(HEADROOM_PPM);
        Self {
            rate_max_ppm: [quota, cap, headroom].into_iter().flatten().min(),
            is_idle,
        }
    }

    /// Returns the promise while the demand of headroom begins or ends.
    pub fn without_headroom(self) -> Self {
        Self {
            rate_max_ppm: self.rate_max_ppm.filter(|ppm| *ppm != HEADROOM_PPM),
            ..self
        }
    }

    /// Returns the promise that holds while one of two becomes the other.
    pub fn weaker(self, other: Self) -> Self {
        let rates = self.rate_max_ppm.zip(other.rate_max_ppm);
        Self {
            rate_max_ppm: rates.map(|(one, other)| one.max(other)),
            is_idle: self.is_idle && other.is_idle,
        }
    }
}

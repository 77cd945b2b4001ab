//! Cache of values that are the same for all groups, but read for each of them.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Largest age of a cached value.
const AGE_MAX: Duration = Duration::from_millis(10);

/// A value that is recomputed when it is too old.
#[derive(Debug)]
pub(super) struct Recent<T>(RefCell<Option<(Instant, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(RefCell::new(None))
    }
}

impl<T: Clone> Recent<T> {
    /// The value of `find`, called now or recently.
    pub fn get(&self, find: impl FnOnce() -> T) -> T {
        self.get_at(Instant::now(), find)
    }

    fn get_at(&self, now: Instant, find: impl FnOnce() -> T) -> T {
        let mut recent = self.0.borrow_mut();
        match &*recent {
            Some((at, value)) if now.saturating_duration_since(*at) <= AGE_MAX => value.clone(),
            _ => {
                let value = find();
                *recent = Some((now, value.clone()));
                value
            }
        }
    }

    pub fn forget(&self) {
        self.0.borrow_mut().take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cgroupfs::os;

    #[test]
    fn a_value_is_recomputed_when_it_is_old_or_has_changed() {
        let recent = Recent::default();
        let now = os::now();
        assert_eq!(recent.get_at(now, || 1), 1);
        assert_eq!(recent.get_at(now + AGE_MAX, || 2), 1);
        recent.forget();
        assert_eq!(recent.get_at(now + AGE_MAX, || 3), 3);
        let later = now + 2 * AGE_MAX + Duration::from_nanos(1);
        assert_eq!(recent.get_at(later, || 4), 4);
    }
}

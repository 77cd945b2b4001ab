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
        let mut recent = self.0.borrow_mut();
        match &*recent {
            Some((at, value)) if at.elapsed() <= AGE_MAX => value.clone(),
            _ => {
                let value = find();
                *recent = Some((Instant::now(), value.clone()));
                value
            }
        }
    }

    /// Drops the value after a change.
    pub fn forget(&self) {
        self.0.borrow_mut().take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_recomputed_when_it_is_old_or_has_changed() {
        let recent = Recent::default();
        assert_eq!(recent.get(|| 1), 1);
        let before = Instant::now();
        let again = recent.get(|| 2);
        assert!(again == 1 || before.elapsed() > AGE_MAX / 2, "{again}");
        recent.forget();
        assert_eq!(recent.get(|| 3), 3);
        std::thread::sleep(2 * AGE_MAX);
        assert_eq!(recent.get(|| 4), 4);
    }
}

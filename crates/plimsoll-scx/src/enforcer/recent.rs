//! What is the same for all groups, and is asked for each of them.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// What is not older than this is good enough to be shown.
const AGE_MAX: Duration = Duration::from_millis(10);

/// A value that is found out again when it is too old.
#[derive(Debug)]
pub(super) struct Recent<T>(RefCell<Option<(Instant, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(RefCell::new(None))
    }
}

impl<T: Clone> Recent<T> {
    /// The value, as `find` finds it now or found it a moment ago.
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

    /// It has changed.
    pub fn forget(&self) {
        self.0.borrow_mut().take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_out_again_when_it_is_old_or_has_changed() {
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

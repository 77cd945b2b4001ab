//! History of the groups over the last minutes, of bounded size.

use std::collections::{HashMap, VecDeque};

use plimsoll_daemon::state::State;

use super::rates::{GroupRates, Rates};

/// Maximum number of points of one group.
pub const POINTS_MAX: usize = 300;
/// Maximum number of points of all groups: 12 MiB.
const ALL_POINTS_MAX: usize = 150_000;

/// The rates of every existing group in the last intervals.
#[derive(Debug, Default)]
pub struct History {
    groups: HashMap<String, VecDeque<GroupRates>>,
}

impl History {
    /// Adds a point for every group; removes groups that no longer exist.
    pub fn take(&mut self, state: &State, rates: &Rates) {
        let most = POINTS_MAX.min(ALL_POINTS_MAX / state.groups.len().max(1));
        let mut before = std::mem::take(&mut self.groups);
        for (group, rates) in state.groups.iter().zip(&rates.groups) {
            let (name, mut points) = before
                .remove_entry(&group.name)
                .unwrap_or_else(|| (group.name.clone(), VecDeque::new()));
            points.push_back(*rates);
            let surplus = points.len().saturating_sub(most);
            points.drain(..surplus);
            self.groups.insert(name, points);
        }
    }

    /// The points of a group, oldest first.
    pub fn of(
        &self,
        name: &str,
    ) -> impl DoubleEndedIterator<Item = &GroupRates> + ExactSizeIterator {
        static NONE: VecDeque<GroupRates> = VecDeque::new();
        self.groups.get(name).unwrap_or(&NONE).iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing::{group, state};

    #[test]
    fn history_is_bounded_and_removed_with_its_group() {
        let mut history = History::default();
        let both = state(&[group("one", 0), group("two", 0)]);
        let one = state(&[group("one", 0)]);
        let rates = |cpu_ppm| Rates {
            groups: vec![
                GroupRates {
                    cpu_ppm: Some(cpu_ppm),
                    ..GroupRates::default()
                };
                2
            ],
            ..Rates::default()
        };
        for number in 0..POINTS_MAX as u64 + 50 {
            history.take(&both, &rates(number));
        }
        let points: Vec<&GroupRates> = history.of("two").collect();
        assert_eq!(points.len(), POINTS_MAX);
        assert_eq!(points[0].cpu_ppm, Some(50));
        history.take(&one, &rates(u64::MAX));
        assert_eq!(history.of("two").len(), 0);
        assert_eq!(
            history.of("one").next_back().unwrap().cpu_ppm,
            Some(u64::MAX)
        );

        let many: Vec<_> = (0..5_000).map(|n| group(&format!("g{n:05}"), 0)).collect();
        let many = state(&many);
        let none = Rates {
            groups: vec![GroupRates::default(); 5_000],
            ..Rates::default()
        };
        for _ in 0..120 {
            history.take(&many, &none);
        }
        assert_eq!(history.of("g00007").len(), ALL_POINTS_MAX / 5_000);
    }
}

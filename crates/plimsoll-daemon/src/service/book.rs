//! The groups that there are, what is asked of each, and what is in force.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use plimsoll_engine::knobs::Knobs;

use super::wish::{Place, Wish};

/// After a failure, the next attempt is that much later, and twice as much
/// each time …
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// … up to this.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// One group.
#[derive(Debug)]
pub(super) struct Entry {
    /// What is asked; `None`: it is to go.
    pub wish: Option<Wish>,
    /// What the enforcer has; `None`: nothing.
    pub applied: Option<Knobs>,
    /// Why it is not, or not wholly, as it was asked for.
    pub problem: Option<String>,
    /// A change has failed half-way: what is in force is not known for sure.
    pub is_doubtful: bool,
    failures: u32,
}

/// All groups by their unique name.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: BTreeMap<String, Entry>,
    /// Those where what is in force may not be what is asked.
    unsettled: BTreeSet<String>,
    /// When those that failed are tried again.
    retries: BTreeMap<String, Instant>,
    /// Something is asked that was not, or not any more.
    has_changed: bool,
}

impl Book {
    /// All groups, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Whether the enforcer has it.
    pub fn is_applied(&self, name: &str) -> bool {
        let entry = self.entries.get(name);
        entry.is_some_and(|entry| entry.applied.is_some())
    }

    /// Whether it is a group of the file that is made of processes.
    pub fn is_of_processes(&self, name: &str) -> bool {
        let wish = self.wish(name);
        wish.is_some_and(|wish| wish.place == Place::Processes)
    }

    pub fn wish(&self, name: &str) -> Option<&Wish> {
        self.entries.get(name)?.wish.as_ref()
    }

    /// Everything that is asked.
    pub fn wishes(&self) -> impl Iterator<Item = &Wish> {
        self.entries
            .values()
            .filter_map(|entry| entry.wish.as_ref())
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Asks something of a group; `None`: nothing any more. Returns whether
    /// that is new.
    pub fn ask(&mut self, name: &str, wish: Option<Wish>) -> bool {
        match (self.entries.get_mut(name), wish) {
            (None, None) => return false,
            (Some(entry), wish) if entry.wish == wish => return false,
            (Some(entry), wish) => {
                entry.wish = wish;
                entry.failures = 0;
            }
            (None, wish) => {
                let entry = Entry {
                    wish,
                    applied: None,
                    problem: None,
                    is_doubtful: false,
                    failures: 0,
                };
                self.entries.insert(name.to_owned(), entry);
            }
        }
        self.has_changed = true;
        self.unsettle(name);
        true
    }

    /// Whether what is asked has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// What is in force has to be compared with what is asked.
    pub fn unsettle(&mut self, name: &str) {
        self.retries.remove(name);
        if !self.unsettled.contains(name) {
            self.unsettled.insert(name.to_owned());
        }
    }

    /// All have to be compared.
    pub fn unsettle_all(&mut self) {
        self.retries.clear();
        self.unsettled = self.entries.keys().cloned().collect();
    }

    /// What failed is tried again now.
    pub fn retry_all(&mut self) {
        self.unsettled
            .extend(std::mem::take(&mut self.retries).into_keys());
    }

    /// Why it could not be done as asked; `None`: it was, or not tried yet.
    pub fn failure(&self, name: &str) -> Option<String> {
        let entry = self.entries.get(name)?;
        let failed = entry.failures > 0;
        failed.then(|| entry.problem.clone()).flatten()
    }

    /// Forgets what was in force: another enforcer begins with nothing.
    pub fn forget_applied(&mut self) {
        for entry in self.entries.values_mut() {
            entry.applied = None;
        }
        self.unsettle_all();
    }

    /// What is to be compared, at most so many. Those that are due again come
    /// with them.
    pub fn take_unsettled(&mut self, most: usize, now: Instant) -> Vec<String> {
        let due = self.retries.iter().filter(|(_, at)| **at <= now);
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            self.unsettle(&name);
        }
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some(name) = self.unsettled.pop_first() else {
                break;
            };
            taken.push(name);
        }
        taken
    }

    /// Whether there is anything to compare, or to try again.
    pub fn needs_settling(&self, now: Instant) -> bool {
        self.has_changed || self.has_unsettled() || self.due().is_some_and(|due| due <= now)
    }

    pub fn has_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// When something that failed is tried again.
    pub fn due(&self) -> Option<Instant> {
        self.retries.values().min().copied()
    }

    /// It is in force now, as far as can be; `loss` says what is missing.
    pub fn applied(&mut self, name: &str, knobs: Knobs, loss: Option<String>) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.applied = Some(knobs);
            entry.problem = loss;
            entry.is_doubtful = false;
            entry.failures = 0;
        }
    }

    /// The enforcer has nothing of it any more.
    pub fn removed(&mut self, name: &str) {
        match self.entries.get_mut(name) {
            Some(entry) if entry.wish.is_some() => entry.applied = None,
            _ => self.forget(name),
        }
    }

    /// There is no such group any more.
    pub fn forget(&mut self, name: &str) {
        self.entries.remove(name);
        self.unsettled.remove(name);
        self.retries.remove(name);
    }

    /// It could not be done, and will be tried again. Returns whether that is
    /// worth telling: the first time, or for another reason than before.
    pub fn failed(&mut self, name: &str, problem: String, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(name) else {
            return false;
        };
        let is_new = entry.problem.as_ref() != Some(&problem);
        entry.problem = Some(problem);
        entry.is_doubtful = true;
        let delay = RETRY_FIRST * 2u32.pow(entry.failures.min(6));
        entry.failures = entry.failures.saturating_add(1);
        let at = now + delay.min(RETRY_MAX);
        self.retries.insert(name.to_owned(), at);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Origin;

    fn wish(group: &str) -> Wish {
        Wish {
            group: group.into(),
            origin: Origin::File,
            place: Place::Cgroup,
            knobs: Knobs::default(),
            subject: String::new(),
            best_effort: false,
            scheduler: None,
            rival: None,
        }
    }

    #[test]
    fn what_is_asked_twice_is_done_once() {
        let mut book = Book::default();
        assert!(book.ask("/a", Some(wish("g"))));
        assert!(!book.ask("/a", Some(wish("g"))));
        let now = Instant::now();
        assert_eq!(book.take_unsettled(10, now), ["/a"]);
        assert!(book.take_unsettled(10, now).is_empty());
        assert!(book.ask("/a", Some(wish("h"))));
        assert!(book.ask("/a", None));
        assert!(!book.ask("/b", None));
        assert_eq!(book.take_unsettled(10, now), ["/a"]);
        book.removed("/a");
        assert_eq!(book.len(), 0);
    }

    #[test]
    fn what_failed_is_tried_again_later_and_later_and_told_once() {
        let mut book = Book::default();
        book.ask("/a", Some(wish("g")));
        let mut now = Instant::now();
        let mut delay = Duration::ZERO;
        for attempt in 0..12 {
            assert_eq!(book.take_unsettled(10, now), ["/a"]);
            assert_eq!(book.failed("/a", "full".into(), now), attempt == 0);
            assert!(book.take_unsettled(10, now).is_empty());
            let next = book.due().unwrap() - now;
            assert!(next >= delay && next <= RETRY_MAX);
            delay = next;
            now += next;
        }
        assert_eq!(delay, RETRY_MAX);
        // Somebody may have mended what was in the way.
        book.retry_all();
        assert_eq!(book.due(), None);
        assert_eq!(book.take_unsettled(10, now), ["/a"]);
        book.applied("/a", Knobs::default(), None);
        assert_eq!(book.due(), None);
        assert_eq!(book.get("/a").unwrap().problem, None);
    }
}

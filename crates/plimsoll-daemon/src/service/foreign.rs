//! Kernel files that others write.

use std::time::Instant;

use super::Service;

impl Service {
    /// Looks at groups of whose kernel files somebody has written one.
    pub(super) fn look_at_written(&mut self) {
        let now = Instant::now();
        let due = self.written.iter().filter(|(_, at)| **at <= now);
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            self.audit(&name);
        }
    }

    /// Looks at all of them now, also at those of which nobody has heard yet.
    pub(super) fn look_at_all_written(&mut self) {
        self.follow_cgroups_now();
        let names: Vec<String> = self.written.keys().cloned().collect();
        for name in names {
            self.audit(&name);
        }
    }

    fn audit(&mut self, name: &str) {
        self.written.remove(name);
        if !self.book.is_applied(name) {
            return;
        }
        let found = self.shared().enforcer().audit(name).unwrap_or_default();
        self.counters.foreign_changes += found.len() as u64;
        for change in &found {
            let done = if self.config.enforce {
                "it is written again"
            } else {
                "it stays until the next change of ours"
            };
            self.log
                .warning("foreign change", &format!("{change}; {done}"));
        }
        if found.is_empty() {
            return;
        }
        if self.config.enforce {
            self.write_again(name);
        } else {
            self.changed_by_others.insert(name.to_owned());
        }
    }

    /// An explicit apply of some groups ends the respect for what others have
    /// written there, also where what is asked is what was asked before.
    pub(super) fn end_respect(&mut self, names: &[String]) {
        for name in names {
            self.audit(name);
            if self.changed_by_others.remove(name) {
                self.write_again(name);
            }
        }
    }

    /// The same of all groups in which others were seen to write.
    pub(super) fn end_all_respect(&mut self) {
        for name in std::mem::take(&mut self.changed_by_others) {
            self.write_again(&name);
        }
    }

    /// Writes what is wanted of a group where somebody has changed it.
    fn write_again(&mut self, name: &str) {
        if !self.book.is_applied(name) {
            return;
        }
        let again = self.shared().enforcer().reapply(name);
        if let Err(error) = again {
            self.log.error("apply", &format!("{name}: {error}"));
        }
    }
}

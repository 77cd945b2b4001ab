//! Audits: comparing the kernel files of groups with the values that were written.

use super::Service;
use plimsoll_cgroupfs::os;

impl Service {
    /// Audits the groups to whose kernel files another process wrote.
    pub(super) fn audit_due(&mut self) {
        for name in self.external.due_groups(os::now()) {
            self.audit(&name);
        }
    }

    /// Audits all groups with external changes now, including those whose events are not read yet.
    pub(super) fn audit_all(&mut self) {
        self.follow_cgroups_now();
        for name in self.external.pending_groups() {
            self.audit(&name);
        }
    }

    fn audit(&mut self, name: &str) {
        self.external.audited(name);
        if !self.table.is_applied(name) {
            return;
        }
        let found = self
            .enforcement
            .enforcer()
            .stock()
            .audit(name)
            .unwrap_or_default();
        self.notices.counters.foreign_changes += found.len() as u64;
        let enforce = self.config().enforce;
        for change in &found {
            let reaction = if enforce {
                "it is written again"
            } else {
                "it stays until the next change of ours"
            };
            let text = format!("{change}; {reaction}");
            self.notices.log.warning("external change", &text);
        }
        if found.is_empty() {
            return;
        }
        match enforce {
            true => self.table.doubt(name),
            false => self.table.respect(name),
        }
    }

    /// Has the next reconcile overwrite external values of some groups: an explicit change of a
    /// group ends the respect for them, also where its desired state is the same as before.
    pub(super) fn overwrite(&mut self, names: &[String]) {
        for name in names {
            self.audit(name);
            self.table.doubt(name);
        }
    }
}

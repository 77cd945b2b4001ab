//! Audit of a group: writes of other processes to its files.

use super::context::Context;
use super::layout::Layer;
use super::{Group, Origin};
use crate::cgroup::audit::external_changes;
use crate::cgroup::change::{Change, folder_of};
use crate::cgroup::wanted::Wanted;
use crate::error::Result;

/// Number of external changes beyond which the oldest are forgotten.
const EXTERNAL_CHANGES_MAX: usize = 32;

impl Group {
    /// Finds external changes of the group's files, or its removal. The external values stay until
    /// knobs are applied again. Returns the changes that were not found before.
    ///
    /// # Errors
    /// When a foreign cgroup is gone.
    pub fn audit(&mut self, context: &Context) -> Result<Vec<String>> {
        let mut found = match self.origin {
            Origin::Own => self.audit_own()?,
            Origin::Foreign => self.audit_foreign(context)?,
        };
        let before = std::mem::replace(&mut self.differences, found.clone());
        found.retain(|change| !before.contains(change));
        self.note_external(&found);
        Ok(found)
    }

    /// Lists the differences between a group's files and its knobs, and its removal.
    fn audit_own(&self) -> Result<Vec<String>> {
        let layout = &self.layout;
        if !layout.top.exists() {
            return Ok(vec![format!(
                "{} was removed",
                layout.shown_path().display()
            )]);
        }
        let mut found = Vec::new();
        for (group, wanted) in layout.wanted(&self.knobs) {
            found.extend(external_changes(&group, Change::plan_own(&group, &wanted))?);
        }
        Ok(found)
    }

    /// Lists the external changes of the files of a foreign cgroup.
    ///
    /// # Errors
    /// When the cgroup is gone.
    fn audit_foreign(&self, context: &Context) -> Result<Vec<String>> {
        let group = self.cgroup();
        group.check_exists()?;
        let yields = self.layout.layer(Layer::Headroom).is_some();
        let wanted = Wanted::on_one_cgroup(&self.knobs, yields);
        let known = context.journal.restores().held(&folder_of(group));
        external_changes(group, Change::plan(group, known, &wanted))
    }

    /// Keeps the newest external changes.
    fn note_external(&mut self, changes: &[String]) {
        self.external_changes.extend_from_slice(changes);
        let surplus = self.external_changes.len();
        let surplus = surplus.saturating_sub(EXTERNAL_CHANGES_MAX);
        self.external_changes.drain(..surplus);
    }
}

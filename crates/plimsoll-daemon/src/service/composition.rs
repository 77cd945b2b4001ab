//! The service: the composition of its parts.

use std::sync::Arc;

use plimsoll_cgroupfs::Hierarchy;

use super::handle::{Handle, Inbox};
use super::parts::{
    ClientRequests, ConfigFile, Enforcement, ExternalChanges, GroupTable, GuardSwitch, Lifetime,
    Notices, TuningSwitch, UsageMeter,
};
use crate::config::Config;
use crate::watch::CgroupWatch;

/// The owner of a cgroup tree: matches, merges and reconciles until it is stopped.
pub struct Service {
    pub(super) hierarchy: Arc<Hierarchy>,
    pub(super) file: ConfigFile,
    pub(super) requests: ClientRequests,
    pub(super) cgroups: CgroupWatch,
    pub(super) external: ExternalChanges,
    pub(super) table: GroupTable,
    pub(super) enforcement: Enforcement,
    pub(super) fair: FairClass,
    pub(super) usage: UsageMeter,
    pub(super) notices: Notices,
    pub(super) inbox: Inbox,
    pub(super) lifetime: Lifetime,
}

/// Help for the service while the fair class runs batch work.
pub(super) struct FairClass {
    pub guard: GuardSwitch,
    pub tuning: TuningSwitch,
}

impl Service {
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.inbox.handle()
    }

    #[must_use]
    pub fn config(&self) -> &Config {
        self.file.config()
    }

    /// Whether groups may save up unused quota.
    pub(super) fn burst_enabled(&self) -> bool {
        self.config().burst_enabled && !self.requests.requested.burst_off
    }

    /// Writes down which file this owner has, if the note is of another one.
    pub(super) fn note_file(&mut self) {
        // JSON cannot hold a path that is no text.
        let is_text = self.file.is_present() && self.file.path().to_str().is_some();
        let path = is_text.then(|| self.file.path().to_owned());
        if self.requests.requested.file != path {
            self.requests.requested.file = path;
            self.save_requests();
        }
    }

    /// Writes requests down for the next start.
    pub(super) fn save_requests(&mut self) {
        let problem = self.requests.save();
        self.notices.note_problem("requested", problem);
    }

    /// Whether there is something to own.
    pub(super) fn is_in_use(&self) -> bool {
        self.table.len() > 0 || self.file.is_present()
    }
}

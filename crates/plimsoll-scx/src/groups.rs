//! The groups that the scheduler is to have.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use plimsoll_cgroupfs::CgroupError;
use plimsoll_engine::knobs::Knobs;

use crate::Error;
use crate::objects::Objects;
use crate::params;
use crate::shared::Shared;

/// The kernel's id of a cgroup: the inode of its folder.
pub(crate) fn cgroup_id(folder: &Path) -> Result<u64, CgroupError> {
    let folder_of =
        fs::metadata(folder).map_err(|source| CgroupError::file("find", folder, source))?;
    Ok(folder_of.ino())
}

/// The knobs of the groups that the scheduler is to have, by the kernel's id of their cgroup.
/// The enforcer and the supervisor change the scheduler's groups only with this locked.
pub(crate) type Groups = BTreeMap<u64, Knobs>;

impl Shared<Groups> {
    /// Adds or changes a group, also in the loaded scheduler.
    ///
    /// # Errors
    /// When the scheduler refuses the group, such as for want of a slot.
    pub fn put(&self, loaded: Option<&Objects>, id: u64, knobs: &Knobs) -> Result<(), Error> {
        let mut groups = self.lock();
        let params = params::params_of(knobs, id);
        loaded.map_or(Ok(()), |objects| objects.apply(params))?;
        groups.insert(id, knobs.clone());
        Ok(())
    }

    /// Removes a group, also from the loaded scheduler.
    pub fn remove(&self, loaded: Option<&Objects>, id: u64) -> Result<(), Error> {
        let mut groups = self.lock();
        groups.remove(&id);
        loaded.map_or(Ok(()), |objects| objects.apply(params::none(id)))
    }

    /// Registers all groups with a scheduler that has none yet. One for which no slot is left is
    /// left to the enforcer, which reports it.
    pub fn register_all(&self, objects: &Objects) {
        for (id, knobs) in self.lock().iter() {
            let _ = objects.apply(params::params_of(knobs, *id));
        }
    }

    /// Removes all other groups from the scheduler, which an earlier owner has left there.
    pub fn remove_others(&self, objects: &Objects) -> Result<(), Error> {
        let groups = self.lock();
        let mut others = objects.cgroup_ids();
        others.retain(|id| !groups.contains_key(id));
        others
            .into_iter()
            .try_for_each(|id| objects.apply(params::none(id)))
    }
}

//! Access to kernel files, with the path in every error.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{CgroupError, Result};
use crate::os;

/// Reads a kernel file, and trims the end of the text.
pub fn read_text(path: &Path) -> Result<String> {
    match read_whole(path) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(source) => Err(CgroupError::file("read", path, source)),
    }
}

fn read_whole(path: &Path) -> io::Result<String> {
    String::from_utf8(os::read(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Writes `text` to a kernel file in one call.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    os::write(path, text)
        .map_err(|source| CgroupError::file(format!("write `{text}`"), path, source))
}

/// Writes `text` to a file of the cgroup with the inode number `inode`, but not to another cgroup
/// that has taken its path. `None`: any cgroup of the path.
///
/// # Errors
/// When the kernel refuses, or the cgroup is gone.
pub fn write_text_of(path: &Path, inode: Option<u64>, text: &str) -> Result<()> {
    if inode.is_none() {
        return write_text(path, text);
    }
    let wanted = || format!("write `{text}`");
    // Opens the file before the check. Inode numbers are not reused (`kernfs_new_node`), so the
    // cgroup that has the number afterwards had it before, and open files of a removed cgroup
    // refuse writes.
    let file = os::File::open(path, os::Access::Write)
        .map_err(|source| CgroupError::file(wanted(), path, source))?;
    check_folder(path.parent().unwrap_or(path), inode)?;
    file.write_start(text)
        .map_err(|source| CgroupError::file(wanted(), path, source))
}

/// Fails unless the folder of a cgroup exists and has the inode number. `None`: any number.
pub fn check_folder(folder: &Path, inode: Option<u64>) -> Result<()> {
    let is_another = |found: &os::FileInfo| inode.is_some_and(|inode| found.inode != inode);
    let gone = match os::look(folder) {
        Ok(found) if is_another(&found) => io::Error::from_raw_os_error(libc::ENOENT),
        Ok(_) => return Ok(()),
        Err(source) => source,
    };
    Err(CgroupError::file("find", folder, gone))
}

/// Finds the folder of the cgroup with an inode number, by its last known path: v1 lets anybody with
/// the permission rename it within its parent (`cgroup1_rename` in kernel/cgroup/cgroup-v1.c).
///
/// # Errors
/// When the cgroup is gone.
pub fn find_folder(folder: &Path, inode: Option<u64>) -> Result<PathBuf> {
    let Err(gone) = check_folder(folder, inode) else {
        return Ok(folder.to_owned());
    };
    // Only v1 has the file. On v2, thousands of cgroups beside it are not looked at.
    let parent = folder.parent().filter(|it| os::exists(&it.join("tasks")));
    let beside = parent.map_or_else(Vec::new, |it| os::list(it).unwrap_or_default());
    let mut beside = beside.into_iter();
    let found = beside.find(|found| found.is_folder && Some(found.inode) == inode);
    found.map(|found| found.path).ok_or(gone)
}

/// Reads a kernel file that holds one number.
///
/// When the file cannot be read or holds something else.
pub(crate) fn read_number<T: std::str::FromStr>(path: &Path) -> Result<T> {
    let text = read_text(path)?;
    text.parse().map_err(|_| CgroupError::Unreadable {
        path: path.to_owned(),
        text,
    })
}

/// Reads the tasks in a kernel file with one on each line, such as `cgroup.procs`. The kernel shows
/// 0 for a task that has no number here: one that ends at this moment, or is not of this PID
/// namespace. Whoever wrote that to a cgroup would move itself.
pub fn read_ids(path: &Path) -> Result<Vec<i32>> {
    Ok(read_text(path)?
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter(|id| *id > 0)
        .collect())
}

/// Lists the folders in a folder.
pub fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    // The link count is 2 plus the number of folders. Listing the files of thousands of cgroups
    // without children would be the largest cost.
    if os::look(folder)?.nr_links == 2 {
        return Ok(Vec::new());
    }
    let found = os::list(folder)?.into_iter();
    let folders = found.filter(|found| found.is_folder);
    Ok(folders.map(|found| found.path).collect())
}

/// Lists the folder of a cgroup and those of all cgroups below it, each before those in it.
pub fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(folder) = found.get(next) {
        // One that has vanished has none below it.
        let below = folders_in(folder).unwrap_or_default();
        found.extend(below);
        next += 1;
    }
    found
}

/// Lists the threads of the cgroup at `folder`, of either version, and of all below it. A vanished
/// cgroup has none.
pub fn threads_below(folder: &Path) -> Vec<i32> {
    let threads = |folder: PathBuf| {
        let mut names = ["cgroup.threads", "tasks"].iter();
        let own = names.find_map(|name| read_ids(&folder.join(name)).ok());
        own.unwrap_or_default()
    };
    tree(folder).into_iter().flat_map(threads).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tasks_without_a_number_are_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("cgroup.procs");
        fs::write(&file, "7\n0\n8\n").unwrap();
        assert_eq!(read_ids(&file).unwrap(), [7, 8]);
    }
}

//! Expected files of foreign cgroups without Plimsoll: as others have made and written them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::simulated::{self, Kernel};

#[derive(Debug, Clone)]
struct Foreign {
    inode: u64,
    /// Texts that each file may hold: those that others wrote since the file was last as it should
    /// be. A reader does not know the order of two writers.
    files: BTreeMap<&'static str, Vec<String>>,
    gives_cpu: Option<bool>,
}

#[derive(Debug, Default)]
pub struct Shadow {
    all: BTreeMap<PathBuf, Foreign>,
}

/// Files with their texts in a new cgroup.
const FILES: [(&str, &str); 8] = [
    ("cpu.max", "max 100000"),
    ("cpu.max.burst", "0"),
    ("cpu.weight", "100"),
    ("cpu.shares", "1024"),
    ("cpu.cfs_quota_us", "-1"),
    ("cpu.cfs_period_us", "100000"),
    ("cpu.cfs_burst_us", "0"),
    ("cpu.idle", "0"),
];

/// Reads the texts of a cgroup's files.
pub fn texts(kernel: &mut Kernel, path: &Path) -> BTreeMap<&'static str, String> {
    let mut texts = BTreeMap::new();
    for (file, _) in FILES {
        if let Some(text) = kernel.text(&path.join(file)) {
            texts.insert(file, text);
        }
    }
    texts
}

pub fn is_own(path: &Path) -> bool {
    let first = path.components().next();
    first.is_some_and(|first| first.as_os_str().to_string_lossy().starts_with("plimsoll"))
}

impl Shadow {
    /// Takes the present state of all cgroups for the expected one.
    pub fn take(&mut self) {
        self.all.clear();
        let mut paths: Vec<PathBuf> =
            simulated::with(|kernel| kernel.cgroups().paths().map(Path::to_owned).collect());
        paths.push(PathBuf::new());
        for path in paths {
            self.renew(&path);
        }
    }

    /// Takes the present state of a cgroup, which may be new, for the expected one.
    pub fn renew(&mut self, path: &Path) {
        if is_own(path) {
            return;
        }
        simulated::with(|kernel| {
            let Some(inode) = kernel.cgroups().inode(path) else {
                return;
            };
            let files = texts(kernel, path);
            let files = files.into_iter().map(|(file, text)| (file, vec![text]));
            let cgroups = kernel.cgroups();
            let foreign = Foreign {
                inode,
                files: files.collect(),
                gives_cpu: Some(cgroups.gives_cpu(path)),
            };
            self.all.insert(path.to_owned(), foreign);
        });
    }

    /// Expects the defaults in a cgroup that was new some time ago and that no other has written
    /// to.
    pub fn renew_with_defaults(&mut self, path: &Path) {
        let inode = simulated::with(|kernel| kernel.cgroups().inode(path));
        let files = FILES.map(|(file, text)| (file, vec![text.to_owned()]));
        if let Some(inode) = inode {
            let foreign = Foreign {
                inode,
                files: files.into(),
                gives_cpu: Some(false),
            };
            self.all.insert(path.to_owned(), foreign);
        }
    }

    /// Takes the present files of a cgroup for the expected ones, because it had none, or has none
    /// any more.
    pub fn renew_files(&mut self, path: &Path) {
        let gives_cpu = self.all.get(path).map(|foreign| foreign.gives_cpu);
        self.renew(path);
        if let (Some(foreign), Some(gives_cpu)) = (self.all.get_mut(path), gives_cpu) {
            foreign.gives_cpu = gives_cpu;
        }
    }

    /// Follows a cgroup that others rename.
    pub fn rename(&mut self, from: &Path, to: &Path) {
        let renamed = self.all.remove(from);
        self.all.extend(renamed.map(|it| (to.to_owned(), it)));
    }

    /// Forgets a cgroup that others remove.
    pub fn forget(&mut self, path: &Path) {
        self.all.remove(path);
    }

    /// Notes a write of others: each file of the cgroup may hold its present text.
    pub fn written(&mut self, path: &Path) {
        let Some(foreign) = self.all.get_mut(path) else {
            return;
        };
        simulated::with(|kernel| {
            for (file, text) in texts(kernel, path) {
                foreign.files.entry(file).or_default().push(text);
            }
            // Clearing a mark leaves the default weight.
            for (file, default) in [("cpu.weight", "100"), ("cpu.shares", "1024")] {
                if let Some(texts) = foreign.files.get_mut(file) {
                    texts.push(default.to_owned());
                }
            }
        });
    }

    /// Notes that others have given the children of a cgroup the controller, or taken it.
    pub fn given(&mut self, path: &Path) {
        if let Some(foreign) = self.all.get_mut(path) {
            foreign.gives_cpu = None;
        }
    }

    /// Returns the differences from the state that others have left, a line each.
    pub fn differences(&self) -> Vec<String> {
        let mut found = Vec::new();
        simulated::with(|kernel| {
            for (path, foreign) in &self.all {
                let shown = path.display();
                if kernel.cgroups().inode(path) != Some(foreign.inode) {
                    found.push(format!("/{shown}: is another"));
                    continue;
                }
                let gives = kernel.cgroups().gives_cpu(path);
                if foreign.gives_cpu.is_some_and(|expected| expected != gives) {
                    found.push(format!("/{shown}: gives cpu: {gives}"));
                    continue;
                }
                for (file, text) in texts(kernel, path) {
                    let expected = foreign.files.get(file);
                    if expected.is_some_and(|expected| !expected.contains(&text)) {
                        found.push(format!("/{shown}: {file}: {text}, not {expected:?}"));
                    }
                }
            }
        });
        found
    }
}

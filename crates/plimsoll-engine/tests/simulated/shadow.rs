//! What foreign cgroups hold if there were no Plimsoll: as others have made and written them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::simulated::{self, Kernel};

/// One foreign cgroup.
#[derive(Debug, Clone)]
struct Foreign {
    inode: u64,
    /// The texts that each file may hold: what others wrote since it was last as it should be. Of
    /// two writers the order is not known to a reader.
    files: BTreeMap<&'static str, Vec<String>>,
    gives_cpu: Option<bool>,
}

/// All foreign cgroups.
#[derive(Debug, Default)]
pub struct Shadow {
    all: BTreeMap<PathBuf, Foreign>,
}

/// The files with what they hold in a new cgroup.
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

/// The texts of a cgroup's files.
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
    /// All is as it should be now.
    pub fn take(&mut self) {
        self.all.clear();
        let mut paths: Vec<PathBuf> =
            simulated::with(|kernel| kernel.cgroups().paths().map(Path::to_owned).collect());
        paths.push(PathBuf::new());
        for path in paths {
            self.renew(&path);
        }
    }

    /// A cgroup is new, or as it should be now.
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

    /// A cgroup was new some time ago, and no other has written to it.
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

    /// The files of a cgroup are new: it had none, or has none any more.
    pub fn renew_files(&mut self, path: &Path) {
        let gives_cpu = self.all.get(path).map(|foreign| foreign.gives_cpu);
        self.renew(path);
        if let (Some(foreign), Some(gives_cpu)) = (self.all.get_mut(path), gives_cpu) {
            foreign.gives_cpu = gives_cpu;
        }
    }

    /// Others remove a cgroup.
    pub fn forget(&mut self, path: &Path) {
        self.all.remove(path);
    }

    /// Others have written to a file: all files of the cgroup may hold what is there now.
    pub fn written(&mut self, path: &Path) {
        let Some(foreign) = self.all.get_mut(path) else {
            return;
        };
        simulated::with(|kernel| {
            for (file, text) in texts(kernel, path) {
                foreign.files.entry(file).or_default().push(text);
            }
            // A mark that is cleared leaves the default.
            for (file, default) in [("cpu.weight", "100"), ("cpu.shares", "1024")] {
                if let Some(texts) = foreign.files.get_mut(file) {
                    texts.push(default.to_owned());
                }
            }
        });
    }

    /// Others have given the children of a cgroup the controller, or taken it.
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

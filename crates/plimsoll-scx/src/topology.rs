//! Last-level caches of the CPUs.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::SchedExtError;
use crate::bpf_intf::{
    plimsoll_limits_PLIMSOLL_CPUS_MAX as CPUS_MAX, plimsoll_limits_PLIMSOLL_LLCS_MAX as LLCS_MAX,
};

/// Folder in which the kernel describes its CPUs.
const FOLDER: &str = "/sys/devices/system/cpu";

/// Properties of the machine that are set in the scheduler before it is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuMap {
    /// One more than the highest possible CPU number.
    pub nr_cpu_ids: u32,
    pub nr_llcs: u32,
    /// The cache of each CPU, counted from 0.
    pub llcs: Vec<u32>,
}

impl CpuMap {
    /// Reads the properties of this machine. If the kernel does not show caches, all CPUs share
    /// one.
    ///
    /// # Errors
    /// When it has more CPUs than the scheduler can serve.
    pub fn of_this_host() -> Result<Self, SchedExtError> {
        Self::at(Path::new(FOLDER))
    }

    fn at(folder: &Path) -> Result<Self, SchedExtError> {
        let path = folder.join("possible");
        let possible = fs::read_to_string(&path).unwrap_or_default();
        let unreadable = || {
            let problem = format!("{}: holds `{}`", path.display(), possible.trim());
            SchedExtError::NotReady(problem)
        };
        let nr_cpu_ids = highest(&possible).ok_or_else(unreadable)? + 1;
        if nr_cpu_ids > CPUS_MAX {
            return Err(SchedExtError::TooManyCpus(nr_cpu_ids));
        }
        Ok(Self::new(
            (0..nr_cpu_ids).map(|cpu| last_cache(folder, cpu)),
        ))
    }

    /// Numbers caches densely, given an identifier of each CPU's cache. CPUs without identifier,
    /// which are offline, get the first cache. Caches beyond the number for which the scheduler has
    /// queues share the numbers of the others, in turn.
    fn new(caches: impl Iterator<Item = Option<String>>) -> Self {
        let mut numbers = HashMap::new();
        let number = |cache: Option<String>| {
            let Some(cache) = cache else { return 0 };
            let next = u32::try_from(numbers.len()).unwrap_or(0);
            *numbers.entry(cache).or_insert(next) % LLCS_MAX
        };
        let llcs: Vec<u32> = caches.map(number).collect();
        Self {
            nr_cpu_ids: u32::try_from(llcs.len()).unwrap_or(CPUS_MAX),
            nr_llcs: llcs.iter().max().map_or(1, |last| last + 1),
            llcs,
        }
    }
}

/// The highest number in a list such as `0-3,8`.
fn highest(list: &str) -> Option<u32> {
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse().ok()
}

/// Identifier of a CPU's last-level cache: the list of CPUs that share it.
fn last_cache(folder: &Path, cpu: u32) -> Option<String> {
    let caches = fs::read_dir(folder.join(format!("cpu{cpu}/cache"))).ok()?;
    let described = caches.flatten().filter_map(|cache| {
        let text = |file| fs::read_to_string(cache.path().join(file)).ok();
        let level: u32 = text("level")?.trim().parse().ok()?;
        Some((level, text("shared_cpu_list")?.trim().to_owned()))
    });
    let (_, shared) = described.max()?;
    Some(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(possible: &str, caches: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("possible"), possible).unwrap();
        for (cache, level, shared) in caches {
            let folder = root.path().join(cache);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("level"), level).unwrap();
            fs::write(folder.join("shared_cpu_list"), shared).unwrap();
        }
        root
    }

    #[test]
    fn the_last_cache_counts_and_caches_are_numbered_densely() {
        let root = machine(
            "0-3\n",
            &[
                ("cpu0/cache/index0", "1\n", "0\n"),
                ("cpu0/cache/index3", "3\n", "0,2\n"),
                ("cpu1/cache/index3", "3\n", "1\n"),
                ("cpu2/cache/index3", "3\n", "0,2\n"),
            ],
        );
        let map = CpuMap::at(root.path()).unwrap();
        assert_eq!((map.nr_cpu_ids, map.nr_llcs), (4, 2));
        assert_eq!(map.llcs, [0, 1, 0, 0]);
    }

    #[test]
    fn without_a_description_there_is_one_cache() {
        let map = CpuMap::at(machine("0\n", &[]).path()).unwrap();
        assert_eq!((map.nr_cpu_ids, map.nr_llcs, map.llcs), (1, 1, vec![0]));
    }

    #[test]
    fn more_cpus_than_the_scheduler_serves_are_refused() {
        let error = CpuMap::at(machine("0-1024\n", &[]).path()).unwrap_err();
        assert!(error.to_string().contains("1025"), "{error}");
        assert!(CpuMap::at(machine("odd\n", &[]).path()).is_err());
        assert_eq!(highest("0-3,8"), Some(8));
    }

    #[test]
    fn no_cache_number_is_beyond_the_queues_of_the_scheduler() {
        let map = CpuMap::new((0..200).map(|cpu| Some(cpu.to_string())));
        assert_eq!(map.nr_llcs, LLCS_MAX);
    }
}

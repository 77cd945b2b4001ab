//! The kernel's ext server: a deadline server on each CPU that lets SCHED_EXT
//! tasks run although fair ones want to (6.18 has none, 7.2 does). Its default,
//! 50 ms each second, is far too coarse. Plimsoll sets it to the tolerance, in short and
//! frequent server slices, because a fair task may wait for a resource of a waiting batch
//! task, such as a lock.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{read_text, write_text};
use plimsoll_engine::journal::{Entry, Journal};
use plimsoll_engine::knobs::Tolerance;

use crate::control_error::ControlError;

const FOLDER: &str = "/sys/kernel/debug/sched/ext_server";
/// Shortest server slice: less is not worth a switch to a task and back.
const RUNTIME_MIN_NS: u64 = 100_000;
/// Shortest period. It bounds the wait for a resource that a batch task holds for a moment.
const PERIOD_MIN_NS: u64 = 20_000_000;
/// The kernel accepts up to 2^22 µs.
pub(crate) const PERIOD_MAX_NS: u64 = 4_000_000_000;

/// Setting of the server of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Runtime per period.
    pub runtime_ns: u64,
    /// The period.
    pub period_ns: u64,
}

impl Setting {
    /// Each CPU's part of a tolerance. A tolerance of 0 still leaves enough that no task waits
    /// until the watchdog fires.
    pub fn of(tolerance: Tolerance, nr_cpus: u32) -> Self {
        let never = Self {
            runtime_ns: RUNTIME_MIN_NS,
            period_ns: PERIOD_MAX_NS,
        };
        if tolerance.runtime_ns == 0 || tolerance.period_ns == 0 {
            return never;
        }
        // The part of one CPU in a period of a runtime that all CPUs share.
        let all = u128::from(tolerance.period_ns) * u128::from(nr_cpus.max(1));
        let runtime = u128::from(PERIOD_MIN_NS) * u128::from(tolerance.runtime_ns) / all;
        if runtime >= u128::from(RUNTIME_MIN_NS) {
            let runtime_ns = u64::try_from(runtime).unwrap_or(PERIOD_MIN_NS);
            return Self {
                runtime_ns: runtime_ns.min(PERIOD_MIN_NS),
                period_ns: PERIOD_MIN_NS,
            };
        }
        let period = u128::from(RUNTIME_MIN_NS) * all / u128::from(tolerance.runtime_ns);
        Self {
            period_ns: u64::try_from(period).map_or(PERIOD_MAX_NS, |ns| ns.min(PERIOD_MAX_NS)),
            ..never
        }
    }

    /// The writes that lead to `new`, in an order that the kernel accepts: the runtime may never
    /// exceed the period.
    fn steps_to(self, new: Self) -> Vec<(&'static str, u64, u64)> {
        let runtime = ("runtime", self.runtime_ns, new.runtime_ns);
        let period = ("period", self.period_ns, new.period_ns);
        let steps = if new.runtime_ns <= self.period_ns {
            [runtime, period]
        } else {
            [period, runtime]
        };
        steps
            .into_iter()
            .filter(|(_, old, new)| old != new)
            .collect()
    }
}

/// The ext servers of this host's CPUs.
#[derive(Debug)]
pub(crate) struct ExtServer {
    folder: PathBuf,
}

impl ExtServer {
    /// `None`: the kernel has none, or debugfs is not mounted.
    pub fn of_this_host() -> Option<Self> {
        Self::at(Path::new(FOLDER))
    }

    fn at(folder: &Path) -> Option<Self> {
        let there = folder.join("cpu0/runtime").exists();
        there.then(|| Self {
            folder: folder.to_owned(),
        })
    }

    fn cpus(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let folders = entries.flatten().map(|entry| entry.path());
        folders
            .filter(|path| path.join("runtime").exists())
            .collect()
    }

    /// Sets the servers of all CPUs, after recording the old settings in the journal.
    ///
    /// # Errors
    /// When the kernel refuses, because deadline tasks leave too little bandwidth.
    pub fn set(&self, new: Setting, journal: &mut Journal) -> Result<(), ControlError> {
        let mut entries = Vec::new();
        for cpu in self.cpus() {
            let old = Setting {
                runtime_ns: read_ns(&cpu.join("runtime"))?,
                period_ns: read_ns(&cpu.join("period"))?,
            };
            for (file, old, new) in old.steps_to(new) {
                entries.push(Entry::Write {
                    path: cpu.join(file),
                    old: old.to_string(),
                    new: new.to_string(),
                });
            }
        }
        if entries.is_empty() {
            return Ok(());
        }
        journal.record(&entries)?;
        for entry in &entries {
            if let Entry::Write { path, new, .. } = entry {
                write_text(path, new)?;
            }
        }
        Ok(())
    }

    /// Restarts the server of a CPU, which the kernel may have stopped.
    pub fn restart(&self, cpu: u32) -> Result<(), ControlError> {
        let file = self.folder.join(format!("cpu{cpu}/runtime"));
        let runtime = read_text(&file)?;
        Ok(write_text(&file, &runtime)?)
    }
}

fn read_ns(path: &Path) -> Result<u64, ControlError> {
    let text = read_text(path)?;
    let number = text.parse();
    number.map_err(|_| ControlError::NotReady(format!("{}: holds `{text}`", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Setting = Setting {
        runtime_ns: 50_000_000,
        period_ns: 1_000_000_000,
    };

    fn setting(tolerance: &str, nr_cpus: u32) -> (u64, u64) {
        let setting = Setting::of(tolerance.parse().unwrap(), nr_cpus);
        (setting.runtime_ns / 1000, setting.period_ns / 1000)
    }

    #[test]
    fn a_tolerance_is_shared_among_cpus() {
        assert_eq!(setting("1ms/100ms", 1), (200, 20_000));
        assert_eq!(setting("1ms/100ms", 2), (100, 20_000));
        assert_eq!(setting("1ms/100ms", 4), (100, 40_000));
        assert_eq!(setting("1ms/100ms", 64), (100, 640_000));
        assert_eq!(setting("1ms/10s", 64), (100, 4_000_000));
        assert_eq!(setting("1s/10s", 1), (2000, 20_000));
        assert_eq!(setting("1s/1s", 1), (20_000, 20_000));
        assert_eq!(setting("0", 4), (100, 4_000_000));
    }

    #[test]
    fn the_runtime_never_exceeds_the_period() {
        let values = [1, 2, 5, 10].map(|ms: u64| ms * 1_000_000);
        let all: Vec<Setting> = values
            .iter()
            .flat_map(|&period_ns| {
                let runtimes = values.iter().filter(move |&&r| r <= period_ns);
                runtimes.map(move |&runtime_ns| Setting {
                    runtime_ns,
                    period_ns,
                })
            })
            .collect();
        for old in &all {
            for new in &all {
                let mut now = *old;
                for (file, _, value) in old.steps_to(*new) {
                    match file {
                        "runtime" => now.runtime_ns = value,
                        _ => now.period_ns = value,
                    }
                    assert!(now.runtime_ns <= now.period_ns, "{old:?} {new:?}");
                }
                assert_eq!(now, *new);
            }
        }
    }

    fn server(root: &Path) -> ExtServer {
        for cpu in ["cpu0", "cpu1"] {
            fs::create_dir_all(root.join(cpu)).unwrap();
            fs::write(root.join(cpu).join("runtime"), "50000000\n").unwrap();
            fs::write(root.join(cpu).join("period"), "1000000000\n").unwrap();
        }
        ExtServer::at(root).unwrap()
    }

    #[test]
    fn settings_of_servers_are_restored() {
        let root = tempfile::tempdir().unwrap();
        assert!(ExtServer::at(root.path()).is_none());
        let server = server(root.path());
        let header = plimsoll_engine::journal::Header::new("test", "", &Default::default());
        let mut journal = Journal::create(root.path(), &header).unwrap();
        let file = root.path().join("cpu1/runtime");
        // A rewritten regular file keeps the old text behind the new one, unlike a kernel file,
        // so all texts are of one length here.
        let ours = Setting {
            runtime_ns: 10_000_000,
            period_ns: 2_000_000_000,
        };
        server.set(ours, &mut journal).unwrap();
        assert_eq!(read_ns(&file).unwrap(), ours.runtime_ns);
        let (_, entries) = journal.read().unwrap();
        assert_eq!(entries.len(), 4);
        plimsoll_engine::undo::undo_entries(&entries, &mut Default::default());
        assert_eq!(read_ns(&file).unwrap(), DEFAULT.runtime_ns);
    }
}

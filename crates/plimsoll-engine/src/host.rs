//! Capabilities of this host.

use std::path::Path;
use std::sync::Arc;

use nix::unistd::{SysconfVar, geteuid, sysconf};
#[cfg(feature = "simulated")]
use plimsoll_cgroupfs::simulated;
use plimsoll_cgroupfs::{CpuGroup, Hierarchy, Version, os};
use serde::Serialize;

use crate::host_tuning;

/// Capabilities of this host's stock knobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Interface of the cpu controller.
    pub cgroup: Version,
    /// Whether groups can be marked idle (Linux 5.15 and later).
    pub has_idle: bool,
    /// Whether groups can save up unused quota (Linux 5.14 and later).
    pub has_burst: bool,
    /// Whether our groups compete with everything on the machine.
    pub is_top: bool,
    /// Number of CPUs online.
    pub nr_cpus: u32,
    /// Kernel release.
    pub kernel: String,
    pub has_sched_ext: bool,
    /// Whether the guard of the fair class may be attached: this process is root, and the kernel
    /// has BTF. The kernel may refuse it for other reasons, which only the attempt shows.
    pub may_have_guard: bool,
    /// Whether the mode of preemption may be changed: this process is root, our groups compete with
    /// everything on the machine, and the kernel has several modes.
    pub may_tune_host: bool,
    /// Whether the kernel preempts lazily. `None`: it has one mode, or does not tell this process.
    pub is_lazy: Option<bool>,
}

impl Capabilities {
    /// Finds the capabilities; changes nothing.
    pub fn of_this_host(hierarchy: &Arc<Hierarchy>) -> Self {
        let release = nix::sys::utsname::uname()
            .map(|name| name.release().to_string_lossy().into_owned())
            .unwrap_or_default();
        let probe = Probe {
            hierarchy,
            version: kernel_version(&release),
        };
        let is_lazy = host_tuning::is_lazy();
        Self {
            cgroup: hierarchy.version(),
            has_idle: probe.has("cpu.idle", (5, 15)),
            has_burst: match hierarchy.version() {
                Version::V1 => probe.has("cpu.cfs_burst_us", (5, 14)),
                Version::V2 => probe.has("cpu.max.burst", (5, 14)),
            },
            is_top: hierarchy.is_top(),
            nr_cpus: nr_cpus_online(),
            has_sched_ext: Path::new("/sys/kernel/sched_ext").is_dir(),
            may_have_guard: geteuid().is_root() && Self::has_btf(),
            may_tune_host: geteuid().is_root()
                && hierarchy.is_top()
                && hierarchy.is_whole()
                && is_lazy.is_some(),
            is_lazy,
            kernel: release,
        }
    }

    pub fn weight_file(&self) -> &'static str {
        match self.cgroup {
            Version::V1 => "cpu.shares",
            Version::V2 => "cpu.weight",
        }
    }

    pub fn quota_file(&self) -> &'static str {
        match self.cgroup {
            Version::V1 => "cpu.cfs_quota_us",
            Version::V2 => "cpu.max",
        }
    }

    pub fn burst_file(&self) -> &'static str {
        match self.cgroup {
            Version::V1 => "cpu.cfs_burst_us",
            Version::V2 => "cpu.max.burst",
        }
    }

    /// Returns whether the kernel describes its types, which the guard reads.
    pub fn has_btf() -> bool {
        Path::new("/sys/kernel/btf/vmlinux").exists()
    }

    /// Capabilities of a recent kernel with cgroup v2, for tests that touch no kernel.
    #[cfg(any(test, feature = "simulated"))]
    pub fn of_a_stock_kernel() -> Self {
        Self {
            cgroup: Version::V2,
            has_idle: true,
            has_burst: true,
            is_top: true,
            nr_cpus: 2,
            kernel: "6.18.0".into(),
            has_sched_ext: false,
            may_have_guard: true,
            may_tune_host: true,
            is_lazy: Some(true),
        }
    }
}

/// Number of CPUs online on this host now, whatever part of them this process may use.
pub fn nr_cpus_online() -> u32 {
    nr_cpus(SysconfVar::_NPROCESSORS_ONLN)
}

/// Number of CPUs of this host, including those that are offline now.
pub fn nr_cpus_present() -> u32 {
    nr_cpus(SysconfVar::_NPROCESSORS_CONF)
}

fn nr_cpus(which: SysconfVar) -> u32 {
    #[cfg(feature = "simulated")]
    if let Some(nr_cpus) = simulated::ask(|kernel| kernel.nr_cpus) {
        return nr_cpus;
    }
    let count = sysconf(which).ok().flatten();
    let count = count.and_then(|count| u32::try_from(count).ok());
    count.unwrap_or(1).max(1)
}

/// Parses the first two numbers of a kernel's release.
fn kernel_version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

struct Probe<'a> {
    hierarchy: &'a Arc<Hierarchy>,
    version: (u32, u32),
}

impl Probe<'_> {
    /// Returns whether cgroups have a file. Checks an existing cgroup if there is one. On an empty
    /// v2 hierarchy the kernel version decides, because the root has no knobs.
    fn has(&self, file: &str, since: (u32, u32)) -> bool {
        let base = CpuGroup::at(self.hierarchy, self.hierarchy.base());
        if os::exists(&base.cpu_file(file)) {
            return true;
        }
        let children = base.children().unwrap_or_default();
        match children
            .iter()
            .find(|child| os::exists(&child.cpu_file("cpu.max")))
        {
            Some(child) => os::exists(&child.cpu_file(file)),
            None => self.hierarchy.version() == Version::V2 && self.version >= since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_are_read_from_releases() {
        assert_eq!(kernel_version("6.18.44-fc-v669"), (6, 18));
        assert_eq!(kernel_version("5.14.0"), (5, 14));
        assert_eq!(kernel_version("7.2-rc1"), (7, 2));
        assert_eq!(kernel_version(""), (0, 0));
    }
}

//! Support of the kernel for sched_ext schedulers, and the loaded scheduler.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::btf::KernelTypes;
use crate::{SchedExtError, capture};

/// Name of the scheduler in the kernel.
const NAME: &str = "plimsoll";
/// Returns whether this is the name of Plimsoll's scheduler, to which libraries may append a
/// version.
pub(crate) fn is_ours(scheduler: &str) -> bool {
    let rest = scheduler.strip_prefix(NAME);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Longest time that the removal of a scheduler takes.
const GOING_MAX: Duration = Duration::from_secs(10);
/// Interval of checks whether the scheduler is gone.
const GOING_INTERVAL: Duration = Duration::from_millis(10);

/// Functions of the kernel that the scheduler probes if they are there: waits for futexes.
pub(crate) const PROBED: &[&str] = &["futex_do_wait", "futex_wake_mark"];

pub(crate) const ENQUEUE_FLAGS: &str = "scx_enq_flags";

/// The kernel's enums of 64 bits of which the scheduler has enumerators.
const LONG_ENUMS: [&str; 2] = ["scx_dsq_id_flags", ENQUEUE_FLAGS];

/// Members of the kernel's structs that the scheduler needs and not every kernel with sched_ext has.
const NEEDED_MEMBERS: [(&str, &str); 2] = [
    // Linux 6.17, with CONFIG_EXT_GROUP_SCHED.
    ("sched_ext_ops", "cgroup_set_bandwidth"),
    // Tells whether a task is inside of a system call.
    ("pt_regs", "orig_ax"),
];
/// Functions of the same kind.
const NEEDED_FUNCTIONS: [&str; 2] = [
    "bpf_task_from_vpid",
    // Not called, but as old as Linux 6.18. Earlier a BPF program itself disables the migration of
    // its task, and the scheduler would take each for bound to its CPU.
    "scx_bpf_cpu_curr",
];

/// Files in which a kernel shows its sched_ext and its types.
#[derive(Clone, Debug)]
pub struct SchedExtKernel {
    sched_ext: PathBuf,
    btf: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedExtState {
    Disabled,
    /// A scheduler is being loaded or unloaded.
    Changing,
    Enabled,
}

impl SchedExtKernel {
    pub fn host() -> Self {
        Self::at(Path::new("/sys/kernel"))
    }

    /// The host's kernel with another folder for `/sys/kernel`.
    fn at(root: &Path) -> Self {
        Self {
            sched_ext: root.join("sched_ext"),
            btf: root.join("btf/vmlinux"),
        }
    }

    /// Fails unless a scheduler could be attached now.
    pub(crate) fn require_free(&self) -> Result<(), SchedExtError> {
        match (self.scheduler()?, self.state()?) {
            (None, SchedExtState::Disabled) => Ok(()),
            (name, _) => Err(SchedExtError::OtherScheduler(
                name.unwrap_or_else(|| "it is coming or going".into()),
            )),
        }
    }

    /// Waits until a removed scheduler of Plimsoll is gone, which the kernel does after its last
    /// pin was removed.
    ///
    /// # Errors
    ///
    /// When it does not go, or another one is loaded.
    pub(crate) fn wait_until_free(&self) -> Result<(), SchedExtError> {
        let deadline = Instant::now() + GOING_MAX;
        loop {
            match self.require_free() {
                Err(SchedExtError::OtherScheduler(name))
                    if (is_ours(&name) || self.state()? == SchedExtState::Changing)
                        && Instant::now() < deadline =>
                {
                    thread::sleep(GOING_INTERVAL);
                }
                other => return other,
            }
        }
    }

    /// The kernel's types, as libbpf needs them, with all that the scheduler needs. Reading them takes
    /// some milliseconds.
    pub(crate) fn types(&self) -> Result<KernelTypes, SchedExtError> {
        if !self.btf.exists() {
            return Err(SchedExtError::NoBtf(self.btf.clone()));
        }
        capture::silence();
        let types = KernelTypes::read(&self.btf).map_err(SchedExtError::Btf)?;
        let is_short = |name: &&&str| !types.has_full_enumerators(name);
        if let Some(name) = LONG_ENUMS.iter().find(is_short) {
            return Err(SchedExtError::ShortEnumerators(name));
        }
        match missing_need(&types) {
            Some(missing) => Err(SchedExtError::SchedExtLacks(missing)),
            None => Ok(types),
        }
    }

    /// Sequence number of CPU hotplug: the kernel refuses a scheduler that was configured for
    /// another set of CPUs.
    pub(crate) fn hotplug_seq(&self) -> Result<u64, SchedExtError> {
        let (path, text) = self.read("hotplug_seq")?;
        text.parse()
            .map_err(|_| SchedExtError::Parse { path, text })
    }

    /// # Errors
    /// [`SchedExtError::NoSchedExt`] if no scheduler can be loaded at all.
    pub(crate) fn state(&self) -> Result<SchedExtState, SchedExtError> {
        let (path, text) = self.read("state")?;
        match text.as_str() {
            "disabled" => Ok(SchedExtState::Disabled),
            "enabled" => Ok(SchedExtState::Enabled),
            "enabling" | "disabling" => Ok(SchedExtState::Changing),
            _ => Err(SchedExtError::Parse { path, text }),
        }
    }

    /// Reads the name of the loaded scheduler. The folder `root` exists only while one is loaded.
    pub(crate) fn scheduler(&self) -> Result<Option<String>, SchedExtError> {
        match self.read("root/ops") {
            Ok((_, name)) => Ok(Some(name)),
            Err(SchedExtError::NoSchedExt) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A file's path and its text; a missing one means that there is no
    /// sched_ext.
    fn read(&self, file: &str) -> Result<(PathBuf, String), SchedExtError> {
        let path = self.sched_ext.join(file);
        match fs::read_to_string(&path) {
            Ok(text) => Ok((path, text.trim().to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(SchedExtError::NoSchedExt),
            Err(source) => Err(SchedExtError::Read { path, source }),
        }
    }
}

/// Something that the scheduler needs and a kernel lacks.
fn missing_need(types: &KernelTypes) -> Option<String> {
    let mut members = NEEDED_MEMBERS.iter();
    let member = members.find(|(of, member)| !types.has_member(of, member));
    let function = || {
        NEEDED_FUNCTIONS
            .iter()
            .find(|name| !types.has_function(name))
    };
    let member = member.map(|(of, member)| format!("{of}.{member}"));
    member.or_else(|| Some(format!("{}()", function()?)))
}

/// The probed functions that a kernel lacks.
pub(crate) fn missing_ops(types: &KernelTypes) -> Vec<&'static str> {
    let is_missing = |name: &&&str| !types.has_function(name);
    PROBED.iter().filter(is_missing).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::example::Example;

    fn kernel(files: &[(&str, &str)]) -> (tempfile::TempDir, SchedExtKernel) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let kernel = SchedExtKernel::at(root.path());
        (root, kernel)
    }

    #[test]
    fn a_kernel_without_sched_ext_or_btf_is_refused() {
        let (_root, bare) = kernel(&[]);
        assert!(matches!(bare.state(), Err(SchedExtError::NoSchedExt)));
        let (_root, no_btf) = kernel(&[("sched_ext/state", "disabled\n")]);
        assert!(matches!(no_btf.types(), Err(SchedExtError::NoBtf(_))));
    }

    #[test]
    fn types_that_are_not_understood_are_an_error() {
        let (_root, kernel) = kernel(&[("sched_ext/state", "disabled\n"), ("btf/vmlinux", "?")]);
        assert!(matches!(kernel.types(), Err(SchedExtError::Btf(_))));
    }

    /// Types with all that loading needs.
    fn full_types() -> Example {
        types_without("")
    }

    fn types_without(need: &str) -> Example {
        let enums = LONG_ENUMS.iter();
        let types = enums.fold(Example::default(), |types, name| types.full(name));
        let members = NEEDED_MEMBERS.iter().filter(|(_, member)| *member != need);
        let types = members.fold(types, |types, (of, member)| types.member(of, member));
        let functions = NEEDED_FUNCTIONS.iter().filter(|name| **name != need);
        functions.fold(types, |types, name| types.function(name))
    }

    #[test]
    fn a_kernel_whose_sched_ext_lacks_something_is_refused_by_its_name() {
        let (root, kernel) = kernel(&[("sched_ext/state", "disabled\n"), ("btf/vmlinux", "")]);
        for (need, named) in [
            (
                "cgroup_set_bandwidth",
                "sched_ext_ops.cgroup_set_bandwidth;",
            ),
            ("scx_bpf_cpu_curr", "scx_bpf_cpu_curr();"),
        ] {
            let types = types_without(need);
            fs::write(root.path().join("btf/vmlinux"), types.bytes()).unwrap();
            let message = kernel.types().err().unwrap().to_string();
            assert!(message.contains(named), "{message}");
        }
    }

    #[test]
    fn types_without_long_enumerators_are_an_error() {
        let (root, kernel) = kernel(&[("sched_ext/state", "disabled\n"), ("btf/vmlinux", "")]);
        let types = Example::default().full(LONG_ENUMS[0]).halved(LONG_ENUMS[1]);
        fs::write(root.path().join("btf/vmlinux"), types.bytes()).unwrap();
        let message = kernel.types().err().unwrap().to_string();
        assert!(message.contains("scx_enq_flags"), "{message}");
    }

    #[test]
    fn missing_functions_are_named() {
        let (root, kernel) = kernel(&[("sched_ext/state", "disabled\n"), ("btf/vmlinux", "")]);
        let types = full_types().function("futex_do_wait");
        fs::write(root.path().join("btf/vmlinux"), types.bytes()).unwrap();
        assert_eq!(missing_ops(&kernel.types().unwrap()), ["futex_wake_mark"]);
    }

    #[test]
    fn the_state_is_read() {
        for (text, state) in [
            ("disabled\n", SchedExtState::Disabled),
            ("enabling\n", SchedExtState::Changing),
            ("enabled\n", SchedExtState::Enabled),
        ] {
            let (_root, kernel) = kernel(&[("sched_ext/state", text)]);
            assert_eq!(kernel.state().unwrap(), state);
        }
        let (_root, kernel) = kernel(&[("sched_ext/state", "melted\n")]);
        let message = kernel.state().unwrap_err().to_string();
        assert!(message.contains("\"melted\""), "{message}");
    }

    #[test]
    fn the_loaded_scheduler_is_named() {
        let (_root, free) = kernel(&[("sched_ext/state", "disabled\n")]);
        assert_eq!(free.scheduler().unwrap(), None);
        let ops = ("sched_ext/root/ops", "lavd_1.1.4\n");
        let (_root, busy) = kernel(&[ops, ("sched_ext/hotplug_seq", "17\n")]);
        assert_eq!(busy.scheduler().unwrap().as_deref(), Some("lavd_1.1.4"));
        assert_eq!(busy.hotplug_seq().unwrap(), 17);
    }
}

//! Brings the BPF scheduler into the kernel and takes it out again.

use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, ProgramMut};

use crate::kernel::{ENQUEUE_FLAGS, missing_ops};
use crate::pins::{LINK, PROBE_LINKS};
use crate::skel::{BpfSkel, BpfSkelBuilder, OpenBpfSkel};
use crate::{SchedExtError, SchedExtKernel, capture};

/// Size of the kernel's dump.
const DUMP_BYTES: u32 = 32 * 1024;

/// A BPF scheduler that is in the kernel. Dropping it takes it out.
pub struct Scheduler {
    /// The scheduler schedules while this lives. Declared before `skel`, and so dropped first.
    link: Option<Link>,
    /// The links of the scheduler's probes, with the names of their pins.
    probes: Vec<(&'static str, Link)>,
    pub skel: BpfSkel<'static>,
    /// Whether the kernel has the functions that the probes of futexes need: the scheduler runs
    /// without them, too.
    probes_futexes: bool,
}

impl Scheduler {
    /// Opens the scheduler, lets `configure` set its read-only data, the sizes
    /// of its maps and its flags, and has the kernel verify it. It does not
    /// schedule anything before [`Scheduler::attach`].
    ///
    /// # Errors
    /// If the kernel lacks what loading needs, or refuses the scheduler; and the errors of
    /// `configure`.
    pub fn load(
        kernel: &SchedExtKernel,
        configure: impl FnOnce(&mut OpenBpfSkel<'static>) -> libbpf_rs::Result<()>,
    ) -> Result<Self, SchedExtError> {
        let types = kernel.types()?;
        capture::start();
        let mut skel = open()?;
        let ops = skel.struct_ops.plimsoll_ops_mut();
        ops.hotplug_seq = kernel.hotplug_seq()?;
        if types.has_enumerator(ENQUEUE_FLAGS, "SCX_ENQ_IMMED") {
            ops.cpu_release = std::ptr::null_mut();
        }
        configure(&mut skel).map_err(failed("configure"))?;
        let probes_futexes = missing_ops(&types).is_empty();
        if !probes_futexes {
            drop_probes(&mut skel);
        }
        set_dump_size(&mut skel).map_err(failed("configure"))?;
        Ok(Self {
            link: None,
            probes: Vec::new(),
            skel: skel.load().map_err(failed("load"))?,
            probes_futexes,
        })
    }

    /// Lets the scheduler schedule. If its init fails, the kernel reports success all the same; by
    /// then the scheduler has exited.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn attach(&mut self) -> Result<(), SchedExtError> {
        capture::start();
        let ops = &mut self.skel.maps.plimsoll_ops;
        self.link = Some(ops.attach_struct_ops().map_err(failed("attach"))?);
        self.attach_probes()
    }

    /// Attaches the probes of locks, the probes at the end of a wait first. The probes of futexes
    /// need the function tracer, which a kernel may lack.
    fn attach_probes(&mut self) -> Result<(), SchedExtError> {
        let progs = &self.skel.progs;
        let of_kernel = [&progs.plimsoll_wait_ends, &progs.plimsoll_wait_begins];
        let of_futexes = [
            &progs.plimsoll_futex_wakes,
            &progs.plimsoll_futex_ends,
            &progs.plimsoll_futex_begins,
        ];
        let attach = |probes: &[&ProgramMut<'_>]| -> libbpf_rs::Result<Vec<Link>> {
            probes.iter().map(|probe| probe.attach()).collect()
        };
        let mut links = attach(&of_kernel).map_err(failed("attach"))?;
        // A kernel may have them and refuse the probes all the same.
        if self.probes_futexes
            && let Ok(attached) = attach(&of_futexes)
        {
            links.extend(attached);
        }
        self.probes = PROBE_LINKS.into_iter().zip(links).collect();
        Ok(())
    }

    /// Pins the links, so that the scheduler goes on when this is dropped and when this process
    /// ends. The link of the scheduler itself comes last.
    pub(crate) fn pin_links(&mut self, folder: &Path) -> Result<(), SchedExtError> {
        let probes = self.probes.iter_mut().map(|(name, link)| (*name, link));
        for (name, link) in probes.chain(self.link.as_mut().map(|link| (LINK, link))) {
            let path = folder.join(name);
            link.pin(&path)
                .map_err(|source| SchedExtError::Pin { path, source })?;
        }
        Ok(())
    }
}

pub(crate) fn open() -> Result<OpenBpfSkel<'static>, SchedExtError> {
    // A skeleton borrows the place of its object. That place is a pointer's
    // size, and is given away with each scheduler.
    let object = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut skel = BpfSkelBuilder::default()
        .open(object)
        .map_err(failed("open"))?;
    // The probe is needed for kernels before 6.18 only, and would require the function tracer.
    skel.progs.scx_lib_init_probe.set_autoload(false);
    Ok(skel)
}

/// Does without the probes of futexes, all of which are needed for one.
fn drop_probes(skel: &mut OpenBpfSkel<'static>) {
    let progs = &mut skel.progs;
    progs.plimsoll_futex_begins.set_autoload(false);
    progs.plimsoll_futex_ends.set_autoload(false);
    progs.plimsoll_futex_wakes.set_autoload(false);
}

/// Makes room for the kernel's dump, which is as large as the scheduler asks for.
fn set_dump_size(skel: &mut OpenBpfSkel<'static>) -> libbpf_rs::Result<()> {
    skel.struct_ops.plimsoll_ops_mut().exit_dump_len = DUMP_BYTES;
    if let Some(rodata) = skel.maps.rodata_data.as_deref_mut() {
        rodata.uei_dump_len = DUMP_BYTES;
    }
    skel.maps.data_uei_dump.set_value_size(DUMP_BYTES)
}

/// An error of libbpf's, with the reason that was printed since the step began.
fn failed(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> SchedExtError {
    move |source| SchedExtError::Libbpf {
        step,
        source,
        reason: capture::reason(&capture::take()).map(str::to_owned),
    }
}

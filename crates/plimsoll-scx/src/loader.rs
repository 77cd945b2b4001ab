//! Brings the BPF scheduler into the kernel and takes it out again.

use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags};

use crate::btf::import_enumerators;
use crate::kernel::{missing_ops, with_optional_ops};
use crate::skel::{BpfSkel, BpfSkelBuilder, OpenBpfSkel};
use crate::{ControlError, Error, ExitReport, Kernel, capture, objects};

/// Default size of the kernel's dump.
const DUMP_BYTES: u32 = 32 * 1024;

/// A BPF scheduler that is in the kernel. Dropping it takes it out.
pub struct Scheduler {
    /// While it lives the scheduler schedules. Before `skel`: dropped first.
    link: Option<Link>,
    skel: BpfSkel<'static>,
    kernel: Kernel,
    dropped_ops: Vec<&'static str>,
}

impl Scheduler {
    /// Opens the scheduler, lets `configure` set its read-only data, the sizes
    /// of its maps and its flags, and has the kernel verify it. It does not
    /// schedule anything before [`Scheduler::attach`].
    ///
    /// # Errors
    ///
    /// If the kernel has no sched_ext, runs another scheduler, or refuses this
    /// one; and what `configure` returns.
    pub fn load(
        kernel: &Kernel,
        configure: impl FnOnce(&mut OpenBpfSkel<'static>) -> libbpf_rs::Result<()>,
    ) -> Result<Self, Error> {
        kernel.require_free()?;
        let types = kernel.types()?;
        capture::start();
        let mut skel = open()?;
        import_enumerators(&mut skel, &types)?;
        skel.struct_ops.plimsoll_ops_mut().hotplug_seq = kernel.hotplug_seq()?;
        configure(&mut skel).map_err(failed("configure"))?;
        let dropped_ops = drop_ops(&mut skel, &missing_ops(&types));
        set_dump_size(&mut skel).map_err(failed("configure"))?;
        Ok(Self {
            link: None,
            skel: skel.load().map_err(failed("load"))?,
            kernel: kernel.clone(),
            dropped_ops,
        })
    }

    /// Lets the scheduler schedule.
    ///
    /// # Errors
    ///
    /// If another scheduler was attached first, or the kernel refuses this one.
    pub fn attach(&mut self) -> Result<(), Error> {
        self.kernel.require_free()?;
        capture::start();
        let ops = &mut self.skel.maps.plimsoll_ops;
        self.link = Some(ops.attach_struct_ops().map_err(failed("attach"))?);
        // If the scheduler's init fails, the kernel reports success all the
        // same. By then the scheduler has exited.
        match self.exited() {
            None => Ok(()),
            Some(report) => {
                self.link = None;
                Err(Error::ThrownOut(Box::new(report)))
            }
        }
    }

    /// Removes the scheduler from the kernel and returns how it ended. Its maps can still be read.
    pub fn detach(&mut self) -> Option<ExitReport> {
        // The kernel has called the scheduler's exit before this returns.
        self.link = None;
        self.exited()
    }

    /// Exit report of a scheduler that the kernel has thrown out or that was detached; `None`
    /// while it runs. Cheap while it runs.
    pub fn exited(&self) -> Option<ExitReport> {
        let uei = &self.skel.maps.data_data.as_deref()?.uei;
        // SAFETY: a reference is valid and aligned.
        let report = unsafe { ExitReport::of(uei) }?;
        let dump = self
            .skel
            .maps
            .data_uei_dump
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        // A report without a dump is better than none.
        Some(report.with_dump(&dump.ok().flatten().unwrap_or_default()))
    }

    /// Pins the link, so that the scheduler goes on when this is dropped and
    /// when this process ends.
    pub(crate) fn pin_link(&mut self, folder: &Path) -> Result<(), ControlError> {
        // Attached by now.
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        let path = folder.join(objects::LINK);
        link.pin(&path)
            .map_err(|source| ControlError::Pin { path, source })
    }

    /// The optional callbacks that the kernel lacks and the scheduler has: it
    /// runs without them.
    pub fn dropped_ops(&self) -> &[&'static str] {
        &self.dropped_ops
    }

    /// Its maps, data and programs.
    pub fn skel(&self) -> &BpfSkel<'static> {
        &self.skel
    }

    /// Its maps, data and programs, to be changed.
    pub fn skel_mut(&mut self) -> &mut BpfSkel<'static> {
        &mut self.skel
    }
}

pub(crate) fn open() -> Result<OpenBpfSkel<'static>, Error> {
    // A skeleton borrows the place of its object. That place is a pointer's
    // size, and is given away with each scheduler.
    let object = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut skel = BpfSkelBuilder::default()
        .open(object)
        .map_err(failed("open"))?;
    // It is needed for kernels before 6.18 only, and would require the function tracer.
    skel.progs.scx_lib_init_probe.set_autoload(false);
    Ok(skel)
}

/// Removes the callbacks that the kernel lacks, because libbpf refuses to load a scheduler that
/// has them. Returns the removed ones.
fn drop_ops(skel: &mut OpenBpfSkel<'static>, missing: &[&'static str]) -> Vec<&'static str> {
    let ops = skel.struct_ops.plimsoll_ops_mut();
    let mut dropped = Vec::new();
    macro_rules! drop_missing {
        ($($op:ident)*) => { $(
            if missing.contains(&stringify!($op)) && !ops.$op.is_null() {
                ops.$op = ptr::null_mut();
                dropped.push(stringify!($op));
            }
        )* };
    }
    with_optional_ops!(drop_missing!());
    dropped
}

/// The kernel's dump is as large as the scheduler asks for.
fn set_dump_size(skel: &mut OpenBpfSkel<'static>) -> libbpf_rs::Result<()> {
    let ops = skel.struct_ops.plimsoll_ops_mut();
    if ops.exit_dump_len == 0 {
        ops.exit_dump_len = DUMP_BYTES;
    }
    let bytes = ops.exit_dump_len;
    if let Some(rodata) = skel.maps.rodata_data.as_deref_mut() {
        rodata.uei_dump_len = bytes;
    }
    skel.maps.data_uei_dump.set_value_size(bytes)
}

/// An error of libbpf's, with what was printed since the step began.
fn failed(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
    move |source| {
        let log = capture::take();
        Error::Libbpf {
            step,
            source,
            reason: capture::reason(&log).map(str::to_owned),
            log,
        }
    }
}

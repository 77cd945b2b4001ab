//! Start, work, stop and death of owners.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use plimsoll_cgroupfs::os;
use plimsoll_cgroupfs::simulated::{self, Killed, MOUNT, Write};
use plimsoll_daemon::log::{Log, Priority};
use plimsoll_daemon::service::{Options, Service};
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::undo::UndoReport;

use super::promise::Promise;
use super::wanted::{CONFIGS, GOOD, Wanted};
use super::{FOREIGN, Kept, World};
use crate::shadow::is_own;
use crate::stock::{self, CONFIG, RUNTIME};

/// Bound of the delay of a retry.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Least time between two turns of an owner, as its queue of writes rests: the headroom loop causes
/// events all the time.
const TURN_MIN: Duration = Duration::from_millis(250);

impl World {
    /// Injects a fault into the owner's next actions.
    pub(super) fn risk(&mut self) {
        let after = self.chance.below(40);
        let write = if self.chance.once_in(2) {
            Write::Kernel
        } else {
            Write::Disk
        };
        let errors = [Errno::EINVAL, Errno::EBUSY, Errno::ENOMEM, Errno::EIO];
        let number = self.chance.pick(&errors).map(|errno| errno as i32);
        let kind = self.chance.below(12);
        simulated::with(|kernel| match kind {
            0 | 1 => kernel.faults.death_in = Some(after),
            2 => {
                kernel.faults.death_in = Some(after);
                kernel.faults.is_panic = true;
            }
            3 => kernel.faults.refusal_in = number.map(|number| (write, after, number)),
            4 => kernel.faults.disk_is_full = true,
            _ => (),
        });
        // An entry may be missing from the journal, or a value not put back.
        self.is_half_done |= kind < 5;
        self.is_stale |= kind == 3 || kind == 4;
        if !self.is_calm && self.chance.once_in(4) {
            let path = self.chance.pick(&FOREIGN);
            let after = self.chance.below(60);
            simulated::with(|kernel| kernel.faults.remade_in = path.map(|path| (after, path)));
        }
    }

    /// Lets the owner, or one that starts, do something after which `next` may be wanted. Returns
    /// `None` if it dies.
    pub(super) fn guarded<R>(
        &mut self,
        next: &Wanted,
        act: impl FnOnce(&mut Option<Service>) -> R,
    ) -> Option<R> {
        let (before, after) = (self.wanted.groups(), next.groups());
        // A command may turn out to have ended, or its group, which a full disk left without its
        // processes.
        let demands = [&self.wanted, next].map(|wanted| {
            let may_end = |name: &str| self.is_stale || !self.has_members(name);
            let running = wanted.without_commands(may_end);
            [wanted.demands_headroom(), running.demands_headroom()]
        });
        let mut demands = demands.iter().flatten();
        let is_steady = demands.all(|demand| *demand == self.had_demand);
        let mut promises = BTreeMap::new();
        for (name, kept) in &self.kept {
            let both = before.get(name).zip(after.get(name));
            if let (Some(promise), Some((before, after))) = (kept.promise, both) {
                let promise = match before == after {
                    true => promise,
                    false => promise.weaker(Promise::of(after, false)),
                };
                let promise = if is_steady {
                    promise
                } else {
                    promise.without_headroom()
                };
                promises.insert(name.clone(), promise);
            }
        }
        self.movable.extend(self.members.keys());
        let leaves = self
            .movable
            .iter()
            .flat_map(|pid| self.tree_of(*pid))
            .collect();
        self.watch(&promises, &leaves);
        // Also where the owner dies half-way.
        for (name, kept) in &mut self.kept {
            kept.promise = promises.get(name).copied();
        }
        let mut owner = self.owner.take();
        let done = catch_unwind(AssertUnwindSafe(|| act(&mut owner)));
        let answer = match done {
            Ok(answer) => {
                self.owner = owner;
                Some(answer)
            }
            Err(payload) if payload.is::<Killed>() => {
                self.counts.note("deaths within");
                if simulated::with(|kernel| kernel.faults.is_panic) {
                    self.counts.note("panics");
                }
                self.tell(|| "the owner dies".to_owned());
                // No undo in any `drop`, be it dead or panicking.
                drop(owner);
                self.is_half_done = true;
                None
            }
            Err(payload) => resume_unwind(payload),
        };
        simulated::with(|kernel| {
            kernel.revive();
            kernel.handles.clear();
        });
        self.note_remade();
        answer
    }

    /// Kills the owner, or starts the next one.
    pub(super) fn die(&mut self) {
        if self.owner.is_none() {
            return self.start();
        }
        self.tell(|| "the owner is killed".to_owned());
        self.counts.note("deaths");
        let wanted = self.wanted.clone();
        let was_half_done = self.is_half_done;
        simulated::with(|kernel| kernel.faults.death_in = Some(0));
        // The first write of a killed owner is its last.
        let ended = self.guarded(&wanted, |owner| {
            let _dies = owner.take();
            let _ = os::create_folder(&Path::new(MOUNT).join("never"));
        });
        assert!(ended.is_none());
        // It was between two turns.
        self.is_half_done = was_half_done;
        self.read_requests(&wanted);
        self.check_now();
    }

    /// Starts an owner, which takes over the groups that an earlier one has left.
    pub(super) fn start(&mut self) {
        if self.config == Some(GOOD) {
            self.refuse_to_start();
            self.config = Some(0);
        }
        self.write_config();
        self.risk();
        self.try_start();
    }

    /// Checks that an owner with a mistake in its file changes nothing.
    fn refuse_to_start(&mut self) {
        self.write_config();
        let before = simulated::with(|kernel| kernel.nr_kernel_writes());
        let started = Service::start(self.options());
        assert!(started.is_err(), "a mistake is not noticed");
        let after = simulated::with(|kernel| kernel.nr_kernel_writes());
        assert_eq!(after, before, "after a mistake");
        self.check_now();
    }

    fn options(&mut self) -> Options {
        let requests = self.requests_on_disk().unwrap_or_default();
        let has_left_file = requests.contains(CONFIG);
        self.is_on_demand = self.config.is_none() || (has_left_file && self.chance.once_in(4));
        let log = match self.is_traced {
            true => Log::new(Priority::Debug),
            false => Log::silent(),
        };
        stock::options(self.version, !self.is_on_demand, log, None)
    }

    pub(super) fn write_config(&mut self) {
        let text = self.config.map(|config| CONFIGS[config].text());
        simulated::with(|kernel| {
            if let Some(text) = text {
                kernel.disk().others_write(Path::new(CONFIG), &text);
            }
        });
    }

    fn try_start(&mut self) {
        let are_in_force = |kept: &BTreeMap<String, Kept>| {
            let mut kept = kept.values();
            // A refused group is tried again at each start.
            kept.len() > 0 && kept.all(|kept| kept.promise.is_some() && !kept.is_refused())
        };
        let is_quiet = !self.is_half_done && !self.is_disturbed && are_in_force(&self.kept);
        let before = simulated::with(|kernel| kernel.nr_kernel_writes());
        let names: Vec<String> = self.kept.keys().cloned().collect();
        let (places, nr_remade) = (self.task_places(), self.counts.of("remade within"));
        let cgroups = self.cgroups();
        let with_config = |wanted: &Wanted, config| Wanted {
            config,
            ..wanted.clone()
        };
        let next = with_config(&self.wanted, self.config);
        let is_same = next == self.wanted;
        let options = self.options();
        // It may start although it cannot write all that it should.
        let lacks_writes = simulated::with(|kernel| {
            kernel.faults.disk_is_full || kernel.faults.refusal_in.is_some()
        });
        self.tell(|| "an owner starts".to_owned());
        let started = self.guarded(&next, |owner| {
            Service::start(options)
                .map(|service| *owner = Some(service))
                .map_err(|error| error.to_string())
        });
        self.tell(|| format!("an owner starts: {started:?}"));
        self.wanted = next;
        if !matches!(started, Some(Ok(()))) {
            let wanted = self.wanted.clone();
            self.read_requests(&wanted);
            return;
        }
        let writes = simulated::with(|kernel| kernel.nr_kernel_writes()) - before;
        self.is_half_done = lacks_writes;
        self.observe();
        let is_plain = |knobs: &Knobs| knobs.soft_cap.is_none() && knobs.nice.is_none();
        let groups = self.wanted.groups();
        if is_quiet
            && is_same
            && self.owner.is_some()
            && groups.values().all(is_plain)
            && self.kept.keys().eq(&names)
            && self.task_places() == places
            // An empty cgroup of a group that was rebuilt may be left.
            && self.cgroups() == cgroups
            && self.counts.of("remade within") == nr_remade
            && are_in_force(&self.kept)
        {
            assert_eq!(writes, 0, "the same values are written again");
            self.counts.note("adopted without a write");
        }
    }

    /// The cgroup of each process.
    fn task_places(&self) -> Vec<(i32, PathBuf)> {
        simulated::with(|kernel| {
            let tasks = kernel.tasks().iter();
            tasks
                .map(|(pid, task)| (pid, task.cgroup.clone()))
                .collect()
        })
    }

    pub(super) fn pass_time(&mut self) {
        let longest = if self.chance.once_in(5) { 3_000 } else { 300 };
        let time = Duration::from_millis(self.chance.below(longest));
        let busy = self.chance.pick(&self.cgroups());
        simulated::with(|kernel| {
            kernel.pass(time);
            if let Some(path) = busy {
                kernel.cgroups().use_cpu(&path, 80_000);
            }
        });
        self.tell(|| "time passes".to_owned());
        if self.owner.is_some() {
            self.risk();
        }
        let wanted = self.wanted.clone();
        self.turn(None, None, &wanted);
        self.observe();
    }

    /// Lets the owner work for some time without faults: then all that can be in force is.
    pub(super) fn be_quiet(&mut self) {
        if self.owner.is_none() {
            self.write_config();
            if self.config == Some(GOOD) {
                return;
            }
            self.try_start();
        }
        self.tell(|| "all is quiet for a while".to_owned());
        self.sleep_and_wake(RETRY_MAX + Duration::from_secs(2));
        if self.is_calm && self.owner.is_some() {
            let places = self.task_places();
            let is_empty = |path: &PathBuf| !places.iter().any(|(_, at)| at.starts_with(path));
            // One that could not be removed is no group any more.
            let is_group = |path: &PathBuf| {
                let name = path.file_name().and_then(|name| name.to_str());
                is_own(path) && name.is_some_and(|name| self.kept.contains_key(name))
            };
            let mut groups = self.cgroups().into_iter().filter(is_group);
            let ended = groups.find(is_empty);
            assert!(ended.is_none(), "{ended:?} has no process");
        }
        if self.wanted.config().enforces() {
            self.kept
                .values_mut()
                .for_each(|kept| kept.is_respected = false);
        }
        if self.owner.is_some() {
            (self.is_stale, self.is_half_done) = (false, false);
        }
        self.observe();
        if self.is_calm && self.owner.is_some() {
            let mut failing = self.kept.iter().filter(|(_, kept)| kept.promise.is_none());
            let odd = failing.find(|(_, kept)| !kept.is_refused());
            assert!(odd.is_none(), "{odd:?} is not in force");
            simulated::with(|kernel| {
                let watched: Vec<u64> = kernel.events().watched_files().collect();
                let cgroups = kernel.cgroups();
                let present: Vec<u64> =
                    cgroups.paths().filter_map(|it| cgroups.inode(it)).collect();
                let is_gone = |inode: &&u64| !present.contains(inode);
                assert_eq!(watched.iter().find(is_gone), None, "a watch is left");
            });
        }
    }

    /// Lets time pass for an owner that is awake only when it has asked for it, or for an event.
    fn sleep_and_wake(&mut self, time: Duration) {
        // Dying processes leave their cgroups, and cause events.
        simulated::with(|kernel| kernel.pass(TURN_MIN));
        let mut left = time;
        while !left.is_zero() {
            let now = os::now();
            let due = self.owner.as_ref().and_then(|owner| owner.due(now));
            let sleep = due.map_or(left, |due| due.saturating_duration_since(now).min(left));
            let is_ready = simulated::with(|kernel| kernel.events().is_ready());
            let passing = if is_ready {
                TURN_MIN
            } else {
                sleep.max(TURN_MIN)
            };
            let is_woken = is_ready || sleep < left;
            left = left.saturating_sub(passing);
            simulated::with(|kernel| kernel.pass(passing));
            if !is_woken {
                return;
            }
            let wanted = self.wanted.clone();
            self.turn(None, None, &wanted);
        }
    }

    pub(super) fn boot_or_stop(&mut self) {
        if self.chance.once_in(2) {
            return self.stop();
        }
        self.tell(|| "boot".to_owned());
        self.counts.note("boots");
        if self.owner.is_some() {
            self.die();
        }
        simulated::with(|kernel| {
            kernel.boot();
            // The runtime folder is on a disk in memory; a journal may be elsewhere.
            kernel
                .disk()
                .forget(&Path::new(RUNTIME).join("requested.json"));
        });
        self.wanted = Wanted::default();
        self.kept.clear();
        self.members.clear();
        self.movable.clear();
        self.has_strays = false;
        self.furnish();
        self.is_disturbed = false;
        self.config = self.config.map(|_| 0);
        self.start();
        // Nothing in a journal of the boot before belongs to anybody now.
        let differences = self.shadow.differences();
        assert!(differences.is_empty(), "after a boot: {differences:?}");
    }

    /// Stops the owner cleanly, and checks that all is as others have left it.
    pub fn stop(&mut self) {
        let mut tries = 0;
        while self.owner.is_none() || (self.is_on_demand && self.config.is_some()) {
            tries += 1;
            assert!(tries < 100, "no owner can be started any more");
            self.die();
        }
        if self.config.is_none() {
            // An owner without a file leaves the groups of its clients.
            self.end_all_requests();
        }
        self.tell(|| "stop".to_owned());
        self.kept.clear();
        let wanted = self.wanted.clone();
        let report = self.guarded(&wanted, |owner| {
            let mut service = owner.take().expect("it was started");
            service.handle().stop();
            service.turn();
            assert!(service.is_ending());
            service.end()
        });
        let report = report.unwrap_or_default();
        self.counts.note("stops");
        self.tell(|| format!("stopped: {report:?}"));
        self.check_undone(&report);
        self.is_disturbed = false;
        self.start();
    }

    fn check_undone(&mut self, report: &UndoReport) {
        let own: Vec<PathBuf> = self
            .cgroups()
            .into_iter()
            .filter(|path| is_own(path))
            .collect();
        let differences = self.shadow.differences();
        let files: Vec<PathBuf> = simulated::with(|kernel| {
            let mut files = kernel.disk().paths();
            let kept = [
                Path::new(CONFIG),
                &Path::new(RUNTIME).join("requested.json"),
            ];
            files.retain(|path| !kept.contains(&path.as_path()));
            files
        });
        let reniced: Vec<(i32, i32)> = simulated::with(|kernel| {
            let tasks = kernel.tasks().iter().map(|(pid, task)| (pid, task.nice));
            let reniced: Vec<_> = tasks.filter(|(_, nice)| *nice != 0).collect();
            for (pid, _) in &reniced {
                let _ = kernel.tasks().set_nice(*pid, 0);
            }
            reniced
        });
        // A level that cannot be put back is reported, and is not tried again.
        let refused = simulated::with(|kernel| std::mem::take(&mut kernel.refused_levels));
        let is_refused = refused.iter().any(|(_, nice)| *nice == 0);
        let has_strays = std::mem::take(&mut self.has_strays);
        // An action of others may be in the way: then the report tells.
        let says_any = !(report.problems.is_empty() && report.notes.is_empty());
        let is_told = self.is_disturbed && says_any;
        if is_told {
            simulated::with(|kernel| {
                files.iter().for_each(|path| kernel.disk().forget(path));
                for path in own.iter().rev() {
                    let _ = kernel.others_remove(path);
                }
            });
        } else {
            assert!(own.is_empty(), "left: {own:?} {report:?}");
            assert!(differences.is_empty(), "{differences:?} {report:?}");
            assert!(files.is_empty(), "left: {files:?} {report:?}");
            let has_none = reniced.is_empty() || has_strays || is_refused;
            assert!(has_none, "nice: {reniced:?} {report:?}");
        }
        self.shadow.take();
    }
}

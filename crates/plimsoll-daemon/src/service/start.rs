//! From nothing to a service, and from one configuration to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use plimsoll_engine::EngineError;
use plimsoll_engine::cgroup::BusyMeter;
use plimsoll_engine::host::Mode;
use plimsoll_engine::knobs::Demand;
use plimsoll_engine::toml_file::FileError;
use plimsoll_engine::undo::UndoReport;
use thiserror::Error;

use super::book::Book;
use super::commands;
use super::control_loop::ControlLoop;
use super::handle::Inbox;
use super::pace::Pace;
use super::planner::Planner;
use super::remembered::Remembered;
use super::{Options, Service};
use crate::config::{Config, EnforcerWanted};
use crate::state::Counters;
use crate::watch::CgroupWatch;

/// Why a service cannot be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration is refused; nothing was touched.
    #[error(transparent)]
    Config(#[from] FileError),
    /// The enforcer could not be had.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Events of the kernel could not be had.
    #[error("cannot watch cgroups: {0}")]
    Watch(std::io::Error),
    /// No file could be opened.
    #[error("cannot start the service: {0}")]
    Start(std::io::Error),
}

impl Service {
    /// Undoes what an earlier process left behind and applies the
    /// configuration.
    ///
    /// # Errors
    /// When the configuration is refused, before anything is undone, or
    /// nothing can be enforced at all.
    pub fn start(mut options: Options) -> std::result::Result<Self, StartError> {
        let log = options.log;
        let config = match &options.config {
            Some(path) => Config::read(path)?,
            None => Config::of_no_file(),
        };
        let (mut remembered, problem) = Remembered::read(&options.runtime);
        if let Some(problem) = problem {
            log.error("remembered", &problem);
        }
        for renamed in remembered.make_way(|name| config.rules.iter().any(|rule| rule.name == name))
        {
            log.warning("remembered", &renamed);
        }
        // All that can fail comes first: dropped, the enforcer would undo what an earlier owner has
        // left.
        let inbox = Inbox::new().map_err(StartError::Start)?;
        let watch = CgroupWatch::start(options.hierarchy.mount_point());
        let (cgroups, changes) = watch.map_err(StartError::Watch)?;
        let busy = BusyMeter::start(&options.hierarchy)?;
        // Before they are undone: their processes go back to where they were.
        let members = commands::members(&remembered);
        let enforcing = match options.config {
            Some(_) => options.starter.start(config.enforcer, config.mode)?,
            None => options.starter.start_for_any()?,
        };
        report_undo(
            &log,
            &enforcing.left_behind,
            "as it was before an earlier process",
        );
        let planner = Planner::new(&options.hierarchy, enforcing.scheduler);
        let mut enforcer = enforcing.enforcer;
        enforcer.leave_audits_to_caller();
        let control = ControlLoop::start(enforcer, options.heartbeat, inbox.handle());
        let now = Instant::now();
        let mut service = Self {
            config_path: options.config.unwrap_or_default(),
            runtime_identity: super::folder_identity(&options.runtime),
            runtime: options.runtime,
            hierarchy: options.hierarchy,
            starter: options.starter,
            log,
            config,
            problems: BTreeMap::new(),
            planner,
            control,
            cgroups,
            overflows: 0,
            cgroups_rest_until: now,
            known: BTreeSet::new(),
            attributes: BTreeMap::new(),
            attributes_refused: BTreeMap::new(),
            attributes_pace: Pace::new(super::follow::ATTRIBUTES_INTERVAL),
            attributes_read: 0,
            written: BTreeMap::new(),
            changed_by_others: BTreeSet::new(),
            rivals_told: BTreeSet::new(),
            empty_since: BTreeMap::new(),
            processes: None,
            processes_read: now,
            processes_are_new: false,
            book: Book::default(),
            demand: Demand::default(),
            remembered,
            remembered_is_stale: false,
            busy,
            busy_usec: 0,
            batch_seen: BTreeMap::new(),
            batch_usec: 0,
            counters: Counters::default(),
            started: now,
            housekept: now,
            inbox,
            last_used: now,
            stopping: false,
            leaves_groups: false,
        };
        service.counters.reloads = 1;
        service.set_slice();
        service.ask_commands(&members);
        service.take_changes(changes);
        service.ask_rules();
        service.apply();
        // First: who is in a group of a command is nobody else's.
        service.take_back_members(&members);
        let left = service.shared().enforcer().finish_adoption();
        report_undo(&service.log, &left, "for no group needs it any more");
        service.watch_processes();
        let groups = service.book.len();
        let rules = service.config.rules.len();
        let config = service.config_path.display().to_string();
        if service.is_configured() {
            let text = format!("{config}: {rules} groups of the file, {groups} in force");
            service.log.info("service", &text);
        }
        Ok(service)
    }

    /// Reads the configuration again: all of it, or nothing of it. Returns
    /// what people should be told.
    ///
    /// # Errors
    /// The line that is told to people.
    pub(super) fn reload(&mut self) -> std::result::Result<Vec<String>, String> {
        let reloaded = self.try_reload();
        match &reloaded {
            Ok(warnings) => {
                self.counters.reloads += 1;
                let text = format!("{}: reloaded", self.config_path.display());
                self.log.info("configuration", &text);
                for warning in warnings {
                    self.log.warning("configuration", warning);
                }
            }
            Err(problem) => {
                self.counters.reloads_refused += 1;
                let text = format!("{problem}; what was in force still is");
                self.log.error("configuration", &text);
            }
        }
        reloaded
    }

    fn try_reload(&mut self) -> std::result::Result<Vec<String>, String> {
        let config = Config::read(&self.config_path).map_err(|error| error.to_string())?;
        let same_enforcer =
            config.enforcer == self.config.enforcer && config.mode == self.config.mode;
        let mut members = commands::Members::new();
        if same_enforcer {
            self.check_rules(&config)?;
            let slice = config.bandwidth_slice;
            let set = self.shared().enforcer().set_bandwidth_slice(slice);
            set.map_err(|error| format!("{}: {error}", self.config_path.display()))?;
        } else {
            self.remember_members();
            members = commands::members(&self.remembered);
            let changed = self.change_enforcer(&config);
            if changed.is_err() {
                self.settle();
                self.take_back_members(&members);
            }
            changed?;
        }
        let mut warnings = Vec::new();
        if config.metrics != self.config.metrics {
            warnings.push("metrics.listen: another address takes a restart of the daemon".into());
        }
        self.look_at_all_written();
        let had_burst = self.burst_enabled();
        let processes = self.let_go_of_processes(&config);
        self.config = config;
        self.set_slice();
        self.rivals_told.clear();
        // What is allowed, and beside what, may have changed.
        self.read_all_attributes();
        self.ask_rules();
        self.ask_all_cgroups();
        self.book.retry_all();
        if self.burst_enabled() != had_burst {
            self.book.unsettle_all();
        }
        self.apply();
        // A reload is an explicit apply: it ends the respect for others.
        self.end_all_respect();
        self.take_back_members(&members);
        self.watch_processes();
        self.take_back_unclaimed(&processes);
        Ok(warnings)
    }

    /// Whether this host can enforce what is asked for.
    fn check_rules(&self, config: &Config) -> std::result::Result<(), String> {
        for rule in &config.rules {
            if self.remembered.commands.contains_key(&rule.name) {
                return Err(format!(
                    "{}: group `{}`: a command has a group of that name now; choose another, or \
                     end the command first",
                    self.config_path.display(),
                    rule.name
                ));
            }
            let wish = self.wish_of_rule(rule);
            self.planner.check(&wish).map_err(|error| {
                let file = self.config_path.display();
                format!("{file}: group `{}`: {error}", rule.name)
            })?;
        }
        Ok(())
    }

    /// Puts another enforcer in the place of the present one. Between the two
    /// nothing is limited, for as long as it takes.
    fn change_enforcer(&mut self, config: &Config) -> std::result::Result<(), String> {
        let changed = self
            .install(config.enforcer, config.mode)
            .and_then(|()| self.check_rules(config));
        if changed.is_err() {
            let (enforcer, mode) = (self.config.enforcer, self.config.mode);
            if let Err(error) = self.install(enforcer, mode) {
                // Nothing is enforced now: another start is the way out.
                self.log.error("enforcer", &format!("{error}; ending"));
                self.stopping = true;
                return Err(error);
            }
        }
        changed
    }

    fn install(&mut self, wanted: EnforcerWanted, mode: Mode) -> std::result::Result<(), String> {
        let report = self.shared().enforcer().undo();
        report_undo(&self.log, &report, "for another enforcer");
        self.book.forget_applied();
        let started = self.starter.start(wanted, mode);
        let enforcing = started.map_err(|error| error.to_string())?;
        let mut enforcer = enforcing.enforcer;
        enforcer.leave_audits_to_caller();
        drop(self.control.replace(enforcer));
        self.planner = Planner::new(&self.hierarchy, enforcing.scheduler);
        self.set_slice();
        self.ask_all_commands();
        Ok(())
    }

    /// Sets the machine's bandwidth slice as the configuration says. Where that cannot
    /// be, the groups are no worse off than without it: somebody should look at it.
    fn set_slice(&mut self) {
        let slice = self.config.bandwidth_slice;
        let set = self.shared().enforcer().set_bandwidth_slice(slice);
        let problem = set.err().map(|error| error.to_string());
        self.note_problem("bandwidth-slice", problem);
    }
}

/// `how` reads on after "put back".
fn report_undo(log: &crate::log::Log, report: &UndoReport, how: &str) {
    for undone in &report.undone {
        log.info("undo", &format!("{undone}: put back {how}"));
    }
    for problem in &report.problems {
        log.warning("undo", problem);
    }
}

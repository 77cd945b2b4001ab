//! Start of a service.

use std::path::PathBuf;

use plimsoll_cgroupfs::os;
use plimsoll_engine::EngineError;
use plimsoll_engine::cgroup::BusyMeter;
use plimsoll_engine::text_file::FileError;
use thiserror::Error;

use super::composition::FairClass;
use super::handle::Inbox;
use super::members::members_of_groups;
use super::parts::{
    ClientRequests, ConfigFile, Enforcement, ExternalChanges, GroupTable, GuardSwitch, Lifetime,
    Notices, TuningSwitch, UsageMeter,
};
use super::{Options, Service};
use crate::watch::CgroupWatch;

#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration has a mistake; nothing was changed.
    #[error(transparent)]
    Config(#[from] FileError),
    #[error(
        "{problem}; a daemon with the file {file} was killed, and its groups stay: mend this, or \
         undo them with `plimsoll restore`"
    )]
    Left { file: String, problem: Box<Self> },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("cannot watch cgroups: {0}")]
    Watch(std::io::Error),
    /// A file cannot be opened.
    #[error("cannot start the service: {0}")]
    Start(std::io::Error),
}

impl Service {
    /// Undoes changes that an earlier process left behind, and applies the configuration, or that
    /// of a daemon that was killed.
    ///
    /// # Errors
    /// When the configuration is refused, before anything is undone, or nothing can be
    /// enforced at all.
    pub fn start(options: Options) -> std::result::Result<Self, StartError> {
        let (requests, problem) = ClientRequests::read(options.runtime.clone());
        if let Some(problem) = problem {
            options.log.error("requested", &problem);
        }
        let given = options.config.clone();
        let left = requests.requested.file.clone();
        match left.filter(|_| given.is_none()) {
            None => Self::start_with(given, options, requests),
            Some(file) => {
                let name = file.display().to_string();
                let started = Self::start_with(Some(file), options, requests);
                started.map_err(|problem| StartError::Left {
                    file: name,
                    problem: Box::new(problem),
                })
            }
        }
    }

    fn start_with(
        config: Option<PathBuf>,
        options: Options,
        requests: ClientRequests,
    ) -> std::result::Result<Self, StartError> {
        let Options {
            config: given,
            hierarchy,
            starter,
            heartbeat,
            log,
            ..
        } = options;
        let file = ConfigFile::read(config)?;
        // Before the undo of their groups, which moves the processes back.
        let in_cgroups = members_of_groups(&hierarchy);
        // Before the enforcer starts, which undoes what cannot be adopted.
        let inbox = Inbox::new().map_err(StartError::Start)?;
        let watch = CgroupWatch::start(hierarchy.mount_point());
        let (cgroups, changes) = watch.map_err(StartError::Watch)?;
        let busy = BusyMeter::start(&hierarchy)?;
        let (enforcement, left_behind) = Enforcement::start(
            hierarchy.clone(),
            starter,
            file.is_present().then(|| file.config()),
            heartbeat,
            inbox.handle(),
        )?;
        let notices = Notices::new(log);
        notices.log_undo(&left_behind, "as it was before an earlier process");
        let now = os::now();
        let mut service = Self {
            hierarchy,
            file,
            requests,
            cgroups,
            external: ExternalChanges::default(),
            table: GroupTable::default(),
            enforcement,
            fair: FairClass {
                guard: GuardSwitch::default(),
                tuning: TuningSwitch::default(),
            },
            usage: UsageMeter::start(busy),
            notices,
            inbox,
            lifetime: Lifetime::begin(now, given.is_none()),
        };
        service.notices.counters.reloads = 1;
        service.note_file();
        service.request_running_commands(in_cgroups);
        service.take_changes(changes);
        service.reconcile();
        let left = service.finish_adoption();
        service
            .notices
            .log_undo(&left, "for no group needs it any more");
        service.follow_fair_class();
        service.log_start();
        Ok(service)
    }

    fn log_start(&self) {
        if self.file.is_present() {
            let text = format!(
                "{}: {} groups of the file, {} in force",
                self.file.path().display(),
                self.config().rules.len(),
                self.table.nr_applied()
            );
            self.notices.log.info("service", &text);
        }
    }
}

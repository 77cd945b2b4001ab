//! `plimsoll daemon`: the long-running service.

pub mod guard;
mod metrics;
mod notify;
pub mod on_demand;
mod panic;
mod process;
mod starter;

use std::net::SocketAddr;
use std::path::{Path, absolute};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::sys::prctl::set_thp_disable;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::config::Config;
use plimsoll_daemon::control::protocol::SOCKET;
use plimsoll_daemon::control::server::Server;
use plimsoll_daemon::log::{Log, Priority};
use plimsoll_daemon::metrics::MetricsServer;
use plimsoll_daemon::service::{self, Handle, Options, Service};
use plimsoll_engine::journal::wait_for_last_owner;
use plimsoll_engine::runtime::{Ownership, RuntimeFolder};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::DaemonArgs;
use crate::error::{CommandError, OwnerError, Result};
use crate::output;
use crate::owner::{Owner, TAKEN, wait_for_ownership};
use notify::Supervisor;
pub use on_demand::remove_log;
pub use starter::HostStarter;

/// Runs the service until a signal ends it.
pub fn run(args: &DaemonArgs) -> Result<ExitCode> {
    if args.check {
        return check(&args.config);
    }
    panic::abort_on_panic();
    process::raise_file_limit();
    if args.on_demand {
        process::close_inherited();
        process::reset_settings();
        process::leave_the_client();
    }
    let least = match args.verbose {
        // Its client prints its output during the start.
        0 if args.on_demand => Priority::Warning,
        0 => Priority::Info,
        _ => Priority::Debug,
    };
    let log = Arc::new(Log::new(least));
    // Disables huge pages: khugepaged runs at nice 19, and behind work that keeps all CPUs busy it
    // would hold this process's memory lock for long. Old kernels lack the switch, which is
    // harmless.
    let _ = set_thp_disable(true);
    let hierarchy = Arc::new(Hierarchy::find()?);
    hierarchy.check_permission()?;
    let runtime = RuntimeFolder::of_this_host();
    runtime.create()?;
    let _ownership = match Ownership::take(&hierarchy)? {
        Some(ownership) => ownership,
        None if args.on_demand => {
            output::print_line(TAKEN)?;
            return Ok(ExitCode::SUCCESS);
        }
        None => succeed(&runtime, &hierarchy)?,
    };
    wait_for_last_owner(runtime.path())?;
    if args.on_demand {
        on_demand::leave_the_cgroups(&hierarchy);
    }
    if geteuid().is_root() {
        runtime.open_to_clients()?;
    }
    own(args, &log, &hierarchy, &runtime)
}

/// Checks a file, and whether this host can enforce it.
fn check(file: &Path) -> Result<ExitCode> {
    let config = Config::read(file)?;
    let hierarchy = Arc::new(Hierarchy::find()?);
    let starter = HostStarter::new(&hierarchy, &RuntimeFolder::of_this_host());
    let checked = service::check(&config, &hierarchy, &starter);
    checked.map_err(|source| CommandError::NotEnforceable {
        file: file.to_owned(),
        source: source.into(),
    })?;
    if let Some(warning) = config.metrics.and_then(metrics::warning_of) {
        output::tell(&warning);
    }
    let nr_groups = config.rules.len();
    output::print_line(&format!("{}: {nr_groups} groups", file.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Owns the tree until a signal ends it.
fn own(
    args: &DaemonArgs,
    log: &Arc<Log>,
    hierarchy: &Arc<Hierarchy>,
    runtime: &RuntimeFolder,
) -> Result<ExitCode> {
    let supervisor = Supervisor::of_this_process(log);
    // Signals are queued from here on.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let signals = signals.map_err(CommandError::io("cannot handle signals"))?;
    // Whichever owner has it after a kill runs elsewhere.
    let config = (!args.on_demand).then(|| absolute(&args.config));
    let config = config.map(|path| path.map_err(CommandError::io("--config")));
    let service = Service::start(Options {
        config: config.transpose()?,
        runtime: runtime.clone(),
        hierarchy: Arc::clone(hierarchy),
        starter: Box::new(HostStarter::new(hierarchy, runtime)),
        heartbeat: Some(supervisor.heartbeat()),
        log: Arc::clone(log),
    });
    let service = service.map_err(|error| CommandError::Service(error.into()))?;
    let handle = service.handle();
    // The file of a killed daemon brings limits, and no address that would stay after `restore`.
    let address = service.config().metrics.filter(|_| !args.on_demand);
    let served = serve(&service, runtime, address, log);
    let (control, metrics) = match served {
        Ok(servers) => servers,
        Err(error) => {
            // Groups of an earlier owner stay limited.
            handle.leave();
            service.run();
            return Err(error);
        }
    };
    pass_on(signals, handle);
    supervisor.ready();
    if args.on_demand {
        on_demand::tell_ready(runtime);
    }
    let report = service.run();
    supervisor.stopping();
    control.stop();
    if let Some(metrics) = metrics {
        metrics.stop();
    }
    if args.on_demand {
        remove_log(runtime);
    } else {
        log.info("service", "ended; all settings are restored");
    }
    Ok(if report.problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Takes over from an owner that a command has started, which leaves its groups in place when it
/// ends.
///
/// # Errors
/// When the owner is another daemon, does not answer, or does not end.
fn succeed(runtime: &RuntimeFolder, hierarchy: &Hierarchy) -> Result<Ownership> {
    let other = || OwnerError::OtherRuntime {
        cgroups: hierarchy.cpu_folder(hierarchy.base()),
        runtime: runtime.path().to_owned(),
    };
    let mut owner = match Owner::at(runtime)? {
        Some(owner) => owner,
        // An owner may be starting.
        None => match (wait_for_ownership(hierarchy, other), Owner::at(runtime)?) {
            (Err(_), Some(owner)) => owner,
            (waited, _) => return waited,
        },
    };
    let daemon = owner.show(None)?.daemon;
    if !daemon.is_on_demand {
        let pid = daemon.pid;
        return Err(CommandError::RunsAlready { pid });
    }
    let remains = || OwnerError::Remains { pid: daemon.pid };
    // In another PID namespace its own pid would denote another process here.
    let is_ended = owner.pid().is_some_and(|pid| {
        // It may have ended by itself.
        kill(Pid::from_raw(pid), Signal::SIGTERM) != Err(Errno::EPERM)
    });
    if !is_ended {
        return Err(remains().into());
    }
    wait_for_ownership(hierarchy, remains)
}

/// Starts to serve the control socket and metrics.
fn serve(
    service: &Service,
    runtime: &RuntimeFolder,
    metrics: Option<SocketAddr>,
    log: &Arc<Log>,
) -> Result<(Server, Option<MetricsServer>)> {
    let path = runtime.path().join(SOCKET);
    let control = Server::bind(&path, Arc::new(service.handle()))?;
    if let Some(problem) = control.problem() {
        log.warning("control", problem);
    }
    let Some(address) = metrics else {
        return Ok((control, None));
    };
    match metrics::start(address, service.handle(), Arc::clone(log)) {
        Ok(metrics) => Ok((control, Some(metrics))),
        Err(error) => {
            control.stop();
            Err(error)
        }
    }
}

/// Handles signals in a thread: SIGHUP reloads, others end.
fn pass_on(mut signals: Signals, handle: Handle) {
    // Ends with the process.
    thread::spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGHUP => handle.reload(),
                _ => handle.stop(),
            }
        }
    });
}

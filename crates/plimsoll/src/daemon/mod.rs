//! `plimsoll daemon`: the long-running service.

mod metrics;
mod notify;
pub mod on_demand;
mod starter;

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
use plimsoll_daemon::service::{Handle, Options, Service};
use plimsoll_engine::journal::wait_for_last_owner;
use plimsoll_engine::runtime::{Ownership, RuntimeFolder};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::DaemonArgs;
use crate::error::{CommandError, Result};
use crate::output;
use crate::owner::{Owner, wait_for_ownership};
use metrics::Metrics;
use notify::Supervisor;
pub use on_demand::remove_log;
pub use starter::HostStarter;

/// The word on standard output that a client waits for which has started an owner.
pub const READY: &str = "ready";
/// Exit code of an owner that finds another.
pub const EXIT_TAKEN: u8 = 3;

/// Runs the service until somebody ends it.
pub fn run(args: &DaemonArgs) -> Result<ExitCode> {
    if args.check {
        let config = Config::read(&args.config).map_err(other)?;
        let nr_groups = config.rules.len();
        if let Some(warning) = config.metrics.and_then(metrics::warning_of) {
            output::tell(&warning);
        }
        output::print_line(&format!("{}: {nr_groups} groups", args.config.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.on_demand {
        on_demand::close_inherited();
        on_demand::leave_the_client();
    }
    let least = match args.verbose {
        // Its client prints what it writes at the start.
        0 if args.on_demand => Priority::Warning,
        0 => Priority::Info,
        _ => Priority::Debug,
    };
    let log = Arc::new(Log::new(least));
    // khugepaged makes huge pages at nice 19. Behind work that keeps all CPUs busy it would hold
    // this process's memory for long. An old kernel has no such switch; the service runs all the
    // same.
    let _ = set_thp_disable(true);
    let hierarchy = Arc::new(Hierarchy::find()?);
    hierarchy.check_permission()?;
    let runtime = RuntimeFolder::of_this_host();
    runtime.create()?;
    let _ownership = match Ownership::take(&hierarchy)? {
        Some(ownership) => ownership,
        None if args.on_demand => return Ok(ExitCode::from(EXIT_TAKEN)),
        None => succeed(&runtime, &hierarchy)?,
    };
    wait_for_last_owner(runtime.path())?;
    if args.on_demand {
        on_demand::leave_the_cgroup(&hierarchy);
    }
    if geteuid().is_root() {
        runtime.open_to_clients()?;
    }
    own(args, &log, &hierarchy, &runtime)
}

/// Owns the tree until somebody ends it.
fn own(
    args: &DaemonArgs,
    log: &Arc<Log>,
    hierarchy: &Arc<Hierarchy>,
    runtime: &RuntimeFolder,
) -> Result<ExitCode> {
    let supervisor = Supervisor::of_this_process(log);
    // From here on a signal waits until it can be handled.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let signals = signals.map_err(CommandError::io("cannot handle signals"))?;
    let service = Service::start(Options {
        config: (!args.on_demand).then(|| args.config.clone()),
        runtime: runtime.clone(),
        hierarchy: Arc::clone(hierarchy),
        starter: Box::new(HostStarter::new(hierarchy, runtime, log)),
        heartbeat: supervisor.heartbeat(),
        log: Arc::clone(log),
    });
    let service = service.map_err(other)?;
    let handle = service.handle();
    let served = serve(&service, runtime, log);
    let (control, metrics) = match served {
        Ok(servers) => servers,
        Err(error) => {
            // What was applied is put back.
            handle.stop();
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
        log.info("service", "ended; everything is as it was before");
    }
    Ok(if report.problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn other(error: impl std::fmt::Display) -> CommandError {
    CommandError::Other(error.to_string())
}

/// Takes over from an owner that a command has started: ended, it leaves its groups as they are.
///
/// # Errors
/// When the owner is another daemon, or cannot be asked or ended.
fn succeed(runtime: &RuntimeFolder, hierarchy: &Hierarchy) -> Result<Ownership> {
    let Some(mut owner) = Owner::at(runtime)? else {
        return wait_for_ownership(hierarchy, || {
            format!(
                "another process owns the cgroups below {}, and nobody answers in {}: it has \
                 another PLIMSOLL_RUNTIME_DIR, or is in a container; end it first",
                hierarchy.cpu_folder(hierarchy.base()).display(),
                runtime.path().display()
            )
        });
    };
    let daemon = owner.show(None)?.daemon;
    if !daemon.config.as_os_str().is_empty() {
        return Err(CommandError::Other(format!(
            "a daemon runs already (pid {}); end it first, or change its file and use \
             `plimsoll reload`",
            daemon.pid
        )));
    }
    let remains = || {
        let pid = daemon.pid;
        format!("the owner that a command has started (pid {pid}) does not end; end it first")
    };
    // In another PID namespace its own number is another process's here.
    let is_ended = owner.pid().is_some_and(|pid| {
        // It may have ended by itself.
        kill(Pid::from_raw(pid), Signal::SIGTERM) != Err(Errno::EPERM)
    });
    if !is_ended {
        return Err(CommandError::Other(remains()));
    }
    wait_for_ownership(hierarchy, remains)
}

/// Begins to answer: on the control socket, and with metrics.
fn serve(
    service: &Service,
    runtime: &RuntimeFolder,
    log: &Arc<Log>,
) -> Result<(Server, Option<Metrics>)> {
    let path = runtime.path().join(SOCKET);
    let control = Server::bind(&path, Arc::new(service.handle())).map_err(other)?;
    let Some(address) = service.config().metrics else {
        return Ok((control, None));
    };
    match Metrics::start(address, service.handle(), Arc::clone(log)) {
        Ok(metrics) => Ok((control, Some(metrics))),
        Err(error) => {
            control.stop();
            Err(error)
        }
    }
}

/// Signals mean what an operator expects of a service.
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

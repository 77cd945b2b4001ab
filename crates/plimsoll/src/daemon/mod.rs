//! `plimsoll daemon`: the long-running service.

mod metrics;
mod notify;
mod starter;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::config::Config;
use plimsoll_daemon::control::protocol::SOCKET;
use plimsoll_daemon::control::server::Server;
use plimsoll_daemon::log::{Log, Priority};
use plimsoll_daemon::service::{Handle, Options, Service};
use plimsoll_engine::huge_pages;
use plimsoll_engine::runtime::RuntimeFolder;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::DaemonArgs;
use crate::error::{CommandError, Result};
use crate::output;
use metrics::Metrics;
use notify::Supervisor;
use starter::HostStarter;

/// What the daemon's own lock is called.
const LOCK: &str = "daemon.lock";

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
    let least = match args.verbose {
        0 => Priority::Info,
        _ => Priority::Debug,
    };
    let log = Arc::new(Log::new(least));
    // An old kernel has no such switch; the service runs all the same.
    let _ = huge_pages::do_without();
    let hierarchy = Arc::new(Hierarchy::find()?);
    hierarchy.check_permission()?;
    let runtime = RuntimeFolder::of_this_host();
    runtime.create()?;
    let _lock = lock(&runtime)?;
    runtime.open_to_clients()?;
    let supervisor = Supervisor::of_this_process(&log);
    // From here on a signal waits until it can be handled.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let signals = signals.map_err(CommandError::io("cannot handle signals"))?;
    let service = Service::start(Options {
        config: args.config.clone(),
        runtime: runtime.clone(),
        hierarchy: Arc::clone(&hierarchy),
        starter: Box::new(HostStarter::new(&hierarchy, &runtime, &log)),
        heartbeat: supervisor.heartbeat(),
        log: Arc::clone(&log),
    });
    let service = service.map_err(other)?;
    // Until here nothing else had to be done; a start that fails is done again.
    runtime.is_of_service();
    let handle = service.handle();
    let served = serve(&service, &runtime, &log);
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
    let report = service.run();
    supervisor.stopping();
    control.stop();
    if let Some(metrics) = metrics {
        metrics.stop();
    }
    log.info("service", "ended; everything is as it was before");
    Ok(if report.problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn other(error: impl std::fmt::Display) -> CommandError {
    CommandError::Other(error.to_string())
}

/// One daemon keeps a runtime folder. The lock goes with its process, however
/// that ends.
fn lock(runtime: &RuntimeFolder) -> Result<File> {
    let mut file = keep_out(runtime)?.map_err(|pid| {
        CommandError::Other(format!(
            "a daemon runs already (pid {pid}); end it first, or change its file and use \
             `plimsoll reload`"
        ))
    })?;
    let failed = CommandError::io("cannot write the daemon's lock");
    let written = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(failed)?;
    Ok(file)
}

/// Keeps every daemon out for as long as the file is open; if one runs, its
/// pid comes back instead.
pub fn keep_out(runtime: &RuntimeFolder) -> Result<std::result::Result<File, String>> {
    let path = runtime.path().join(LOCK);
    let failed = |error| CommandError::io(format!("{}: cannot lock", path.display()))(error);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path);
    let mut file = file.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Ok(file)),
        Err(TryLockError::Error(error)) => Err(failed(error)),
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Only for the message.
            let _ = file.read_to_string(&mut pid);
            Ok(Err(pid.trim().to_owned()))
        }
    }
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

//! The threads that the BPF program wakes: one for each CPU. Most wake-ups are only to have the
//! kernel pick again; some are to move a task.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Builder};
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{sched_getcpu, sched_setaffinity};
use nix::sys::eventfd::EventFd;
use nix::unistd::{Pid, gettid};

use crate::GuardError;
use crate::moves::{Moves, Task, only};

/// The lowest priority: above the fair class, and below every other real-time task.
const PRIORITY: libc::c_int = 1;
/// Time in which a wake-up is written.
const WRITING: Duration = Duration::from_micros(50);
/// A thread calls nothing deep.
const STACK_BYTES: usize = 64 * 1024;

/// All threads. Dropping them ends them.
///
/// The drop does not wait for them: a busy real-time task may keep one from running for ever. Each
/// owns what it uses.
pub(crate) struct Threads {
    /// Becomes readable when they have to end.
    stop: Arc<EventFd>,
    moves: Option<Arc<Moves>>,
}

impl Threads {
    /// Starts a thread on each CPU, to sleep on the CPU's ring. Returns the threads with the CPUs
    /// that have one: others are offline now, or no cpuset of this process has them. Without
    /// `moves` the threads move no task.
    pub fn start(
        rings: &BTreeMap<u32, Arc<MapHandle>>,
        moves: Option<Arc<Moves>>,
    ) -> Result<(Self, Vec<u32>), GuardError> {
        let stop = EventFd::new().map_err(|errno| GuardError::Thread(errno.into()))?;
        let all = Self {
            stop: Arc::new(stop),
            moves,
        };
        let (ready, answers) = channel();
        for (&cpu, ring) in rings {
            let (ready, ring, stop) = (ready.clone(), Arc::clone(ring), Arc::clone(&all.stop));
            let moves = all.moves.clone();
            Builder::new()
                .name(format!("guard-{cpu}"))
                .stack_size(STACK_BYTES)
                .spawn(move || run(cpu, &ring, moves, &stop, &ready))
                .map_err(GuardError::Thread)?;
        }
        let mut bound = Vec::new();
        for answer in answers.into_iter().take(rings.len()) {
            let (cpu, tid) = answer?;
            bound.extend(bind(tid, cpu).is_ok().then_some(cpu));
        }
        Ok((all, bound))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // It cannot fail: the counter is 0.
        let _ = self.stop.write(1);
        if let Some(moves) = &self.moves {
            moves.close();
        }
    }
}

/// The answer of a thread that has become real-time: its CPU and its id.
type Ready = Result<(u32, Pid), GuardError>;

fn run(
    cpu: u32,
    ring: &MapHandle,
    moves: Option<Arc<Moves>>,
    stop: &EventFd,
    ready: &Sender<Ready>,
) {
    // The receiver waits for all answers, or has gone after an error.
    match begin(cpu, ring, moves) {
        Ok(ring) => {
            let _ = ready.send(Ok((cpu, gettid())));
            sleep_until_stopped(&ring, stop);
        }
        Err(error) => drop(ready.send(Err(error))),
    }
}

fn begin(
    cpu: u32,
    ring: &MapHandle,
    moves: Option<Arc<Moves>>,
) -> Result<RingBuffer<'static>, GuardError> {
    become_real_time().map_err(GuardError::RealTime)?;
    let mut builder = RingBufferBuilder::new();
    let woken_for = move |bytes: &[u8]| {
        // The CPU has been offline, or a cpuset has changed. Elsewhere the thread helps nobody.
        let is_there = sched_getcpu().is_ok_and(|here| here == cpu as usize)
            || bind(Pid::from_raw(0), cpu).is_ok();
        if let (true, Some(moves), Some(task)) = (is_there, &moves, Task::of(bytes)) {
            moves.serve(cpu, &task);
        }
        0
    };
    builder.add(ring, woken_for).map_err(GuardError::Prepare)?;
    builder.build().map_err(GuardError::Prepare)
}

/// Sleeps in the kernel, and serves the wake-ups.
fn sleep_until_stopped(ring: &RingBuffer<'_>, stop: &EventFd) {
    // SAFETY: the ring owns the descriptor, and outlives this.
    let woken = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
    let mut sleeps = [
        PollFd::new(woken, PollFlags::POLLIN),
        PollFd::new(stop.as_fd(), PollFlags::POLLIN),
    ];
    loop {
        // A signal only interrupts the sleep.
        let _ = poll(&mut sleeps, PollTimeout::NONE);
        if sleeps[1].any() == Some(true) {
            return;
        }
        // A record that is being written wakes, too. Its writer may need this CPU.
        if ring.consume_raw() == 0 {
            thread::sleep(WRITING);
        }
    }
}

/// Binds a thread to a CPU, if that is online and allowed; 0: the calling one.
fn bind(tid: Pid, cpu: u32) -> nix::Result<()> {
    sched_setaffinity(tid, &only(cpu)?)
}

/// Checks that the kernel gives this process real-time threads.
pub(crate) fn check() -> Result<(), GuardError> {
    let thread = Builder::new().spawn(become_real_time);
    let answer = thread.map_err(GuardError::Thread)?.join();
    // The thread does not panic.
    answer.unwrap_or(Ok(())).map_err(GuardError::RealTime)
}

fn become_real_time() -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // Children of the thread are not real-time.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a live local.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

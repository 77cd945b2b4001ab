//! Capture of libbpf's output, which goes to standard error by default. It is kept, and shown only
//! with an error.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libbpf_rs::PrintLevel;

/// Most output that is kept: more than the end of a verifier log, which has the reason.
const KEPT_BYTES: usize = 64 * 1024;

static SAID: Mutex<String> = Mutex::new(String::new());

fn said() -> MutexGuard<'static, String> {
    // A panic elsewhere cannot leave half a string behind.
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Silences libbpf from now on: it prints to standard error otherwise.
pub fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    });
}

/// Silences libbpf, and clears the captured output.
pub(crate) fn start() {
    silence();
    said().clear();
}

/// The end of libbpf's output since [`start`].
pub(crate) fn take() -> String {
    std::mem::take(&mut said())
}

fn keep(_level: PrintLevel, message: String) {
    let mut said = said();
    said.push_str(&message);
    if let Some(excess) = said.len().checked_sub(KEPT_BYTES) {
        let start = said.ceil_char_boundary(excess);
        said.drain(..start);
    }
}

/// Prefix of libbpf's lines that only say that a step failed.
const SUMMARY: &str = "libbpf: failed to load ";

/// The line of libbpf's output that most likely has the reason of a failed load: of a verifier's
/// log the last line before its statistics, else the last line that is not a mere summary.
pub(crate) fn reason(log: &str) -> Option<&str> {
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    let end = lines
        .iter()
        .position(|line| line.starts_with("processed "))
        .unwrap_or(lines.len());
    let line = lines[..end]
        .iter()
        .rfind(|line| !line.is_empty() && !line.starts_with(SUMMARY))?;
    Some(line.strip_prefix("libbpf: ").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_verifier_log_the_reason_is_the_line_before_the_statistics() {
        let log = "libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n\
                   0: (b7) r0 = 0\n\
                   R1 invalid mem access 'scalar'\n\
                   processed 7 insns (limit 1000000) max_states_per_insn 0\n\
                   -- END PROG LOAD LOG --\n\
                   libbpf: failed to load object 'bpf'\n";
        assert_eq!(reason(log), Some("R1 invalid mem access 'scalar'"));
    }

    #[test]
    fn an_enumerator_that_the_kernel_lacks_is_the_reason() {
        let relocation = "failed to resolve CO-RE relocation <enumval_value> [9] \
                          enum64 scx_enq_flags::SCX_ENQ_LAST = 2199023255552";
        let log = format!("7: <invalid CO-RE relocation>\n{relocation}\nprocessed 7 insns\n");
        assert_eq!(reason(&log), Some(relocation));
    }

    #[test]
    fn without_a_verifier_log_the_reason_is_the_last_line() {
        let log = "libbpf: first\nlibbpf: second\n\nlibbpf: failed to load object 'x'\n";
        assert_eq!(reason(log), Some("second"));
        assert_eq!(reason("\n"), None);
    }

    #[test]
    fn only_the_end_of_much_output_is_kept() {
        said().clear();
        for _ in 0..KEPT_BYTES {
            keep(PrintLevel::Warn, "é\n".into());
        }
        let kept = take();
        assert!(kept.len() <= KEPT_BYTES && kept.ends_with("é\n"));
    }
}

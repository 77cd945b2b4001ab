//! The daemon's control socket, as `top` uses it: one connection for all
//! looks, made again when it is lost.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_daemon::control::protocol::{Answer, Envelope, Request, SOCKET, VERSION};
use plimsoll_daemon::state::State;
use plimsoll_engine::runtime::{RUNTIME_VARIABLE, RuntimeFolder};
use thiserror::Error;

use crate::error::CommandError;

/// Where the daemon of the machine is.
const SYSTEM_FOLDER: &str = "/run/plimsoll";
/// The daemon may take so long.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The state of 10,000 groups with all that can be known of them is shorter.
const ANSWER_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Why there is no state.
#[derive(Debug, Error)]
pub enum Unanswered {
    /// Nobody listens.
    #[error("{0}")]
    Nobody(String),
    /// Somebody does, but does not answer, or answers something else.
    #[error("{0}")]
    Broken(String),
}

impl From<Unanswered> for CommandError {
    fn from(unanswered: Unanswered) -> Self {
        Self::Other(unanswered.to_string())
    }
}

/// A connection to the daemon, while there is one.
pub struct Connection {
    /// Where to look for the daemon, one after the other.
    sockets: Vec<PathBuf>,
    stream: Option<BufReader<UnixStream>>,
}

fn connect(path: &Path) -> Result<BufReader<UnixStream>, Unanswered> {
    let failed = |error: io::Error| Unanswered::Nobody(format!("{}: {error}", path.display()));
    let stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    Ok(BufReader::new(stream))
}

fn exchange(stream: &mut BufReader<UnixStream>, line: &str) -> io::Result<Answer> {
    stream.get_mut().write_all(line.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
    if !answer.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&answer)?)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

impl Connection {
    /// Not connected yet. For users other than root, the daemon is the
    /// machine's.
    pub fn new(runtime: &RuntimeFolder) -> Self {
        let mut sockets = vec![runtime.path().join(SOCKET)];
        if std::env::var_os(RUNTIME_VARIABLE).is_none() {
            sockets.push(Path::new(SYSTEM_FOLDER).join(SOCKET));
            sockets.dedup();
        }
        Self {
            sockets,
            stream: None,
        }
    }

    /// The state; with a group, of that alone and with its plan.
    ///
    /// # Errors
    /// When nobody listens, or does not answer.
    pub fn state(&mut self, group: Option<&str>) -> Result<State, Unanswered> {
        let envelope = Envelope {
            version: VERSION,
            request: Request::Show {
                target: group.map(str::to_owned),
                details: group.is_some(),
            },
        };
        let text = serde_json::to_string(&envelope);
        let mut line = text.map_err(|error| Unanswered::Broken(error.to_string()))?;
        line.push('\n');
        let broken = |error| Unanswered::Broken(format!("the daemon did not answer: {error}"));
        if let Some(mut stream) = self.stream.take() {
            match exchange(&mut stream, &line) {
                Ok(answer) => {
                    self.stream = Some(stream);
                    return state_of(answer);
                }
                Err(error) if is_timeout(&error) => return Err(broken(error)),
                // It was connected to a daemon that has ended since.
                Err(_) => (),
            }
        }
        let mut stream = self.connect()?;
        let answer = exchange(&mut stream, &line).map_err(broken)?;
        self.stream = Some(stream);
        state_of(answer)
    }

    fn connect(&self) -> Result<BufReader<UnixStream>, Unanswered> {
        let mut first_problem = None;
        for path in &self.sockets {
            match connect(path) {
                Ok(stream) => return Ok(stream),
                Err(problem) => first_problem = first_problem.or(Some(problem)),
            }
        }
        let nowhere = || Unanswered::Nobody("there is no control socket".into());
        Err(first_problem.unwrap_or_else(nowhere))
    }
}

fn state_of(answer: Answer) -> Result<State, Unanswered> {
    match answer {
        Answer::State(state) => Ok(*state),
        Answer::Refused(reason) => Err(Unanswered::Broken(reason)),
        _ => Err(Unanswered::Broken(
            "the daemon answered something else".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;
    use crate::top::testing;

    /// Serves one connection: each line gets the next of `answers`; then it
    /// is closed.
    fn serve(listener: &UnixListener, answers: &[String]) {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(&stream);
        for answer in answers {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let asked: Envelope = serde_json::from_str(&line).unwrap();
            assert_eq!(asked.version, VERSION);
            writeln!(&stream, "{answer}").unwrap();
        }
    }

    #[test]
    fn a_lost_connection_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut connection = Connection {
            sockets: vec![folder.path().join(SOCKET)],
            stream: None,
        };
        assert!(matches!(connection.state(None), Err(Unanswered::Nobody(_))));

        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let state = testing::state(&[testing::group("encode", 5)]);
        let good = serde_json::to_string(&Answer::State(Box::new(state.clone()))).unwrap();
        let refused = serde_json::to_string(&Answer::Refused("not today".into())).unwrap();
        let server = thread::spawn(move || {
            serve(&listener, &[good.clone(), good.clone()]);
            serve(&listener, &[refused, good]);
            serve(&listener, &["garbage".into()]);
        });
        assert_eq!(connection.state(None).unwrap(), state);
        assert_eq!(connection.state(Some("encode")).unwrap(), state);
        let error = connection.state(None).unwrap_err();
        assert_eq!(error.to_string(), "not today");
        assert_eq!(connection.state(None).unwrap(), state);
        let error = connection.state(None).unwrap_err().to_string();
        assert!(error.starts_with("the daemon did not answer: "), "{error}");
        server.join().unwrap();
        assert!(matches!(connection.state(None), Err(Unanswered::Nobody(_))));
    }
}

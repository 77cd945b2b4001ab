//! Client of the daemon's control socket: one connection for all updates,
//! reconnected when it is lost.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_daemon::control::client::{Client, ClientError};
use plimsoll_daemon::control::protocol::{Answer, Request, SOCKET};
use plimsoll_daemon::state::State;
use plimsoll_engine::runtime::{RUNTIME_VARIABLE, RuntimeFolder};

use crate::error::Unanswered;

/// Runtime folder of the system daemon.
const SYSTEM_FOLDER: &str = "/run/plimsoll";
/// Time limit for an answer before an error is shown.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A connection to the daemon, if there is one.
pub struct Connection {
    /// Sockets to try, in order.
    sockets: Vec<PathBuf>,
    client: Option<Client>,
}

impl Connection {
    /// Creates a client without a connection. Users other than root use the
    /// system daemon.
    pub fn new(runtime: &RuntimeFolder) -> Self {
        let mut sockets = vec![runtime.path().join(SOCKET)];
        if std::env::var_os(RUNTIME_VARIABLE).is_none() {
            sockets.push(Path::new(SYSTEM_FOLDER).join(SOCKET));
            sockets.dedup();
        }
        Self {
            sockets,
            client: None,
        }
    }

    /// Reads the state. With a group, only its state, with its plan and the rates of its tasks.
    ///
    /// # Errors
    /// If no daemon listens, or the answer has no state.
    pub fn state(&mut self, group: Option<&str>) -> Result<State, Unanswered> {
        let request = match group.map(str::to_owned) {
            Some(target) => Request::Tasks { target },
            None => Request::Show {
                target: None,
                details: false,
            },
        };
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect()?,
        };
        // After an error, the next call connects again.
        let answer = client.ask(&request)?;
        self.client = Some(client);
        match answer {
            Answer::State(state) => Ok(*state),
            Answer::Refused(reason) => Err(Unanswered::Refused(reason)),
            _ => Err(Unanswered::Refused("the answer is not a state".into())),
        }
    }

    fn connect(&self) -> Result<Client, Unanswered> {
        let mut denied = None;
        for path in &self.sockets {
            match Client::connect_within(path, ANSWER_WITHIN) {
                Ok(Some(client)) => return Ok(client),
                Ok(None) => (),
                Err(error @ ClientError::Denied { .. }) => denied = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(denied) = denied {
            return Err(denied.into());
        }
        let first = self.sockets.first().cloned();
        Err(Unanswered::Nobody(first.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;
    use crate::top::testing;

    /// Serves one connection: answers each line with the next of `answers`,
    /// then closes it.
    fn serve(listener: &UnixListener, answers: &[String]) {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(&stream);
        for answer in answers {
            reader.read_line(&mut String::new()).unwrap();
            writeln!(&stream, "{answer}").unwrap();
        }
    }

    #[test]
    fn lost_connection_is_reconnected() {
        let folder = tempfile::tempdir().unwrap();
        let mut connection = Connection {
            sockets: vec![folder.path().join(SOCKET)],
            client: None,
        };
        assert!(matches!(connection.state(None), Err(Unanswered::Nobody(_))));

        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let state = testing::state(&[testing::group("encode", 5)]);
        let good = serde_json::to_string(&Answer::State(Box::new(state.clone()))).unwrap();
        let refused = serde_json::to_string(&Answer::Refused("not today".into())).unwrap();
        let server = thread::spawn(move || {
            serve(&listener, &[good.clone(), good.clone()]);
            serve(&listener, &[refused, good.clone(), "garbage".into()]);
            serve(&listener, &[good]);
        });
        assert_eq!(connection.state(None).unwrap(), state);
        assert_eq!(connection.state(Some("encode")).unwrap(), state);
        let error = connection.state(None).unwrap_err().to_string();
        assert_eq!(error, "the daemon answers: not today");
        assert_eq!(connection.state(None).unwrap(), state);
        let error = connection.state(None).unwrap_err();
        assert!(matches!(error, Unanswered::Failed(_)), "{error}");
        assert_eq!(connection.state(None).unwrap(), state);
        server.join().unwrap();
        connection.client = None;
        assert!(matches!(connection.state(None), Err(Unanswered::Nobody(_))));
    }
}

//! The commands of the documents, in the order in which a reader runs them: each ends as it says
//! there, and prints that kind of output.

use crate::common::{Finished, Host, Running, binary};

const GUIDE: &str = include_str!("../../../../docs/operators-guide.md");
const README: &str = include_str!("../../../../README.md");
const STOCK_KERNELS: &str = include_str!("../../../../docs/stock-kernels.md");
const INTERFERENCE: &str = include_str!("../../../../docs/interference.md");

/// A command, and the lines that follow it.
#[derive(Debug)]
struct Command {
    line: String,
    output: Vec<String>,
}

/// The blocks of a language, each with its lines.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<Vec<&'t str>> {
    let mut found = Vec::new();
    let mut parts = text.split("\n```");
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        let (first, rest) = block.split_once('\n').unwrap();
        if first == language {
            found.push(rest.lines().collect());
        }
    }
    found
}

/// The commands of all `console` blocks, without comments and continued over several lines.
fn commands(text: &str) -> Vec<Command> {
    let mut found: Vec<Command> = Vec::new();
    for line in blocks(text, "console").into_iter().flatten() {
        let command = line.strip_prefix("# ").or_else(|| line.strip_prefix("$ "));
        match (command, found.last_mut()) {
            (Some(command), _) => found.push(Command {
                line: command.split("   #").next().unwrap().trim_end().to_owned(),
                output: Vec::new(),
            }),
            (None, Some(last)) if last.line.ends_with('\\') => {
                last.line.pop();
                last.line += line.trim();
            }
            (None, last) => last.expect("a command first").output.push(line.to_owned()),
        }
    }
    found
}

/// A text whose numbers and spaces do not count.
fn shape(text: &str) -> String {
    let digits = |it: char| if it.is_ascii_digit() { 'N' } else { it };
    let text: String = text.chars().map(digits).collect();
    let mut shape = text.split_whitespace().collect::<Vec<_>>().join(" ");
    while shape.contains("NN") {
        shape = shape.replace("NN", "N");
    }
    shape
}

/// Panics unless a command has ended as the document says: an error with its text, another one with
/// the first word of its output, if that is shown.
fn assert_as_documented(command: &Command, finished: &Finished) {
    let expected = command.output.first().map_or("", String::as_str);
    if expected.starts_with("plimsoll: ") {
        assert_ne!(finished.code(), 0, "{command:?}");
        assert_eq!(shape(&finished.stderr), shape(expected), "{command:?}");
        return;
    }
    assert_eq!(finished.code(), 0, "{command:?}: {}", finished.stderr);
    if expected.is_empty() {
        return;
    }
    let first_word = |text: &str| shape(text).split(' ').next().unwrap_or("").to_owned();
    let streams = [&finished.stdout, &finished.stderr];
    let printed = streams.into_iter().find(|text| !text.is_empty());
    let printed = printed.expect("it prints something");
    assert_eq!(first_word(printed), first_word(expected), "{command:?}");
}

/// A reader at a shell.
struct Reader<'h> {
    host: &'h Host,
    /// Texts of the documents, and of this host.
    here: Vec<(&'static str, String)>,
    background: Vec<Running>,
}

impl<'h> Reader<'h> {
    fn of(host: &'h Host) -> Self {
        Self {
            host,
            here: Vec::new(),
            background: Vec::new(),
        }
    }

    fn here(&self, text: &str) -> String {
        let replaced = self.here.iter();
        replaced.fold(text.to_owned(), |text, (there, here)| {
            text.replace(there, here)
        })
    }

    fn end_background(&mut self) {
        for running in self.background.drain(..) {
            running.stop();
        }
    }

    /// Runs a line in a shell in which `plimsoll` is the program under test.
    fn run(&mut self, command: &Command) {
        let line = self.here(&command.line);
        let (line, is_background) = match line.strip_suffix(" &") {
            Some(line) => (format!("exec {line}"), true),
            None => (line, false),
        };
        if is_background {
            // The one before may have the same name.
            self.end_background();
        }
        let line = line.replace("plimsoll ", &format!("'{}' ", binary().display()));
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &line]);
        self.host.confine(&mut shell);
        let mut running = self.host.spawn(shell);
        if is_background {
            let name = line.split_once("--name ").unwrap().1;
            let group = self.host.batch(name.split(' ').next().unwrap());
            running.wait_until("its group is there", || {
                group.all_processes().is_ok_and(|all| !all.is_empty())
            });
            assert!(running.is_running(), "{}", running.stderr());
            self.background.push(running);
            return;
        }
        let output = command.output.iter().map(|line| self.here(line)).collect();
        let here = Command { line, output };
        assert_as_documented(&here, &running.finish());
    }
}

/// Commands that are none of Plimsoll's, take minutes, or need another user, file or setting of the
/// host.
fn is_left_out(command: &Command) -> bool {
    let out = ["demo", "--samples", "--plot", "tail"];
    !command.line.starts_with("plimsoll ")
        || out.iter().any(|word| command.line.contains(word))
        || command
            .output
            .iter()
            .any(|line| line.contains("permission denied"))
}

#[test]
fn commands_of_the_readme_and_of_pages_run_as_they_say() {
    for text in [README, STOCK_KERNELS, INTERFERENCE] {
        let host = Host::new();
        let mut reader = Reader::of(&host);
        reader.here = vec![
            ("make -j8", "true".to_owned()),
            ("--host-tuning", String::new()),
        ];
        let all = commands(text);
        let run = all.iter().filter(|command| !is_left_out(command));
        assert!(run.clone().count() > 0);
        run.for_each(|command| reader.run(command));
        reader.end_background();
    }
}

/// The outputs of the guide are those of cgroup v2.
mod v2_only {
    use super::*;
    use crate::rig::{Daemon, shown};

    #[test]
    fn commands_of_the_operators_guide_run_as_it_says() {
        let mut host = Host::new();
        let tenants = host.group("tenants.slice");
        tenants.enable_children().unwrap();
        for name in ["tenants.slice/anna", "tenants.slice/bert"] {
            host.group(name);
        }
        let mut daemon = Daemon::ready(&host, "");
        let mut reader = Reader::of(&host);
        let config = daemon.config().display().to_string();
        reader.here = vec![
            ("/tenants.slice", shown(&tenants)),
            ("/etc/plimsoll/plimsoll.toml", config.clone()),
            (
                "daemon --check",
                format!("daemon --check --config {config}"),
            ),
            // The next commands may take longer here.
            ("sleep 8", "sleep 100000".to_owned()),
        ];
        let text = blocks(GUIDE, "toml").remove(0).join("\n");
        let text = reader.here(&text) + "\n[metrics]\nlisten = \"none\"\n";
        daemon.write_raw(&text);
        for command in commands(GUIDE) {
            match &*command.line {
                "systemctl enable --now plimsoll" => daemon.restart(),
                "systemctl disable --now plimsoll" => {
                    reader.end_background();
                    let bert = shown(&tenants) + "/bert";
                    host.run(["set", &bert, "--quota", "20ms/100ms"]).good();
                    drop(daemon.end());
                }
                "plimsoll reload" => {
                    let is_bad = command.output[0].contains("clas");
                    let word = if is_bad { "clas =" } else { "class =" };
                    daemon.write_raw(&text.replace("class =", word));
                    reader.run(&command);
                }
                _ if is_left_out(&command) => (),
                _ => reader.run(&command),
            }
        }
    }
}

//! The configuration in force, and the file that it was read from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_engine::text_file::FileError;

use super::super::desired::Desired;
use crate::config::{Config, Rule};

pub(in crate::service) struct ConfigFile {
    /// Empty without a configuration file.
    path: PathBuf,
    config: Config,
    /// Pairs of overlapping groups of the file that were logged.
    overlaps_logged: BTreeSet<(String, String)>,
}

impl ConfigFile {
    /// Reads a file; `None`: the configuration of an owner that has none.
    pub fn read(path: Option<PathBuf>) -> Result<Self, FileError> {
        let Some(path) = path else {
            return Ok(Self::none());
        };
        Ok(Self {
            config: Config::read(&path)?,
            path,
            overlaps_logged: BTreeSet::new(),
        })
    }

    /// The configuration of an owner without a file.
    pub fn none() -> Self {
        Self {
            path: PathBuf::new(),
            config: Config::of_no_file(),
            overlaps_logged: BTreeSet::new(),
        }
    }

    /// Reads the file again, without putting it in force.
    pub fn read_again(&self) -> Result<Config, FileError> {
        Config::read(&self.path)
    }

    /// Puts another configuration in force; its overlaps are logged anew.
    pub fn replace(&mut self, config: Config) {
        self.config = config;
        self.overlaps_logged.clear();
    }

    /// Whether there is a file. It decides for all groups then.
    pub fn is_present(&self) -> bool {
        !self.path.as_os_str().is_empty()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.config.rules.iter().find(|rule| rule.name == name)
    }

    /// The note on the overlap of two groups of the file, the first time it is seen.
    pub fn new_overlap(&mut self, desired: &Desired) -> Option<String> {
        let note = desired.overlap_note()?;
        let pair = (desired.group.clone(), desired.overlap.clone()?);
        self.overlaps_logged.insert(pair).then_some(note)
    }
}

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::*;
use samples::{entry, header};

pub(super) mod samples {
    use super::*;

    pub fn header(name: &str) -> Header {
        Header {
            boot: None,
            version: VERSION,
            name: name.into(),
            pid: 1,
            subject: "true".into(),
        }
    }

    pub fn entry(path: &str) -> Entry {
        Entry::gone(Path::new(path))
    }
}

#[test]
fn a_kept_journal_is_not_taken_over_and_a_left_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::create(folder.path(), &header("a")).unwrap();
    let path = journal.path().to_owned();
    assert!(Journal::take_over(&path).unwrap().is_none());
    drop(journal);
    assert_eq!(list(folder.path()).unwrap(), std::slice::from_ref(&path));
    Journal::take_over(&path)
        .unwrap()
        .unwrap()
        .finish()
        .unwrap();
    assert!(Journal::take_over(&path).unwrap().is_none());
    assert!(list(folder.path()).unwrap().is_empty());
}

#[test]
fn a_name_is_taken_once() {
    let folder = tempfile::tempdir().unwrap();
    let _journal = Journal::create(folder.path(), &header("a")).unwrap();
    let error = Journal::create(folder.path(), &header("a")).unwrap_err();
    assert!(matches!(error, EngineError::NameTaken { .. }));
}

#[test]
fn a_journal_that_is_written_anew_says_the_same_and_stays_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), &header("a")).unwrap();
    let path = journal.path().to_owned();
    let entries: Vec<Entry> = (0..100).map(|n| entry(&n.to_string())).collect();
    journal.record(&entries).unwrap();
    let long = fs::metadata(&path).unwrap();
    journal.rewrite(&[entry("99")]).unwrap();
    let short = fs::metadata(&path).unwrap();
    assert!(short.len() < long.len() && short.mode() & 0o777 == 0o600);
    assert!(has_owner(folder.path()));
    assert!(Journal::take_over(&path).unwrap().is_none());
    journal.record(&[entry("x")]).unwrap();
    let (found, entries) = journal.read().unwrap();
    assert_eq!((found, entries.len()), (Some(header("a")), 2));
    drop(journal);
    assert!(Journal::take_over(&path).unwrap().is_some());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn one_that_was_replaced_between_open_and_lock_is_not_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.journal");
    fs::write(&path, "").unwrap();
    let file = File::open(&path, Access::Read).unwrap();
    assert!(is_at(&file, &path));
    fs::rename(&path, folder.path().join("other")).unwrap();
    assert!(!is_at(&file, &path));
    fs::write(&path, "").unwrap();
    assert!(!is_at(&file, &path));
}

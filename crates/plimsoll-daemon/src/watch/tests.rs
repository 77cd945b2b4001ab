//! Reported changes of folders, and of the cgroups of this host.

use std::fs;

use super::*;

fn appeared(path: &str) -> CgroupChange {
    CgroupChange::Appeared(path.into())
}

fn gone(path: &str) -> CgroupChange {
    CgroupChange::Gone(path.into())
}

fn start(folder: &Path) -> CgroupWatch {
    CgroupWatch::start(folder).unwrap().0
}

#[test]
fn a_tree_that_is_made_at_once_appears_once_and_goes_from_the_inside() {
    let folder = tempfile::tempdir().unwrap();
    let mut watch = start(folder.path());
    fs::create_dir_all(folder.path().join("a/b/c")).unwrap();
    fs::create_dir(folder.path().join("ab")).unwrap();
    let mut changes = watch.read_tree(os::now()).unwrap();
    changes.sort();
    assert_eq!(
        changes,
        [
            appeared("/a"),
            appeared("/a/b"),
            appeared("/a/b/c"),
            appeared("/ab")
        ]
    );
    fs::remove_dir_all(folder.path().join("a")).unwrap();
    let changes = watch.read_tree(os::now()).unwrap();
    assert_eq!(changes, [gone("/a/b/c"), gone("/a/b"), gone("/a")]);
    fs::create_dir(folder.path().join("a")).unwrap();
    assert_eq!(watch.read_tree(os::now()).unwrap(), [appeared("/a")]);
}

/// Asserts that these cgroups and no others are known, and that each path is kept once.
fn assert_known(watch: &CgroupWatch, expected: &[&str]) {
    let known: Vec<&str> = watch.watches.keys().map(|path| path.as_ref()).collect();
    assert_eq!(known, expected);
    let mut count = 0;
    for (path, known) in &watch.watches {
        let Known::Watched(Watches { tree, writes }) = known else {
            continue;
        };
        assert!(Arc::ptr_eq(path, &watch.tree.paths[tree]), "{path}");
        assert!(Arc::ptr_eq(path, &watch.writes.paths[writes]), "{path}");
        count += 1;
    }
    assert_eq!(count, watch.tree.paths.len());
    assert_eq!(count, watch.writes.paths.len());
    assert_eq!(watch.watches.len() - count, watch.unwatched);
    assert_eq!(watch.due.is_some(), watch.unwatched > 0);
}

#[test]
fn a_missing_root_is_an_error() {
    assert!(CgroupWatch::start(Path::new("/no/such/folder")).is_err());
}

#[test]
fn a_written_file_of_the_controller_is_reported_once_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("a");
    fs::create_dir(&own).unwrap();
    let mut watch = start(folder.path());
    assert_eq!(watch.read_writes().unwrap(), None);
    for file in [
        "cpu.max",
        "cgroup.procs",
        "memory.max",
        "cpu.idle",
        "cpu.max",
    ] {
        fs::write(own.join(file), "1").unwrap();
    }
    let written = CgroupChange::Written("/a".into());
    assert_eq!(
        watch.read_writes().unwrap().unwrap(),
        std::slice::from_ref(&written)
    );
    fs::write(own.join("tasks"), "1").unwrap();
    assert_eq!(watch.read_writes().unwrap().unwrap(), []);
    // A write to a cgroup that is gone is no write to the one in its place.
    fs::write(own.join("cpu.max"), "2").unwrap();
    fs::remove_dir_all(&own).unwrap();
    fs::create_dir(&own).unwrap();
    let changes = watch.read_tree(os::now()).unwrap();
    assert_eq!(changes, [gone("/a"), appeared("/a")]);
    assert_eq!(watch.read_writes().unwrap().unwrap(), []);
    fs::write(own.join("cpu.max"), "2").unwrap();
    assert_eq!(watch.read_writes().unwrap().unwrap(), [written]);
}

#[test]
fn a_cgroup_appears_while_writes_are_left_unread() {
    let folder = tempfile::tempdir().unwrap();
    let mut watch = start(folder.path());
    fs::create_dir(folder.path().join("a")).unwrap();
    fs::write(folder.path().join("cpu.max"), "1").unwrap();
    assert_eq!(watch.read_tree(os::now()).unwrap(), [appeared("/a")]);
    assert_eq!(watch.read_tree(os::now()).unwrap(), []);
    let written = CgroupChange::Written("/".into());
    assert_eq!(watch.read_writes().unwrap().unwrap(), [written]);
}

#[test]
fn a_followed_cgroup_that_goes_before_its_beginning_is_read_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut watch = start(folder.path());
    let cgroup = folder.path().join("a");
    fs::create_dir(&cgroup).unwrap();
    fs::write(cgroup.join(EVENTS), "").unwrap();
    assert!(watch.follow_processes("/a"));
    fs::remove_dir_all(&cgroup).unwrap();
    let changes = watch.read_tree(watch.tree.rests_until).unwrap();
    assert!(changes.contains(&gone("/a")), "{changes:?}");
    assert!(watch.followed.is_empty());
}

#[test]
fn unwatched_cgroups_are_read_periodically() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("a/b/c")).unwrap();
    let (mut watch, changes) = CgroupWatch::start_with(folder.path(), EventQueue::new, 2).unwrap();
    assert_eq!(changes.len(), 4);
    assert_known(&watch, &["/", "/a", "/a/b", "/a/b/c"]);
    assert_eq!(watch.unwatched, 2);
    assert!(
        watch
            .problem()
            .unwrap()
            .contains("fs.inotify.max_user_watches")
    );
    fs::create_dir(path("a/b/d")).unwrap();
    fs::remove_dir(path("a/b/c")).unwrap();
    let changes = watch.read_tree(watch.due.unwrap() - Duration::from_millis(1));
    assert_eq!(changes.unwrap(), []);
    let changes = watch.read_tree(watch.due.unwrap()).unwrap();
    let written = CgroupChange::Written("/a/b".into());
    assert_eq!(changes, [written, appeared("/a/b/d"), gone("/a/b/c")]);
    assert_known(&watch, &["/", "/a", "/a/b", "/a/b/d"]);
    // As if the limit had been raised.
    watch.watches_max = 9;
    watch.read_tree(watch.due.unwrap()).unwrap();
    assert_eq!((watch.unwatched, watch.due), (0, None));
    assert_known(&watch, &["/", "/a", "/a/b", "/a/b/d"]);
    fs::create_dir(path("a/b/d/e")).unwrap();
    assert_eq!(watch.read_tree(os::now()).unwrap(), [appeared("/a/b/d/e")]);
    fs::remove_dir_all(path("a")).unwrap();
    watch.read_tree(os::now()).unwrap();
    assert_known(&watch, &["/"]);
}

#[test]
fn without_an_inotify_instance_all_cgroups_are_read_periodically() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("a")).unwrap();
    for lacking in [Interest::Folders, Interest::Writes] {
        let open = |interest| match interest == lacking {
            true => Err(Errno::EMFILE.into()),
            false => EventQueue::new(interest),
        };
        let (mut watch, _) = CgroupWatch::start_with(folder.path(), open, usize::MAX).unwrap();
        assert_eq!(watch.unwatched, 2);
        assert!(
            watch
                .problem()
                .unwrap()
                .contains("fs.inotify.max_user_instances")
        );
        fs::create_dir(path("a/b")).unwrap();
        let changes = watch.read_tree(watch.due.unwrap()).unwrap();
        assert!(changes.contains(&appeared("/a/b")), "{changes:?}");
        fs::remove_dir(path("a/b")).unwrap();
        let changes = watch.read_tree(watch.due.unwrap()).unwrap();
        assert!(changes.contains(&gone("/a/b")), "{changes:?}");
    }
    let open = |_| Err(Errno::ENOMEM.into());
    assert!(CgroupWatch::start_with(folder.path(), open, usize::MAX).is_err());
}

#[test]
fn an_instance_that_the_limit_of_open_files_refuses_names_that_limit() {
    let no_file: io::Result<File> = Err(Errno::EMFILE.into());
    assert_eq!(limit_of_instances(&no_file), "of open files (ulimit -n)");
    let one = File::open("/");
    assert_eq!(limit_of_instances(&one), "fs.inotify.max_user_instances");
}

/// The room of a queue in events. `None`: too much to fill it; the test is skipped.
fn queue_limit() -> Option<usize> {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events");
    let limit: usize = limit.map_or(usize::MAX, |text| text.trim().parse().unwrap());
    if limit > 100_000 {
        crate::skipped::skip(&format!("the queue has room for {limit} events"));
        return None;
    }
    Some(limit)
}

#[test]
fn all_count_as_written_and_the_overflow_counts_after_the_queue_of_writes_ran_over() {
    let Some(limit) = queue_limit() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    let files = ["cpu.a", "cpu.b"].map(|name| fs::File::create(folder.path().join(name)).unwrap());
    let mut watch = start(folder.path());
    for number in 0..limit + 100 {
        // Equal events in a row are one event to the kernel.
        std::io::Write::write_all(&mut &files[number % 2], b"1").unwrap();
    }
    fs::create_dir_all(folder.path().join("late/below")).unwrap();
    let written = ["/", "/a"].map(|path| CgroupChange::Written(path.into()));
    assert_eq!(watch.read_writes().unwrap().unwrap(), written);
    assert_eq!(watch.lost, 1);
    let changes = watch.read_tree(os::now()).unwrap();
    assert_eq!(changes, [appeared("/late"), appeared("/late/below")]);
    assert_known(&watch, &["/", "/a", "/late", "/late/below"]);
}

//! Parsers of `/proc/PID/mountinfo` and `/proc/PID/cgroup`.
//!
//! Names are bytes: the name of a cgroup can contain anything but a slash and a line break.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use nix::sys::stat::makedev;

use crate::files::read_text;
use crate::os;
use crate::version::Version;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub version: Version,
    /// Cgroup that is mounted, as seen from this process's cgroup namespace.
    pub root: PathBuf,
    pub point: PathBuf,
    /// Device number of the file system. `None`: the kernel's line has none.
    device: Option<u64>,
    options: Vec<Vec<u8>>,
}

impl Mount {
    /// Returns whether another file system is mounted over this one, or over a folder above it.
    pub fn is_hidden(&self) -> bool {
        match os::look(&self.point) {
            Ok(found) => self.device.is_some_and(|device| device != found.device),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// v1: returns whether this hierarchy has the controller.
    pub fn has(&self, controller: &str) -> bool {
        self.version == Version::V1 && self.options.iter().any(|o| o == controller.as_bytes())
    }
}

/// Lists the processes that have these threads. Those that have ended are left out.
pub(crate) fn processes_of(tids: &[i32]) -> Vec<i32> {
    let process_of = |tid: &i32| {
        let text = read_text(Path::new(&format!("/proc/{tid}/status"))).ok()?;
        let pid = text.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
        pid.trim().parse().ok()
    };
    tids.iter().filter_map(process_of).collect()
}

/// Lists the cgroup file systems that this process sees.
pub(crate) fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse_mounts(&os::read(Path::new("/proc/self/mountinfo"))?))
}

fn parse_mounts(text: &[u8]) -> Vec<Mount> {
    lines(text).filter_map(parse_mount).collect()
}

/// Parses a line such as `36 35 98:0 /root /point rw,noatime shared:1 - cgroup source rw,cpu`
/// (proc(5)).
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = device_number(fields.nth(2)?);
    let root = unescaped(fields.next()?);
    let point = unescaped(fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let version = match fields.next()? {
        b"cgroup" => Version::V1,
        b"cgroup2" => Version::V2,
        _ => return None,
    };
    let options = fields.nth(1)?.split(|byte| *byte == b',');
    Some(Mount {
        version,
        root,
        point,
        device,
        options: options.map(<[u8]>::to_vec).collect(),
    })
}

/// Parses the number of a device that is written as `98:0`.
fn device_number(field: &[u8]) -> Option<u64> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Decodes octal escapes such as `\040` of space, tab, line break and backslash.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let code = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    /// Number of the hierarchy; 0 for v2.
    hierarchy: u32,
    controllers: Vec<Vec<u8>>,
    /// Path as seen from this process's cgroup namespace; outside of it the path begins with `/..`.
    pub cgroup: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Memberships(Vec<Membership>);

impl Memberships {
    pub fn own() -> io::Result<Self> {
        Ok(Self::parse(&os::read(Path::new("/proc/self/cgroup"))?))
    }

    /// Reads the memberships of a process or of one thread.
    pub fn of(pid: i32) -> io::Result<Self> {
        Ok(Self::parse(&os::read(Path::new(&format!(
            "/proc/{pid}/cgroup"
        )))?))
    }

    fn parse(text: &[u8]) -> Self {
        Self(lines(text).filter_map(parse_membership).collect())
    }

    /// Finds the membership in the v2 hierarchy, or in the hierarchy of a v1 controller.
    pub fn find(&self, version: Version, controller: &str) -> Option<&Membership> {
        self.0.iter().find(|membership| match version {
            Version::V2 => membership.hierarchy == 0,
            Version::V1 => {
                let mut controllers = membership.controllers.iter();
                membership.hierarchy != 0 && controllers.any(|c| c == controller.as_bytes())
            }
        })
    }
}

/// Parses `4:cpu,cpuacct:/path` of v1, `0::/path` of v2.
fn parse_membership(line: &[u8]) -> Option<Membership> {
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let hierarchy = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let controllers = fields.next()?.split(|byte| *byte == b',');
    let controllers = controllers.map(<[u8]>::to_vec).collect();
    let cgroup = OsString::from_vec(fields.next()?.to_vec()).into();
    Some(Membership {
        hierarchy,
        controllers,
        cgroup,
    })
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    pub(crate) fn mounts_of(text: &str) -> Vec<Mount> {
        parse_mounts(text.as_bytes())
    }

    pub(crate) fn memberships_of(text: &str) -> Memberships {
        Memberships::parse(text.as_bytes())
    }

    #[test]
    fn mounts_are_cgroup_file_systems_with_their_controllers() {
        let found = mounts_of(
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
             25 24 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n\
             26 25 0:23 /a /sys/fs/cgroup/cpu rw shared:7 master:2 - cgroup cgroup rw,cpuacct,cpu\n\
             27 25 0:24 /../.. /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n\
             not a line\n",
        );
        let [v1, v2] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(v1.point, Path::new("/sys/fs/cgroup/cpu"));
        assert_eq!(v1.root, Path::new("/a"));
        assert!(v1.has("cpu") && v1.has("cpuacct") && !v1.has("cpuset"));
        assert_eq!(v2.root, Path::new("/../.."));
        assert!(v2.version == Version::V2 && !v2.has("cpu"));
    }

    #[test]
    fn a_mount_is_hidden_if_its_point_is_of_another_file_system_or_gone() {
        let folder = tempfile::tempdir().unwrap();
        let device = os::look(folder.path()).unwrap().device;
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let is_hidden = |minor: u64, name: &str| {
            let point = folder.path().join(name);
            let point = point.display();
            let line = format!("26 25 {major}:{minor} / {point} rw - cgroup2 none rw\n");
            mounts_of(&line)[0].is_hidden()
        };
        assert!(!is_hidden(minor, ""));
        assert!(is_hidden(minor + 1, ""));
        assert!(is_hidden(minor, "gone"));
    }

    #[test]
    fn memberships_are_found_by_controller_and_keep_names_that_are_not_text() {
        let text = b"12:cpu,cpuacct:/a:b\n3:cpuset:/x\n1:name=systemd:/y\n0::/\xff\n";
        let found = Memberships::parse(text);
        let cgroup = |version, name| found.find(version, name).map(|m| m.cgroup.as_path());
        assert_eq!(cgroup(Version::V1, "cpu"), Some(Path::new("/a:b")));
        assert_eq!(cgroup(Version::V1, "cpuset"), Some(Path::new("/x")));
        assert_eq!(cgroup(Version::V1, "memory"), None);
        let v2 = Path::new(OsStr::from_bytes(b"/\xff"));
        assert_eq!(cgroup(Version::V2, "cpu"), Some(v2));
    }

    /// Encodes a path as the kernel does (`seq_path_root` with " \t\n\\").
    fn escaped(path: &[u8]) -> Vec<u8> {
        let escape = |byte: &u8| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            other => vec![*other],
        };
        path.iter().flat_map(escape).collect()
    }

    proptest! {
        #[test]
        fn any_mount_point_is_read_back(name in proptest::collection::vec(1u8..=255, 0..40)) {
            let point = [b"/", &name[..]].concat();
            let mut line = b"1 2 0:3 / ".to_vec();
            line.extend(escaped(&point));
            line.extend(b" rw - cgroup2 none rw");
            let found = parse_mounts(&line);
            prop_assert_eq!(found[0].point.as_os_str().as_bytes(), &point[..]);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse_mounts(&text);
            Memberships::parse(&text);
        }
    }
}

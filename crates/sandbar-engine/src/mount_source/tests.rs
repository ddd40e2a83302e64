use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;

use rustix::fs::FileType;

use super::bound::Bound;
use super::known::{CONTROL_SOCKETS, expand};
use super::open::{Allowed, Source, open};
use super::walk::Bounds;

#[test]
fn an_ordinary_folder_is_fine_and_the_data_folder_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (data, project) = (dir.path().join("data"), dir.path().join("project"));
    std::fs::create_dir_all(data.join("sandboxes")).unwrap();
    std::fs::create_dir(&project).unwrap();
    open(&project, &data, &Allowed::default()).unwrap();
    for bad in [data.clone(), data.join("sandboxes"), dir.path().to_owned()] {
        let error = open(&bad, &data, &Allowed::default()).unwrap_err();
        assert!(error.to_string().contains("data folder"), "{error}");
        assert!(error.hint().is_some());
    }
    open(&data, &data, &Allowed::default().with_name(&data)).unwrap();
}

#[test]
fn a_link_to_a_refused_place_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    symlink(&data, dir.path().join("link")).unwrap();
    assert!(open(&dir.path().join("link"), &data, &Allowed::default()).is_err());
    symlink("/proc", dir.path().join("proc")).unwrap();
    assert!(open(&dir.path().join("proc"), &data, &Allowed::default()).is_err());
}

#[test]
fn a_socket_needs_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let nowhere = Path::new("/nonexistent-data");
    assert!(open(&path, nowhere, &Allowed::default()).is_err());
    open(&path, nowhere, &Allowed::default().with_name(&path)).unwrap();
}

#[test]
fn a_folder_where_something_listens_is_refused_while_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = Path::new("/nonexistent-data");
    let below = dir.path().join("a b");
    std::fs::create_dir(&below).unwrap();
    let path = below.join("some name.sock");
    let listener = UnixListener::bind(&path).unwrap();
    for folder in [dir.path(), below.as_path()] {
        let error = open(folder, nowhere, &Allowed::default()).unwrap_err();
        assert!(error.to_string().contains("some name.sock"), "{error}");
    }
    open(dir.path(), nowhere, &Allowed::default().with_name(&path)).unwrap();
    drop(listener);
    // Its file is still there, and where names are clear it is known that nobody answers.
    with_bound(dir.path(), &Bound::default(), Bounds::default(), &Allowed::default()).unwrap();
}

#[test]
fn the_root_holds_control_sockets() {
    if CONTROL_SOCKETS.iter().all(|pattern| expand(pattern).is_empty()) {
        println!("not tried: no control socket of the list is on this host");
        return;
    }
    let error = open(Path::new("/"), Path::new("/nonexistent-data"), &Allowed::default()).unwrap_err();
    assert!(error.to_string().contains("it is or holds"), "{error}");
}

#[test]
fn what_a_pattern_means() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("1000/pipewire-0")).unwrap();
    std::fs::create_dir_all(dir.path().join("1001")).unwrap();
    let pattern = format!("{}/*/pipewire-*", dir.path().display());
    assert_eq!(expand(&pattern), [dir.path().join("1000/pipewire-0")]);
}

/// Checks `folder` on a host where these sockets are known.
fn with_bound(folder: &Path, bound: &Bound, bounds: Bounds, allowed: &Allowed) -> Result<(), String> {
    let file = std::fs::File::open(folder).unwrap();
    let real = std::fs::canonicalize(folder).unwrap();
    let source = Source { given: folder, real: &real, fd: file.as_fd(), kind: FileType::Directory };
    source.check_sockets(bound, bounds, allowed).map_err(|error| error.to_string())
}

fn unclear() -> Bound {
    Bound { paths: Vec::new(), elsewhere: true }
}

#[test]
fn a_socket_bound_by_a_descriptors_path_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = Path::new("/nonexistent-data");
    let folder = std::fs::File::open(dir.path()).unwrap();
    let name = format!("/proc/self/fd/{}/agent.sock", folder.as_raw_fd());
    let _listener = UnixListener::bind(name).unwrap();
    drop(folder);
    let error = open(dir.path(), nowhere, &Allowed::default()).unwrap_err();
    assert!(error.to_string().contains("agent.sock"), "{error}");
    open(dir.path(), nowhere, &Allowed::default().with_name(dir.path().join("agent.sock"))).unwrap();
    open(dir.path(), nowhere, &Allowed::default().with_name(dir.path())).unwrap();
}

#[test]
fn a_socket_for_datagrams_is_found_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let _socket = UnixDatagram::bind(dir.path().join("log")).unwrap();
    let error = open(dir.path(), Path::new("/nonexistent-data"), &Allowed::default()).unwrap_err();
    assert!(error.to_string().contains("/log"), "{error}");
}

#[test]
fn what_has_been_moved_is_found_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (dir.path().join("before"), dir.path().join("after"));
    std::fs::create_dir_all(before.join("deep/er")).unwrap();
    let _listener = UnixListener::bind(before.join("deep/er/s")).unwrap();
    std::fs::rename(&before, &after).unwrap();
    let error = open(&after, Path::new("/nonexistent-data"), &Allowed::default()).unwrap_err();
    assert!(error.to_string().contains("after/deep/er/s"), "{error}");
}

#[test]
fn any_data_folder_is_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("a/other");
    std::fs::create_dir_all(other.join("sandboxes/one")).unwrap();
    std::fs::write(other.join("version"), "1\n").unwrap();
    let nowhere = Path::new("/nonexistent-data");
    for bad in [other.clone(), other.join("sandboxes"), other.join("sandboxes/one")] {
        let error = open(&bad, nowhere, &Allowed::default()).unwrap_err();
        assert!(error.to_string().contains("data folder"), "{error}");
        open(&bad, nowhere, &Allowed::default().with_name(&other)).unwrap();
    }
    let error = with_bound(dir.path(), &unclear(), Bounds::default(), &Allowed::default()).unwrap_err();
    assert!(error.contains("data folder") && error.contains("a/other"), "{error}");
}

#[test]
fn a_walk_follows_no_link_and_has_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    std::fs::create_dir_all(inside.join("one/two")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    let _listener = UnixListener::bind(outside.join("s")).unwrap();
    symlink(&outside, inside.join("link")).unwrap();
    symlink("../outside/s", inside.join("socket")).unwrap();
    let fine = Allowed::default();
    let many = |entries| Bounds { entries, ..Bounds::default() };
    with_bound(&inside, &unclear(), many(4), &fine).unwrap();
    let error = with_bound(&inside, &unclear(), many(3), &fine).unwrap_err();
    assert!(error.contains("more than 3 entries") && error.contains("narrower"), "{error}");
    let now = Bounds { time: std::time::Duration::ZERO, ..Bounds::default() };
    assert!(with_bound(&inside, &unclear(), now, &fine).unwrap_err().contains("took more than"));
    // Where every name is clear there is nothing to look for.
    with_bound(&inside, &Bound::default(), many(0), &fine).unwrap();
    assert!(with_bound(&outside, &unclear(), many(4), &fine).is_err());
}

#[test]
fn what_another_mount_hides_is_what_the_mount_shows() {
    if !rustix::process::geteuid().is_root() {
        println!("not tried: only root may mount over a folder");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let _listener = UnixListener::bind(below.join("s")).unwrap();
    rustix::mount::mount("tmpfs", &below, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    let hidden = with_bound(dir.path(), &unclear(), Bounds::default(), &Allowed::default());
    let _shown = UnixListener::bind(below.join("not-in-the-mount")).unwrap();
    rustix::mount::unmount(&below, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(hidden.unwrap_err().contains("below/s"));
}

use std::path::{Path, PathBuf};

/// What connects to one of these has the rights of what listens. `*` stands for the rest of one name.
pub(super) const CONTROL_SOCKETS: &[&str] = &[
    "/run/docker.sock",
    "/run/docker",
    "/run/podman",
    "/run/containerd",
    "/run/crio",
    "/run/cri-dockerd.sock",
    "/run/buildkit",
    "/run/snapd.socket",
    "/run/snapd-snap.socket",
    "/run/dbus",
    "/run/systemd",
    "/run/udev/control",
    "/run/libvirt",
    "/run/lxd",
    "/run/incus",
    "/var/lib/lxd/unix.socket",
    "/var/lib/incus/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/run/user/*/docker.sock",
    "/run/user/*/podman",
    "/run/user/*/containerd",
    "/run/user/*/bus",
    "/run/user/*/systemd",
    "/run/user/*/pulse",
    "/run/user/*/pipewire-*",
    "/run/user/*/wayland-*",
    "/run/user/*/gnupg",
    "/run/user/*/keyring",
    "/run/user/*/ssh-agent*",
    "/tmp/.X11-unix",
    "/tmp/ssh-*",
    "/home/*/.gnupg",
    "/home/*/.docker/run",
    "/home/*/.docker/desktop",
    "/home/*/.ssh/agent",
    "/root/.gnupg",
];

/// Folders whose whole content is the kernel's own.
pub(super) const KERNEL_FOLDERS: &[&str] = &["/proc", "/sys", "/dev"];

/// Where Sandbar's data folders are by default, for root and for everybody else.
pub(super) const DATA_FOLDERS: &[&str] =
    &["/var/lib/sandbar", "/root/.local/share/sandbar", "/home/*/.local/share/sandbar"];

/// What every data folder of Sandbar's holds at its top, wherever it is: a folder and a file.
pub(super) const DATA_MARKS: (&str, &str) = ("sandboxes", "version");

/// Whether this is the top of a data folder.
pub(super) fn is_data_folder(path: &Path) -> bool {
    let (folder, file) = DATA_MARKS;
    let look = |name: &str| std::fs::symlink_metadata(path.join(name));
    look(folder).is_ok_and(|data| data.is_dir()) && look(file).is_ok_and(|data| data.is_file())
}

/// Every existing path that a pattern means.
pub(super) fn expand(pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = found.into_iter().flat_map(|dir| step(&dir, part)).collect();
    }
    found.retain(|path| std::fs::symlink_metadata(path).is_ok());
    found
}

fn step(dir: &Path, part: &str) -> Vec<PathBuf> {
    let Some(start) = part.strip_suffix('*') else { return vec![dir.join(part)] };
    let Ok(names) = std::fs::read_dir(dir) else { return Vec::new() };
    names
        .filter_map(Result::ok)
        .map(|entry| entry.file_name())
        .filter(|name| name.as_encoded_bytes().starts_with(start.as_bytes()))
        .map(|name| dir.join(name))
        .collect()
}

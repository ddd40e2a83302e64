use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Home, both, code};

/// Two ordinary users; nobody's elsewhere, as in the runs of these tests as an ordinary user.
const USERS: [u32; 2] = [61_001, 61_002];

/// `sandbar`, a copy that everybody may run, as another user, whose data folder is `data`.
fn as_user(executable: &Path, user: u32, data: &Path, arguments: &[&str]) -> Output {
    let user = user.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps=-all", "--"]);
    command.arg(executable).args(arguments).env_clear().current_dir("/");
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("SANDBAR_HOME", data).env("HOME", data);
    command.output().expect("setpriv starts")
}

fn ids(output: &Output) -> Vec<String> {
    let records: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", both(output)));
    let ids = records.as_array().unwrap().iter().map(|record| record["id"].as_str().unwrap().to_owned());
    ids.collect()
}

#[test]
fn users_do_not_see_or_touch_each_others_sandboxes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be two users");
        return;
    }
    let home = Home::new();
    let of_root = home.create(&[]);
    let stage = tempfile::tempdir().unwrap();
    std::fs::set_permissions(stage.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let executable = stage.path().join("sandbar");
    std::fs::copy(env!("CARGO_BIN_EXE_sandbar"), &executable).unwrap();
    let folders = USERS.map(|user| {
        let folder = stage.path().join(user.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&folder, Some(user), Some(user)).unwrap();
        folder
    });
    let data = [folders[0].join("data"), folders[1].join("data")];
    let created = as_user(&executable, USERS[0], &data[0], &["create"]);
    assert_eq!(code(&created), 0, "{}", both(&created));
    let theirs = String::from_utf8(created.stdout).unwrap().trim().to_owned();
    // Each has its own list.
    assert_eq!(
        ids(&as_user(&executable, USERS[0], &data[0], &["ls", "--json"])),
        std::slice::from_ref(&theirs)
    );
    assert_eq!(ids(&as_user(&executable, USERS[1], &data[1], &["ls", "--json"])), Vec::<String>::new());
    assert_eq!(ids(&home.run(&["ls", "--json"])), std::slice::from_ref(&of_root));
    // A shared data folder is refused with the reason, and nothing is said to be absent.
    for arguments in [&["ls"][..], &["describe", &theirs], &["destroy", &theirs], &["create"], &["stats"]] {
        for data in [&data[0], home.data()] {
            let refused = as_user(&executable, USERS[1], data, arguments);
            let told = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(code(&refused), 125, "{arguments:?} {}: {}", data.display(), both(&refused));
            assert!(told.contains(data.to_str().unwrap()), "{told}");
        }
    }
    // Root itself does not take over a folder of somebody else's.
    let by_root = home.sandbar(&["ls"]).env("SANDBAR_HOME", &data[0]).output().unwrap();
    assert_eq!(code(&by_root), 125, "{}", both(&by_root));
    assert_eq!(
        ids(&as_user(&executable, USERS[0], &data[0], &["ls", "--json"])),
        std::slice::from_ref(&theirs)
    );
    let destroyed = as_user(&executable, USERS[0], &data[0], &["destroy", &theirs]);
    assert_eq!(code(&destroyed), 0, "{}", both(&destroyed));
}

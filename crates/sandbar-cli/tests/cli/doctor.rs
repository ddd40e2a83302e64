//! What `doctor` says about a machine that lacks something, and that `create` says the same. Each lack is made for real, in namespaces of the test's
//! own; as an ordinary user those are of a user namespace in which the user has its own id.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use serde_json::Value;

use crate::harness::{Home, both, code};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The start of a command that changes the surroundings by `script` and then runs what follows it, as the user who runs this.
fn surroundings(script: &str) -> Vec<String> {
    let mut start: Vec<String> = vec!["unshare".into()];
    let mut whole = String::new();
    if !is_root() {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        start.extend([
            "--user".into(),
            format!("--map-user={user}"),
            format!("--map-group={group}"),
            "--keep-caps".into(),
        ]);
        // There is one id in there, so there are no subordinate ones to be mapped.
        whole.push_str("mount --bind /dev/null /etc/subuid\n");
    }
    whole.push_str(script);
    let run =
        if is_root() { "\nexec \"$@\"" } else { "\nexec setpriv --inh-caps=-all --ambient-caps=-all \"$@\"" };
    whole.push_str(run);
    start.extend(["--mount", "--propagation", "private", "sh", "-euc"].map(str::to_owned));
    start.extend([whole, "sh".to_owned()]);
    start
}

/// `sandbar ARGUMENTS…` in surroundings that `script` makes, in which `$HOME_FOLDER` is the folder that the data folder is in.
fn among(home: &Home, script: &str, arguments: &[&str]) -> Command {
    let start = surroundings(script);
    let start: Vec<&str> = start.iter().map(String::as_str).collect();
    let mut command = home.sandbar_by(&start, arguments);
    command.env("HOME_FOLDER", home.data().parent().expect("a folder"));
    // Where ids are not mapped, the file's owner is nobody's, so it has to be named to be trusted.
    command.env("SANDBAR_HELPER", env!("CARGO_BIN_EXE_sandbar"));
    command
}

fn run(command: &mut Command) -> Output {
    command.output().expect("it starts")
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

fn finding<'a>(report: &'a Value, id: &str) -> &'a Value {
    let conditions = report["conditions"].as_array().expect("an array");
    conditions.iter().find(|condition| condition["id"] == id).unwrap_or_else(|| panic!("no condition `{id}`"))
}

/// Asserts that the condition has this fault, and answers the finding.
fn assert_fault(output: &Output, fault: &str, state: &str) -> Value {
    let report = json(&output.stdout);
    let id = fault.split('/').next().expect("an id");
    let found = finding(&report, id);
    assert_eq!((&found["fault"], &found["state"]), (&fault.into(), &state.into()), "{}", both(output));
    // Without systemd there is nobody to ask for control groups.
    let has_remedy = id != "cgroups" || std::path::Path::new("/run/systemd/system").exists();
    assert!(!has_remedy || !found["remedies"].as_array().expect("an array").is_empty(), "{found}");
    assert!(found["cost"].as_str().is_some_and(|cost| !cost.is_empty()), "{found}");
    found.clone()
}

/// Asserts that a failed creation says what the finding says, and how to mend it.
fn assert_same_words(failed: &Output, found: &Value) {
    assert_eq!(code(failed), 125, "{}", both(failed));
    let error = &json(&failed.stderr)["error"];
    let id = found["id"].as_str().expect("an id");
    assert_eq!(error["resource"], format!("host condition `{id}`"), "{error}");
    let says = found["says"].as_str().expect("words");
    assert!(
        error["message"].as_str().is_some_and(|message| message.contains(says)),
        "{error} without {says}"
    );
    for remedy in found["remedies"].as_array().expect("an array") {
        let remedy = remedy.as_str().expect("a command");
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains(remedy)), "{error} without {remedy}");
    }
}

/// In these surroundings, `doctor` finds this fault and says that no sandbox can be made, and `create` fails with the same words.
fn stops_creation(script: &str, fault: &str) -> Value {
    let home = Home::new();
    let report = run(&mut among(&home, script, &["doctor", "--json"]));
    let found = assert_fault(&report, fault, "missing");
    assert_eq!((code(&report), &json(&report.stdout)["fit"]), (1, &false.into()), "{}", both(&report));
    assert_same_words(&run(&mut among(&home, script, &["create", "--json"])), &found);
    home.assert_empty();
    found
}

#[test]
fn a_report_has_every_condition_once_in_both_forms() {
    let home = Home::new();
    let output = home.run(&["doctor", "--json"]);
    let report = json(&output.stdout);
    assert_eq!(
        (code(&output), &report["version"], &report["fit"]),
        (0, &1.into(), &true.into()),
        "{}",
        both(&output)
    );
    let conditions = report["conditions"].as_array().expect("an array");
    assert!(conditions.len() >= 14);
    let text = home.text(&["doctor"]);
    for condition in conditions {
        let id = condition["id"].as_str().expect("an id");
        assert_eq!(text.lines().filter(|line| line.split_whitespace().next() == Some(id)).count(), 1, "{id}");
        assert!(
            ["ok", "warning", "missing", "unknown"].contains(&condition["state"].as_str().expect("a state"))
        );
        for remedy in condition["remedies"].as_array().expect("an array") {
            let line = format!("      mend:  {}", remedy.as_str().expect("a command"));
            assert!(text.lines().any(|known| known == line), "no line for `{line}`");
        }
    }
    // Nothing is made by looking.
    assert!(!home.data().exists());
}

#[test]
fn it_looks_at_this_machine_only() {
    let home = Home::new();
    assert_eq!(code(&home.run(&["doctor", "--provider", "e2b:"])), 2);
    let there = home.data().join("elsewhere");
    let url = format!("local:{}", there.display());
    let report = home.json(&["doctor", "--json", "--provider", &url]);
    let seen = finding(&report, "data-folder")["observed"].as_str().expect("text");
    assert!(seen.contains(there.to_str().expect("text")), "{seen}");
}

#[test]
fn user_namespaces_switched_off() {
    if is_root() {
        println!("skipped: as root this is a setting of the whole machine");
        return;
    }
    let found = stops_creation("echo 0 >/proc/sys/user/max_user_namespaces", "user-namespaces/off");
    assert!(
        found["remedies"][0].as_str().expect("a command").contains("user.max_user_namespaces = "),
        "{found}"
    );
}

#[test]
fn procfs_covered_in_part_as_in_a_container() {
    let found = stops_creation("mount --bind /dev/null /proc/keys", "procfs/covered");
    assert!(found["observed"].as_str().expect("text").contains("/proc/keys"), "{found}");
}

#[test]
fn a_data_folder_on_an_overlay() {
    stops_creation(
        "mount -t tmpfs t /mnt; mkdir /mnt/l /mnt/u /mnt/w
         mount -t overlay -o userxattr,lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w o \"$HOME_FOLDER\"",
        "overlay/on-overlay",
    );
}

#[test]
fn a_disk_that_is_full_of_bytes_or_of_files() {
    stops_creation("mount -t tmpfs -o size=64k,mode=700 t \"$HOME_FOLDER\"", "disk-room/full");
    stops_creation("mount -t tmpfs -o nr_inodes=20,mode=700 t \"$HOME_FOLDER\"", "inode-room/full");
}

#[test]
fn limits_of_this_process() {
    stops_creation("ulimit -n 100", "open-files/none");
    stops_creation("ulimit -f 1", "file-size/none");
}

#[test]
fn no_room_for_processes() {
    if is_root() {
        println!("skipped: root is not bound by such a limit");
        return;
    }
    // The kernel counts them in the user namespace that this is in.
    // Not every `sh` has a `ulimit` for this.
    stops_creation("prlimit --pid $$ --nproc=1", "processes/used-up");
}

#[test]
fn a_data_folder_that_others_may_enter() {
    let home = Home::new();
    std::fs::create_dir(home.data()).expect("a folder");
    let set = |mode| {
        std::fs::set_permissions(home.data(), std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    set(0o755);
    let report = home.run(&["doctor", "--json"]);
    let found = assert_fault(&report, "data-folder/open-to-others", "missing");
    assert_eq!(found["remedies"][0], format!("chmod 700 {}", home.data().display()));
    assert_same_words(&home.run(&["create", "--json"]), &found);
    set(0o700);
}

#[test]
fn root_without_roots_rights() {
    let home = Home::new();
    let (prefix, fault): (&[&str], _) = if is_root() {
        (&["setpriv", "--bounding-set=-sys_admin"], "root-rights/capabilities")
    } else {
        (&["unshare", "--user", "--map-root-user"], "root-rights/ids")
    };
    let run_by = |arguments: &[&str]| {
        // As root of another namespace one does not own the file, so it has to be named to be trusted.
        run(home.sandbar_by(prefix, arguments).env("SANDBAR_HELPER", env!("CARGO_BIN_EXE_sandbar")))
    };
    let found = assert_fault(&run_by(&["doctor", "--json"]), fault, "missing");
    assert_same_words(&run_by(&["create", "--json"]), &found);
    // A sandbox could be made and not be ended.
    if is_root() {
        let prefix = ["setpriv", "--bounding-set=-kill"];
        let failed = run(&mut home.sandbar_by(&prefix, &["create", "--json"]));
        assert_same_words(
            &failed,
            &assert_fault(&run(&mut home.sandbar_by(&prefix, &["doctor", "--json"])), fault, "missing"),
        );
    }
    home.assert_empty();
}

#[test]
fn a_chroot() {
    if !is_root() {
        println!("skipped: only root makes a chroot");
        return;
    }
    let home = Home::new();
    let script = "mkdir -p \"$HOME_FOLDER/root/proc\" \"$HOME_FOLDER/root/data\"; chmod 755 \"$HOME_FOLDER\"; chmod 777 \"$HOME_FOLDER/root/data\"
         cp \"$1\" \"$HOME_FOLDER/root/sandbar\"; mount -t proc proc \"$HOME_FOLDER/root/proc\"; shift
         set -- chroot --userspec=65534:65534 \"$HOME_FOLDER/root\" /sandbar \"$@\"";
    let mut command = among(&home, script, &["doctor", "--json", "--provider", "local:/data/x"]);
    let found = assert_fault(&run(&mut command), "user-namespaces/chroot", "missing");
    assert!(found["remedies"][0].as_str().expect("a command").contains("pivot_root"), "{found}");
}

/// A made-up helper, first in what `doctor` and `create` look at.
fn with_helper(home: &Home, script: &str, arguments: &[&str]) -> Output {
    let file = home.current().join("helper");
    std::fs::write(&file, script).expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    run(home.sandbar(arguments).env("SANDBAR_HELPER", file))
}

#[test]
fn a_helper_that_is_absent_strange_or_of_another_version() {
    let home = Home::new();
    let absent = |arguments: &[&str]| run(home.sandbar(arguments).env("SANDBAR_HELPER", "/nonexistent-9"));
    let found = assert_fault(&absent(&["doctor", "--json"]), "helper/missing", "missing");
    assert_same_words(&absent(&["create", "--json"]), &found);
    let strange = "#!/bin/sh\nread -r orders\necho no such thing\n";
    let found =
        assert_fault(&with_helper(&home, strange, &["doctor", "--json"]), "helper/strange", "missing");
    assert_same_words(&with_helper(&home, strange, &["create", "--json"]), &found);
    let other = "#!/bin/sh\necho '{\"version\": \"99.0.0\"}'\n";
    let found = assert_fault(&with_helper(&home, other, &["doctor", "--json"]), "helper/version", "warning");
    assert!(found["observed"].as_str().expect("text").contains("99.0.0"), "{found}");
    // One that never answers is not waited for without end, and nothing of it is left.
    let babble = "#!/bin/sh\nwhile :; do echo babble; done\n";
    assert_fault(&with_helper(&home, babble, &["doctor", "--json"]), "helper/strange", "missing");
}

#[test]
fn runsc_absent_and_failing() {
    let home = Home::new();
    let with_path = |path: &std::path::Path| run(home.sandbar(&["doctor", "--json"]).env("PATH", path));
    let empty = home.current().join("empty");
    std::fs::create_dir(&empty).expect("a folder");
    assert_fault(&with_path(&empty), "runsc/absent", "missing");
    std::fs::write(home.current().join("runsc"), "#!/bin/sh\nexit 128\n").expect("a file");
    assert_fault(&with_path(home.current()), "runsc/fails", "missing");
    let set = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(home.current().join("runsc"), set.clone()).expect("a mode");
    assert_fault(&with_path(home.current()), "runsc/fails", "missing");
    std::fs::write(home.current().join("runsc"), "#!/bin/sh\necho runsc version release-1\n")
        .expect("a file");
    let output = with_path(home.current());
    let report = json(&output.stdout);
    assert_eq!(finding(&report, "runsc")["state"], "ok", "{}", both(&output));
    // What is optional does not make a machine unfit.
    assert_eq!(report["fit"], true);
    // What anybody may have written is not run, nor what lies where anybody may put it.
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let (file, mark) = (home.current().join("runsc"), home.current().join("it-ran"));
    std::fs::write(&file, format!("#!/bin/sh\n: >{}\n", mark.display())).expect("a file");
    mode(&file, 0o777);
    assert_fault(&with_path(home.current()), "runsc/untrusted", "missing");
    mode(&file, 0o755);
    mode(home.current(), 0o777);
    assert_fault(&with_path(home.current()), "runsc/untrusted", "missing");
    assert!(!mark.exists(), "it was run");
    mode(home.current(), 0o700);
    with_path(home.current());
    assert!(mark.exists(), "it was not run");
}

#[test]
fn kvm_absent_broken_and_forbidden() {
    let home = Home::new();
    let own_dev = "mount -t tmpfs d /mnt
        for name in null zero full random urandom tty; do touch /mnt/$name; mount --bind /dev/$name /mnt/$name; done\n";
    let doctor = |script: &str| run(&mut among(&home, script, &["doctor", "--json"]));
    assert_fault(&doctor(&format!("{own_dev} mount --rbind /mnt /dev")), "kvm/absent", "missing");
    let broken =
        format!("{own_dev} touch /mnt/kvm; mount --bind /dev/null /mnt/kvm; mount --rbind /mnt /dev");
    assert_fault(&doctor(&broken), "kvm/broken", "missing");
    if !is_root() {
        let closed = format!("{own_dev} touch /mnt/kvm; chmod 0 /mnt/kvm; mount --rbind /mnt /dev");
        assert_fault(&doctor(&closed), "kvm/forbidden", "missing");
    }
}

/// Surroundings without control groups.
fn without_groups() -> (&'static str, &'static str) {
    if is_root() {
        ("umount -R /sys/fs/cgroup", "cgroups/not-mounted")
    } else {
        ("mount -t tmpfs t /sys/fs/cgroup", "cgroups/not-delegated")
    }
}

#[test]
fn what_a_sandbox_does_without_is_in_its_record_in_the_same_words() {
    let home = Home::new();
    let (script, fault) = without_groups();
    let among = |arguments: &[&str]| run(&mut among(&home, script, arguments));
    let report = among(&["doctor", "--json"]);
    let found = assert_fault(&report, fault, "warning");
    assert_eq!(code(&report), 0, "{}", both(&report));
    // What demands more than there is fails, with these words too.
    let failed = among(&["create", "--json", "--require-enforced-limits", "--memory", "64M"]);
    assert_same_words(&failed, &found);
    let made = among(&["create", "--json"]);
    assert_eq!(code(&made), 0, "{}", both(&made));
    let record = json(&made.stdout);
    let without = record["fallbacks"].as_array().expect("an array");
    let told = without.iter().find(|fallback| fallback["condition"] == "cgroups").expect("it is told");
    assert_eq!((&told["observed"], &told["cost"]), (&found["says"], &found["cost"]));
    assert_eq!(record["limits"]["memory"]["state"], "watched");
    let text =
        String::from_utf8(among(&["describe", record["id"].as_str().expect("an id")]).stdout).expect("text");
    assert!(text.contains(found["says"].as_str().expect("words")), "{text}");
    let report = json(&report.stdout);
    if record["isolation"]["ids"] == "single" {
        let found = finding(&report, "subordinate-ids");
        let told =
            without.iter().find(|fallback| fallback["condition"] == "subordinate-ids").expect("it is told");
        assert_eq!((&told["observed"], &told["cost"]), (&found["says"], &found["cost"]));
    }
    assert_eq!(code(&among(&["destroy", record["id"].as_str().expect("an id")])), 0);
}

#[test]
fn control_groups_that_are_read_only() {
    if !is_root() {
        println!("skipped: to an ordinary user it is the same as none");
        return;
    }
    let home = Home::new();
    let script = "for at in $(awk '/ - cgroup/ {print $5}' /proc/self/mountinfo); do mount -o remount,bind,ro \"$at\"; done";
    assert_fault(&run(&mut among(&home, script, &["doctor", "--json"])), "cgroups/read-only", "warning");
    let output = run(&mut among(&home, script, &["run", "--", "true"]));
    assert_eq!(code(&output), 0, "{}", both(&output));
}

#[test]
fn no_subordinate_ids() {
    if is_root() {
        println!("skipped: root has ranges of its own");
        return;
    }
    let home = Home::new();
    let hide = "for tool in /usr/bin/newuidmap /usr/bin/newgidmap; do
        if [ -e $tool ]; then mount --bind /dev/null $tool; fi; done";
    let found = assert_fault(
        &run(&mut among(&home, hide, &["doctor", "--json"])),
        "subordinate-ids/tools",
        "warning",
    );
    if std::path::Path::new("/usr/bin/newuidmap").exists() {
        // What hides them is a mount below `/usr`, which an ordinary user's sandbox can't leave out.
        println!("not tried: a creation without the tools, which are installed here");
    } else {
        let created = run(&mut among(&home, hide, &["create", "--json"]));
        assert_eq!(code(&created), 0, "{}", both(&created));
        let record = json(&created.stdout);
        let without = record["fallbacks"].as_array().expect("an array");
        let told =
            without.iter().find(|fallback| fallback["condition"] == "subordinate-ids").expect("it is told");
        assert_eq!(told["observed"], found["says"]);
    }
    if std::env::var("SANDBAR_TEST_MODE").as_deref() == Ok("subordinate") {
        // With the user's own surroundings they are there, and nothing of that kind is told.
        let report = home.json(&["doctor", "--json"]);
        assert_eq!(finding(&report, "subordinate-ids")["state"], "ok", "{report}");
        let record = home.json(&["create", "--json"]);
        let without = record["fallbacks"].as_array().expect("an array");
        assert!(without.iter().all(|fallback| fallback["condition"] != "subordinate-ids"), "{record}");
        // Where they can't be mapped, it is no silent step down.
        let found = assert_fault(
            &run(&mut home.sandbar_by(&["setpriv", "--no-new-privs"], &["doctor", "--json"])),
            "subordinate-ids/powerless",
            "missing",
        );
        assert_same_words(
            &run(&mut home.sandbar_by(&["setpriv", "--no-new-privs"], &["create", "--json"])),
            &found,
        );
    }
}

/// System calls, each with the arguments that it is refused for, or all.
type Calls = Vec<(i64, Vec<SeccompRule>)>;

/// Runs a command under filters that answer with these errors: they are of the thread, and are handed down.
fn filtered(filters: Vec<(Calls, i32)>, mut command: Command) -> Output {
    let program = |(calls, errno): (Calls, i32)| -> BpfProgram {
        let arch = std::env::consts::ARCH.try_into().expect("a known machine");
        let answer = SeccompAction::Errno(errno.cast_unsigned());
        let rules = calls.into_iter().collect();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, arch).expect("a filter");
        filter.try_into().expect("a program")
    };
    let programs: Vec<BpfProgram> = filters.into_iter().map(program).collect();
    let thread = std::thread::spawn(move || {
        for program in &programs {
            seccompiler::apply_filter(program).expect("the filter is taken");
        }
        run(&mut command)
    });
    thread.join().expect("it ends")
}

#[test]
fn a_filter_that_refuses_namespaces_as_in_a_container() {
    // As the filters of container engines: no new user namespaces, and `clone3`, which can't be looked into, is not there.
    let new_user = u64::try_from(libc::CLONE_NEWUSER).expect("a flag");
    let flag = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(new_user), new_user);
    let with_flag = SeccompRule::new(vec![flag.expect("a condition")]).expect("a rule");
    let home = Home::new();
    let among = |arguments: &[&str]| {
        let refused = vec![(libc::SYS_clone, vec![with_flag.clone()]), (libc::SYS_unshare, vec![])];
        let absent = vec![(libc::SYS_clone3, vec![])];
        filtered(vec![(refused, libc::EPERM), (absent, libc::ENOSYS)], home.sandbar(arguments))
    };
    let found = assert_fault(&among(&["doctor", "--json"]), "user-namespaces/filtered", "missing");
    assert_same_words(&among(&["create", "--json"]), &found);
    home.assert_empty();
}

#[test]
fn a_filter_that_refuses_or_hides_mounts() {
    let home = Home::new();
    for (errno, fault) in [(libc::EPERM, "user-namespaces/filtered"), (libc::ENOSYS, "kernel/call-hidden")] {
        let among = |arguments: &[&str]| {
            let calls = [libc::SYS_fsopen, libc::SYS_move_mount, libc::SYS_mount];
            filtered(vec![(calls.map(|call| (call, vec![])).into(), errno)], home.sandbar(arguments))
        };
        let report = among(&["doctor", "--json"]);
        let mut found = assert_fault(&report, fault, "missing");
        let created = among(&["create", "--json"]);
        // The tool for subordinate ids may gain no rights under a filter. It works beside the first process, and the first of the two that
        // fails is the one that is told.
        if std::env::var("SANDBAR_TEST_MODE").as_deref() == Ok("subordinate") {
            let powerless = assert_fault(&report, "subordinate-ids/powerless", "missing");
            if String::from_utf8_lossy(&created.stderr).contains("host condition `subordinate-ids`") {
                found = powerless;
            }
        }
        assert_same_words(&created, &found);
    }
    home.assert_empty();
}

//! `cargo xtask soak`: the long sizes of the long checks. Each is a test that reads its size from `SANDBAR_SOAK`; its output is the result.

use crate::run::cargo;
use crate::test::{build_executable, build_helper, run_with_subordinate_ids};

/// A long check: its name, its package, its test target, the test in it, and the size.
struct Check {
    name: &'static str,
    package: &'static str,
    /// `lib` is the unit tests of the package.
    target: &'static str,
    test: &'static str,
    size: u32,
}

const CHECKS: &[Check] = &[
    Check {
        name: "cycles",
        package: "sandbar-local",
        target: "lifecycle",
        test: "cycles_leave_nothing",
        size: 1000,
    },
    Check {
        name: "kills",
        package: "sandbar-local",
        target: "lifecycle",
        test: "kills_at_random_moments",
        size: 200,
    },
    Check {
        name: "sleeps",
        package: "sandbar-local",
        target: "lifecycle",
        test: "sleeps_lose_nothing",
        size: 1000,
    },
    Check {
        name: "forks",
        package: "sandbar-local",
        target: "lifecycle",
        test: "forks_of_forks_have_their_files",
        size: 200,
    },
    Check {
        name: "fork-writers",
        package: "sandbar-local",
        target: "lifecycle",
        test: "forks_under_writers_are_of_one_moment",
        size: 50,
    },
    Check {
        name: "fork-kills",
        package: "sandbar-local",
        target: "lifecycle",
        test: "forks::whoever_is_killed_in_a_fork_leaves_the_parent_as_before_or_forked",
        size: 100,
    },
    Check {
        name: "idle",
        package: "sandbar-local",
        target: "lifecycle",
        test: "idle_side_by_side",
        size: 500,
    },
    Check {
        name: "volumes",
        package: "sandbar-local",
        target: "lifecycle",
        test: "a_held_volume_is_never_removed",
        size: 50,
    },
    Check {
        name: "templates",
        package: "sandbar-local",
        target: "lifecycle",
        test: "a_template_in_use_is_never_removed",
        size: 50,
    },
    Check {
        name: "import-kills",
        package: "sandbar-local",
        target: "lifecycle",
        test: "killed_in_an_import_a_tree_is_old_or_new",
        size: 200,
    },
    Check {
        name: "removal-kills",
        package: "sandbar-local",
        target: "lifecycle",
        test: "killed_in_a_removal_a_sandbox_is_there_or_gone",
        size: 200,
    },
    Check {
        name: "commit-kills",
        package: "sandbar-local",
        target: "lifecycle",
        test: "commits::whoever_dies_leaves_the_old_or_the_new_one",
        size: 200,
    },
    Check {
        name: "resumes",
        package: "sandbar-local",
        target: "lifecycle",
        test: "who_resumes_at_once_has_a_running_one",
        size: 300,
    },
    Check {
        name: "debian",
        package: "sandbar-local",
        target: "lifecycle",
        test: "foreign::packages_are_installed_in_a_debian_as_its_root",
        size: 1,
    },
    Check {
        name: "at-once",
        package: "sandbar-local",
        target: "lifecycle",
        test: "parallel_creates",
        size: 100,
    },
    Check {
        name: "parallel",
        package: "sandbar-local",
        target: "lifecycle",
        test: "parallel_creates",
        size: 200,
    },
    Check {
        name: "egress-crowd",
        package: "sandbar-local",
        target: "egress_life",
        test: "crowd::none_reaches_by_the_rule_of_another",
        size: 200,
    },
    Check {
        name: "egress-kills",
        package: "sandbar-local",
        target: "egress_life",
        test: "kills::killed_in_a_change_the_policy_in_force_is_the_one_described",
        size: 300,
    },
    Check {
        name: "archive-tree",
        package: "sandbar-local",
        target: "lifecycle",
        test: "archives::trees_pass_as_archives",
        // Files.
        size: 200_000,
    },
    Check {
        name: "archive-large",
        package: "sandbar-local",
        target: "lifecycle",
        test: "archives::large_files_pass_in_little_memory",
        // MiB.
        size: 4096,
    },
    Check {
        name: "stdin",
        package: "sandbar-cli",
        target: "cli",
        test: "bytes::stdin_passes_whole",
        // MiB.
        size: 1024,
    },
    Check {
        name: "hostnames",
        package: "sandbar-core",
        target: "lib",
        test: "egress::tests::hostnames::generated_names_are_read_as_a_slow_reader_reads_them",
        size: 1_000_000,
    },
    Check {
        name: "hellos",
        package: "sandbar-egress",
        target: "lib",
        test: "peek::tests::hellos::generated_hellos_are_read_as_second_readers_read_them",
        size: 1_000_000,
    },
    Check {
        name: "heads",
        package: "sandbar-egress",
        target: "lib",
        test: "peek::tests::heads::generated_heads_are_read_as_second_readers_read_them",
        size: 1_000_000,
    },
    Check {
        name: "server-crowd",
        package: "sandbar-server",
        target: "soak",
        test: "crowd::many_at_once_leave_nothing",
        // Seconds.
        size: 600,
    },
    Check {
        name: "server-kill",
        package: "sandbar-server",
        target: "soak",
        test: "kill::killed_in_the_middle_it_has_all_of_it_again",
        size: 30,
    },
    Check {
        name: "server-hostile",
        package: "sandbar-server",
        target: "soak",
        test: "hostile::one_after_another_and_at_once_they_leave_nothing",
        size: 100_000,
    },
];

/// The fuzz targets, which are programs of their own.
const FUZZ: &str = "fuzz";
/// The tests that `cargo xtask test` leaves out with subordinate ids.
const SUBORDINATE: &str = "subordinate";
/// How long each of the fuzz targets runs.
const FUZZ_SECONDS: u32 = 60;
/// Every case of the interop suite with every release.
const INTEROP: &str = "interop";

pub(crate) fn run(names: &[String]) -> Result<(), String> {
    let known: Vec<_> = CHECKS.iter().map(|check| check.name).chain([SUBORDINATE, FUZZ, INTEROP]).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no long check `{unknown}`; there are: {}", known.join(", ")));
    }
    let helper = build_helper("release")?;
    let rig = build_executable("release", "sandbar-rig", "sandbar-rig")?;
    let mut failed = Vec::new();
    for check in CHECKS.iter().filter(|check| names.is_empty() || names.iter().any(|name| name == check.name))
    {
        let target: &[&str] = if check.target == "lib" { &["--lib"] } else { &["--test", check.target] };
        let mut command = cargo(&["test", "--release", "--locked", "-p", check.package]);
        command.args(target).args(["--", "--exact", "--nocapture", check.test]);
        command.env("SANDBAR_SOAK", check.size.to_string());
        command.env("SANDBAR_HELPER", &helper).env("SANDBAR_RIG_BIN", &rig);
        if let Err(why) = crate::run::run(&mut command) {
            failed.push(format!("{}: {why}", check.name));
        }
    }
    if names.is_empty() || names.iter().any(|name| name == SUBORDINATE) {
        failed.extend(run_with_subordinate_ids().err());
    }
    if names.is_empty() || names.iter().any(|name| name == FUZZ) {
        failed.extend(crate::fuzz::run_all(FUZZ_SECONDS).err());
    }
    if names.is_empty() || names.iter().any(|name| name == INTEROP) {
        failed.extend(crate::interop::run_with(&["--full".to_owned()], &helper, &rig).err());
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

//! Who dies, who adopts, and that nothing is left: each row of decision 0002, and the long checks.

mod support;

mod archives;
mod audit;
mod builds;
mod commits;
mod conformance;
mod deadlines;
mod deaths;
mod disk;
mod evasions;
mod foreign;
mod forks;
mod frozen;
mod handed_out;
mod hostile;
mod hostile_network;
mod input;
mod leftovers;
mod limits;
mod long;
mod main_command;
mod moments;
mod parts;
mod pool;
mod ready;
mod refusals;
mod resources;
mod sleep;
mod sockets;
mod spare;
mod start;
mod stores;
mod templates;
mod usage;
mod versions;
mod volumes;

/// Create, run, destroy, over and over.
#[tokio::test]
async fn cycles_leave_nothing() {
    long::cycles(support::size(50)).await;
}

/// `kill -9` of the caller, the shim and the agent at random moments.
#[tokio::test]
async fn kills_at_random_moments() {
    long::kills(support::size(20)).await;
}

/// Many side by side that do nothing.
#[tokio::test]
async fn idle_side_by_side() {
    long::idle(support::size(12)).await;
}

/// To sleep and awake again, beside a writer that loses nothing.
#[tokio::test]
async fn sleeps_lose_nothing() {
    sleep::cycles(support::size(25)).await;
}

/// `kill -9` of the first process, and a resume in the same moment.
#[tokio::test]
async fn who_resumes_at_once_has_a_running_one() {
    start::resumed_at_once(support::size(21)).await;
}

/// Creations against removals of one volume.
#[tokio::test]
async fn a_held_volume_is_never_removed() {
    volumes::race(support::size(8)).await;
}

/// Creations against removals of one template.
#[tokio::test]
async fn a_template_in_use_is_never_removed() {
    moments::templates(support::size(8)).await;
}

/// `kill -9` of the shim while an archive is unpacked.
#[tokio::test]
async fn killed_in_an_import_a_tree_is_old_or_new() {
    moments::imports(support::size(10)).await;
}

/// `kill -9` of the shim while its sandbox is removed.
#[tokio::test]
async fn killed_in_a_removal_a_sandbox_is_there_or_gone() {
    moments::removals(support::size(10)).await;
}

/// Forks of forks: each generation's files are right.
#[tokio::test]
async fn forks_of_forks_have_their_files() {
    forks::generations(support::size(15)).await;
}

/// Forks of one parent, more than a stack has layers.
#[tokio::test]
async fn a_parent_is_forked_as_often_as_wanted() {
    forks::of_one(support::size(20)).await;
}

/// Forks while files are written in all ways that there are.
#[tokio::test]
async fn forks_under_writers_are_of_one_moment() {
    forks::under_writers(support::size(3)).await;
}

/// Many at once.
#[tokio::test]
async fn parallel_creates() {
    long::parallel(support::size(40)).await;
}

//! The parts of the contract: the two that every sandbox has (commands, files), and the optional ones.

mod archive;
mod builds;
mod commands;
mod files;
mod guest;
mod lifecycle;
mod main_command;
mod observe;
mod ports;
mod processes;
mod store;
mod usage;
mod watching;

pub use archive::{Archive, ImportReport};
pub use builds::{BuildCache, BuildLog, BuildSpec, BuildStep, Builds, MAX_BUILD_SCOPE, MAX_BUILD_STEPS};
pub use commands::{Commands, DEFAULT_OUTPUT_LIMIT, RunOptions, Stdin};
pub use files::{
    ByteStream, EntryKind, FileEntry, FileRange, FileRead, Files, FilesExt, ListOptions, ReadOptions,
    WriteOptions,
};
pub use guest::{Guest, GuestIo, GuestStream};
pub use lifecycle::{
    ForkOptions, ForkOutcome, ForkVolumes, Forking, HibernationOutcome, Pausing, ResourceControl,
};
pub use main_command::{
    Follow, LogChunk, LogEvent, LogOptions, LogStream, MainLogs, MainProcess, MainState, MainStatus,
};
pub use observe::{
    CapacityReport, DecisionOptions, Decisions, EgressCheck, EgressLeg, EgressVerdict, Extent, LegClass,
    LegOutcome, Metrics, MetricsSample, Network, VerdictState, VerifyOptions,
};
pub use ports::Ports;
pub use processes::{
    Process, ProcessControl, ProcessEvent, ProcessEvents, ProcessExit, ProcessId, ProcessInfo, ProcessInput,
    ProcessOrigin, ProcessState, Processes, PtySize, Signal, SignalReach, SpawnOptions, StdinMode,
};
pub use store::{CommitOptions, Template, Templates, VolumeInfo, VolumeQuery, Volumes};
pub use usage::{EndCause, UsageEntry, UsageHistory, UsageReport};
pub use watching::{FileChange, FileChangeKind, WatchEvents, WatchOptions, Watching};

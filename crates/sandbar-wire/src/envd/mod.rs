//! The protocol of E2B's guest daemon `envd`, as the official SDKs speak it: Connect with JSON for the process and
//! file-system services, plain HTTP for files.
//!
//! A client of a stream encodes its one request with [`message_frame`], feeds the response body to a
//! [`FrameDecoder`], decodes each message frame with [`decode_process_event`] (or `serde_json`), and ends on a frame
//! for which [`Frame::is_end`] holds, whose payload is an [`EndStream`]. Unary calls are JSON documents both ways;
//! their errors are [`RpcError`] documents with the status of [`Code::http_status`].

mod code;
mod fast;
mod files;
mod filesystem;
mod frame;
mod host;
mod json;
mod process;
mod process_table;
mod signal;
mod timestamp;

pub use code::{Code, RpcError, reason};
pub use fast::{Channel, data_frame, decode_process_event, decode_stream_input, input_frame};
pub use files::{
    ARCHIVE_ERROR_TRAILER, ARCHIVE_STAGING_DIGITS, ARCHIVE_STAGING_PREFIX, ArchiveReport, ComposeRequest,
    FileEntry, METADATA_HEADER_PREFIX, METADATA_KEY_MAX, METADATA_TOTAL_MAX, METADATA_XATTR_PREFIX,
    Operation, is_archive_staging, metadata_from_headers, sign, signature_matches, tokens_equal,
};
pub use filesystem::{
    CreateWatcherResponse, EntryInfo, EntryResponse, EventType, FileType, FilesystemEvent, ListDirRequest,
    ListDirResponse, MoveRequest, PathRequest, WatchDirEvent, WatchDirRequest, WatcherEvents, WatcherRequest,
};
pub use frame::{
    EndStream, FLAG_COMPRESSED, FLAG_END_STREAM, Frame, FrameDecoder, FrameError, HEADER_BYTES,
    MAX_MESSAGE_BYTES, end_frame, message_frame,
};
pub use host::{HttpError, InitRequest, Metrics};
pub use process::{
    ConnectRequest, Empty, EndEvent, ListResponse, ProcessConfig, ProcessEvent, ProcessInfo, ProcessInput,
    ProcessSelector, Pty, PtySize, SelectRequest, SendInputRequest, SendSignalRequest, StartRequest,
    StreamInput, UpdateRequest, causes,
};
pub use process_table::{ProcessRow, ProcessTable, RowInput, SignalAnyRequest, StartedRow};
pub use signal::Signal;
pub use timestamp::Timestamp;

/// The envd version that the agent reports; SDKs switch features on by it (`spec/e2b-wire.md`, 2.7).
pub const ENVD_VERSION: &str = "0.6.13";
/// Port under which SDKs name the guest daemon in `E2b-Sandbox-Port`.
pub const ENVD_PORT: u16 = 49983;
/// Request header with the sandbox's token.
pub const ACCESS_TOKEN_HEADER: &str = "x-access-token";
/// Request header with a stream's or a call's limit, in milliseconds.
pub const TIMEOUT_HEADER: &str = "connect-timeout-ms";
/// Request header with the longest silence on a stream, in seconds.
pub const KEEPALIVE_HEADER: &str = "keepalive-ping-interval";
/// Longest silence on a stream where the request names none, in seconds (envd's own default).
pub const KEEPALIVE_DEFAULT_SECS: u64 = 90;
/// Content type of streams, both ways.
pub const STREAM_CONTENT_TYPE: &str = "application/connect+json";
/// Content type of unary calls, both ways.
pub const UNARY_CONTENT_TYPE: &str = "application/json";

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::envd::{
    Code, ComposeRequest, ConnectRequest, CreateWatcherResponse, EndStream, EntryResponse, FileEntry,
    HttpError, InitRequest, ListDirRequest, ListDirResponse, ListResponse, METADATA_TOTAL_MAX, Metrics,
    MoveRequest, Operation, PathRequest, ProcessEvent, RpcError, SendInputRequest, SendSignalRequest, Signal,
    StartRequest, StreamInput, Timestamp, UpdateRequest, WatchDirEvent, WatchDirRequest, WatcherEvents,
    decode_process_event, decode_stream_input, metadata_from_headers, sign, signature_matches,
};

/// What was read is written so that it reads the same again, whatever else stood in the text.
fn stable<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(data) else { return };
    let text = serde_json::to_vec(&read).expect("a message can be written");
    let again: T = serde_json::from_slice(&text).expect("what was written can be read");
    assert_eq!(again, read);
    assert_eq!(serde_json::to_vec(&again).expect("a message can be written"), text);
}

/// The process service. The short cuts of the two streams agree with the full parser.
pub fn process_messages(data: &[u8]) {
    stable::<StartRequest>(data);
    stable::<ConnectRequest>(data);
    stable::<ListResponse>(data);
    stable::<SendInputRequest>(data);
    stable::<SendSignalRequest>(data);
    stable::<UpdateRequest>(data);
    stable::<ProcessEvent>(data);
    stable::<StreamInput>(data);
    let full = |event: Result<_, serde_json::Error>| event.map_err(|_| ());
    assert_eq!(full(decode_process_event(data)), full(serde_json::from_slice(data)));
    let full = |input: Result<StreamInput, serde_json::Error>| input.map_err(|_| ());
    assert_eq!(full(decode_stream_input(data)), full(serde_json::from_slice(data)));
}

/// The file-system service.
pub fn filesystem_messages(data: &[u8]) {
    stable::<EntryResponse>(data);
    stable::<PathRequest>(data);
    stable::<MoveRequest>(data);
    stable::<ListDirRequest>(data);
    stable::<ListDirResponse>(data);
    stable::<WatchDirRequest>(data);
    stable::<WatchDirEvent>(data);
    stable::<CreateWatcherResponse>(data);
    stable::<WatcherEvents>(data);
}

/// Errors, times, signals, codes, signatures, metadata, and the plain HTTP endpoints.
pub fn plain_messages(data: &[u8]) {
    stable::<RpcError>(data);
    stable::<EndStream>(data);
    stable::<HttpError>(data);
    stable::<InitRequest>(data);
    stable::<ComposeRequest>(data);
    stable::<FileEntry>(data);
    stable::<Signal>(data);
    stable::<Code>(data);
    stable::<Timestamp>(data);
    // Its numbers with a point may lose their last bit on the way.
    let _ = serde_json::from_slice::<Metrics>(data);
    let _ = RpcError::from_response(502, data);
    let pairs = data.split(|byte| *byte == b'\n').map(|line| {
        let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        (std::str::from_utf8(&line[..at]).unwrap_or_default(), line.get(at + 1..).unwrap_or_default())
    });
    if let Ok(metadata) = metadata_from_headers(pairs) {
        let total: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(total <= METADATA_TOTAL_MAX);
        assert!(metadata.values().all(|value| value.bytes().all(|byte| (0x20..0x7f).contains(&byte))));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(moment) = Timestamp::parse(text) {
        assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment), "{moment}");
    }
    let own = sign(text, Operation::Read, "user", "token", None);
    assert!(signature_matches(&own, &own) && !signature_matches(&own, text));
}

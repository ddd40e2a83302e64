use std::io;
use std::path::Path;

use sandbar_wire::envd::{Code, RpcError};

/// Maps a failed operation on a path, in one place.
pub(super) fn failed(operation: &str, path: &Path, error: &io::Error) -> RpcError {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => RpcError::new(Code::NotFound, format!("path '{path}' does not exist")),
        io::ErrorKind::NotADirectory => {
            RpcError::new(Code::InvalidArgument, format!("path '{path}' is not a directory"))
        }
        io::ErrorKind::PermissionDenied => {
            RpcError::new(Code::PermissionDenied, format!("{operation} '{path}': permission denied"))
        }
        io::ErrorKind::ReadOnlyFilesystem => RpcError::new(
            Code::PermissionDenied,
            format!("{operation} '{path}': the file system is read-only"),
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            RpcError::new(Code::ResourceExhausted, format!("{operation} '{path}': no space left on device"))
        }
        io::ErrorKind::InvalidFilename => {
            let text =
                format!("{operation} '{path}': a path in it is longer than the kernel takes (4,096 bytes)");
            RpcError::new(Code::InvalidArgument, text)
        }
        // A zero byte in a path, or a folder that is to move into itself.
        io::ErrorKind::InvalidInput => {
            RpcError::new(Code::InvalidArgument, format!("{operation} '{path}': no such thing can be done"))
        }
        io::ErrorKind::CrossesDevices => RpcError::new(
            Code::FailedPrecondition,
            format!(
                "{operation} '{path}': source and destination are on different file systems; copy and remove"
            ),
        ),
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            RpcError::new(Code::FailedPrecondition, format!("path '{path}' is a cyclic symbolic link"))
        }
        _ => RpcError::new(Code::Internal, format!("{operation} '{path}': {error}")),
    }
}

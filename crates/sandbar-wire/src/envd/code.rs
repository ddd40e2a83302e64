use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! codes {
    ($($name:ident $text:literal $status:literal,)*) => {
        /// Error codes of the Connect protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = concat!("`", $text, "`, HTTP ", stringify!($status))] $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The code's name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// Status of a unary answer with this code.
            pub const fn http_status(self) -> u16 {
                match self { $(Code::$name => $status,)* }
            }

            /// The code of that name; `None` for a name that is not of the protocol.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Code::$name),)* _ => None }
            }
        }
    };
}

codes! {
    Canceled "canceled" 499,
    Unknown "unknown" 500,
    InvalidArgument "invalid_argument" 400,
    DeadlineExceeded "deadline_exceeded" 504,
    NotFound "not_found" 404,
    AlreadyExists "already_exists" 409,
    PermissionDenied "permission_denied" 403,
    ResourceExhausted "resource_exhausted" 429,
    FailedPrecondition "failed_precondition" 400,
    Aborted "aborted" 409,
    OutOfRange "out_of_range" 400,
    Unimplemented "unimplemented" 501,
    Internal "internal" 500,
    Unavailable "unavailable" 503,
    DataLoss "data_loss" 500,
    Unauthenticated "unauthenticated" 401,
}

impl Code {
    /// The code a client assumes for an answer that is no Connect error document.
    pub const fn from_bare_status(status: u16) -> Self {
        match status {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    /// A name that is not of the protocol reads as `unknown`, as the protocol demands.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self::from_name(&name).unwrap_or(Code::Unknown))
    }
}

/// Values of [`RpcError::reason`].
pub mod reason {
    /// The program of a `Start` was not found (a shell's 127).
    pub const PROGRAM_NOT_FOUND: &str = "program_not_found";
    /// The program of a `Start` was found and can't be executed (a shell's 126).
    pub const PROGRAM_NOT_EXECUTABLE: &str = "program_not_executable";
    /// The working folder of a `Start` is missing or can't be entered.
    pub const BAD_CWD: &str = "bad_cwd";
    /// The user is not in the sandbox's `/etc/passwd`.
    pub const UNKNOWN_USER: &str = "unknown_user";
    /// The user exists, but commands can't run as it here.
    pub const USER_REFUSED: &str = "user_refused";
    /// No process could be made: the sandbox's limit on processes is reached.
    pub const PROCESS_LIMIT: &str = "process_limit";
    /// A stream was ended because its reader was too slow.
    pub const SLOW_READER: &str = "slow_reader";
    /// Events of a watch were lost.
    pub const OVERFLOW: &str = "overflow";
}

/// A Connect error: the body of a failed unary call, and the `error` of an end-stream frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcError {
    /// What kind of failure.
    pub code: Code,
    /// Text for a person.
    #[serde(default)]
    pub message: String,
    /// Sandbar's extension, ignored by other clients: one of the constants in [`reason`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl RpcError {
    /// An error with that code and message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), reason: None }
    }

    /// The same error with a machine-readable reason.
    pub fn with_reason(mut self, reason: &str) -> Self {
        self.reason = Some(reason.to_owned());
        self
    }

    /// The document on the wire.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the body of a failed unary call, and makes the best of one that is no Connect error.
    pub fn from_response(status: u16, body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_else(|_| {
            let text: String = String::from_utf8_lossy(body).chars().take(Self::MAX_BARE_TEXT).collect();
            Self::new(Code::from_bare_status(status), format!("status {status}: {text}"))
        })
    }

    /// How much of a foreign body is kept in the message.
    const MAX_BARE_TEXT: usize = 512;
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.code, self.message)
    }
}

impl std::error::Error for RpcError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_keeps_its_name() {
        for code in Code::ALL {
            assert_eq!(Code::from_name(code.as_str()), Some(*code));
        }
        assert_eq!(Code::ALL.len(), 16);
    }

    #[test]
    fn foreign_bodies_become_errors_too() {
        let error = RpcError::from_response(404, br#"{"code":"not_found","message":"m"}"#);
        assert_eq!(error, RpcError::new(Code::NotFound, "m"));
        assert_eq!(RpcError::from_response(404, br#"{"code":404}"#).code, Code::Unimplemented);
        assert_eq!(RpcError::from_response(502, b"bad gateway").code, Code::Unavailable);
        assert_eq!(RpcError::from_response(500, br#"{"code":"nonsense"}"#).code, Code::Unknown);
    }
}

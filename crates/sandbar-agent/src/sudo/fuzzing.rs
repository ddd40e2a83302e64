use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::{Answer, Forward, Request};
use super::parse::{Mode, parse};

pub(crate) fn messages(data: &[u8]) {
    stable::<Request>(data);
    stable::<Forward>(data);
    stable::<Answer>(data);
    let args = data.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned());
    let args: Vec<String> = args.collect();
    match parse(args.clone()) {
        Ok(invocation) => {
            assert!(args.ends_with(&invocation.command), "the command is the end of the arguments, as it is");
            assert!(invocation.mode != Mode::Run || !invocation.command.is_empty());
            for (name, _) in &invocation.env {
                assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
            }
        }
        Err(why) => assert!(!why.is_empty()),
    }
}

fn stable<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(data) else { return };
    let text = serde_json::to_vec(&read).expect("a message can be written");
    assert_eq!(serde_json::from_slice::<T>(&text).expect("what was written can be read"), read);
}

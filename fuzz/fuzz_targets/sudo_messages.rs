#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_agent::fuzzing::sudo_messages(data));

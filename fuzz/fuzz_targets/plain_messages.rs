#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_wire::fuzzing::plain_messages(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_wire::fuzzing::process_messages(data));

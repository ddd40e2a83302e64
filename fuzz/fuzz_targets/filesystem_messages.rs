#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_wire::fuzzing::filesystem_messages(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_guest::fuzzing::script_output(data));

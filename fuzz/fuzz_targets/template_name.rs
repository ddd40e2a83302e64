#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_server::fuzzing::template_name(data));

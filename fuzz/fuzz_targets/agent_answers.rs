#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_local::fuzzing::agent_answers(data));

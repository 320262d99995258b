#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    wire_fuzz::ws_frames(data);
});

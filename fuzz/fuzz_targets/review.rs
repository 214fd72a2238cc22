//! Any bytes as the body of a call of every webhook: no panic, no 5xx, an answer as it must be.

#![no_main]

// Not all that the tests need is needed here.
#[allow(dead_code)]
#[path = "../../tests/offline/admission/wire.rs"]
mod wire;

use libfuzzer_sys::fuzz_target;

thread_local! {
    static WIRE: wire::Wire = wire::Wire::new();
}

fuzz_target!(|body: &[u8]| WIRE.with(|wire| wire.post_everywhere(body)));

//! What the caches keep of a stored object takes little more memory than its text, whatever its shape: the shapes are
//! looked for at random.
#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use my_operator_rounds::large::{pointers, swell};
use my_operator_rounds::{cases, lengths};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The memory for what is kept of an object of so many bytes.
fn most(text: usize) -> usize {
    2 * text + 4096
}

/// Makes something large at a random place of `object`, as often as there are cases, and measures what `keep` keeps of it.
///
/// # Panics
/// When that is more than twice its text, and 4 KiB.
pub fn check<O: DeserializeOwned, V>(object: &Value, keep: impl Fn(O) -> V) {
    cases(lengths::large_random_objects(), |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut object = object.clone();
        for _ in 0..random.u8(1..3) {
            let places = pointers(&object);
            let bytes = [3_000, 100_000][random.usize(..2)];
            swell(&mut random, &mut object, &places, bytes);
        }
        let text = object.to_string();
        let mut kept = None;
        let cost = measure(|| {
            // What cannot be decoded is not kept at all.
            if let Ok(object) = serde_json::from_str(&text) {
                kept = Some(keep(object));
            }
        });
        let bytes = usize::try_from(cost.bytes_current).unwrap();
        let length = text.len();
        assert!(bytes <= most(length), "{bytes} bytes of {length} are kept");
    });
}

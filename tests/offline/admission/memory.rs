//! What a review costs in memory while it is answered, whatever its shape: the shapes are looked for at random.

use allocation_counter::measure;
use my_operator::kinds::REGISTRY;
use my_operator_rounds::large::{pointers, swell};
use my_operator_rounds::lengths;
use serde_json::{Value, json};

use super::objects::sample;
use super::random::cases;
use super::wire::{Ask, VERBS, Wire, hold, request};

/// The memory for a review of some bytes, its answer included, beside its body. The second part is for the trees of both
/// specs, which are bounded, and their faults.
fn most(body: usize) -> usize {
    4 * body + (8 << 20)
}

/// Texts of megabytes that Rust writes with six bytes for one, in place of each part that is not a text, or within it.
#[test]
fn a_text_where_something_else_belongs_takes_little_more_memory_than_its_body() {
    let wire = Wire::new();
    let kind = REGISTRY[0];
    let object = sample(kind).to_string();
    let ask = Ask {
        operation: "UPDATE",
        old_object: &object,
        ..Ask::create(&object)
    };
    let mut review: Value = serde_json::from_str(&ask.review(kind)).unwrap();
    for object in ["object", "oldObject"] {
        review["request"][object]["metadata"]["annotations"] = json!({"a": "b"});
        review["request"][object]["status"] = json!({"phase": "PENDING"});
    }
    review["request"]["dryRun"] = false.into();
    let text = Value::String("\u{7f}".repeat(8_000_000));
    let mut places = pointers(&review);
    places.push(String::new());
    for place in places {
        let mut review = review.clone();
        *review.pointer_mut(&place).unwrap() = text.clone();
        let body = review.to_string().into_bytes();
        drop(review);
        for verb in VERBS {
            let path = kind.admission.path(verb);
            wire.post(&path, b"{}");
            let request = request(&path, body.clone());
            let cost = measure(|| drop(wire.call(request)));
            let peak = usize::try_from(cost.bytes_max).unwrap();
            assert!(
                peak <= most(body.len()),
                "{place} of {verb:?}: {peak} bytes"
            );
        }
    }
}

#[test]
fn a_large_review_takes_little_more_memory_than_its_body() {
    let wire = Wire::new();
    cases(lengths::large_random_reviews(), |random| {
        let kind = REGISTRY[random.below(REGISTRY.len())];
        let object = sample(kind).to_string();
        let ask = Ask {
            operation: random.one(&["CREATE", "UPDATE", "DELETE", "CONNECT"]),
            old_object: random.one(&["null", &object]),
            ..Ask::create(&object)
        };
        let mut review: Value = serde_json::from_str(&ask.review(kind)).unwrap();
        for key in kind.admission.recorded {
            for object in ["object", "oldObject"] {
                if review["request"][object].is_object() && random.once_in(2) {
                    review["request"][object]["metadata"]["annotations"][*key] = "x".into();
                }
            }
        }
        for _ in 0..=random.below(2) {
            // As often in what surrounds the objects, of which there is little.
            let mut places = pointers(&review);
            if random.once_in(2) {
                places.retain(|place| !place.contains("bject/"));
            }
            let bytes = [20_000, 400_000][random.below(2)];
            swell(&mut random.0, &mut review, &places, bytes);
        }
        let body = review.to_string().into_bytes();
        let path = kind.admission.path(VERBS[random.below(2)]);
        // What is allocated once for all reviews.
        wire.post(&path, b"{}");
        let request = request(&path, body.clone());
        let mut answer = None;
        let cost = measure(|| answer = Some(wire.call(request)));
        let peak = usize::try_from(cost.bytes_max).unwrap();
        assert!(
            peak <= most(body.len()),
            "{path}: {peak} bytes for a body of {}",
            body.len()
        );
        let (parts, sent) = answer.unwrap();
        hold(&super::wire::Answer::new(parts.status, &sent), &body);
    });
}

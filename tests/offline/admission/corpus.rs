//! What fuzzing brings to light comes in here as well: the corpus of `fuzz/`, and mutations of good
//! reviews with a seed, each of them sent to every webhook.

use std::fs;
use std::path::Path;

use my_operator::kinds::{Kind, REGISTRY};
use my_operator_rounds::large::pointers;
use my_operator_rounds::lengths;
use serde_json::Value;

use super::objects::sample;
use super::random::{Random, cases};
use super::wire::{Ask, Wire};

/// What is kept for a fuzz target: the files by name, and their bytes.
pub fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let folder = folder.join(target);
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |path: &std::path::PathBuf| (path.display().to_string(), fs::read(path).unwrap());
    files.iter().map(read).collect()
}

#[test]
fn every_review_of_the_corpus_is_answered_as_it_must_be() {
    let wire = Wire::new();
    let corpus = corpus("review");
    assert!(corpus.len() > 20, "{}", corpus.len());
    for (name, body) in corpus {
        println!("{name}");
        wire.post_everywhere(&body);
    }
}

/// What JSON is made of, and what it must not be made of.
const PIECES: [&str; 30] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\u202e",
    "null",
    "true",
    "0",
    "-1",
    "1.0",
    "1e999",
    "123456789012345678901234567890",
    "{}",
    "[]",
    "\"\"",
    " ",
    "\n",
    "\0",
    "\u{202e}",
    "\u{7f}",
    "\"uid\":",
    "\"spec\":",
    "\"annotations\":null,",
    "UPDATE",
];

/// A good review of the kind.
fn review(random: &mut Random, kind: &Kind) -> String {
    let mut object = sample(kind);
    for key in kind.admission.recorded {
        if random.once_in(2) {
            object["metadata"]["annotations"][*key] = "x".into();
        }
    }
    let text = object.to_string();
    if random.once_in(2) {
        Ask::create(&text).review(kind)
    } else {
        Ask::update(&text, &text).review(kind)
    }
}

/// The same with one place of its tree changed: still JSON.
fn change_a_place(random: &mut Random, text: &str) -> String {
    let mut whole: Value = serde_json::from_str(text).unwrap();
    let places = pointers(&whole);
    let (from, to) = (random.below(places.len()), random.below(places.len()));
    // Anything may stand anywhere, also what stands elsewhere.
    let value = match random.below(4) {
        0 => whole.pointer(&places[from]).unwrap().clone(),
        1 => Value::Null,
        2 => serde_json::json!([{}]),
        _ => "\u{202e}\n".into(),
    };
    if let Some(place) = whole.pointer_mut(&places[to]) {
        *place = value;
    }
    whole.to_string()
}

/// The same with a few bytes changed: hardly ever JSON.
fn change_bytes(random: &mut Random, body: &mut Vec<u8>) {
    let at = random.below(body.len() + 1);
    match random.below(5) {
        0 => body.truncate(at),
        1 => drop(body.splice(at..at, random.one(&PIECES).bytes())),
        2 if at < body.len() => body[at] = u8::try_from(random.below(256)).unwrap(),
        3 => {
            let end = (at + random.below(9)).min(body.len());
            body.drain(at..end);
        }
        _ => {
            let end = (at + random.below(99)).min(body.len());
            let copy = body[at..end].to_vec();
            drop(body.splice(at..at, copy));
        }
    }
}

#[test]
fn any_bytes_are_answered_as_they_must_be() {
    let wire = Wire::new();
    cases(lengths::random_reviews(), |random| {
        let n = random.below(60);
        let bytes: Vec<u8> = if random.once_in(2) {
            (0..n)
                .map(|_| u8::try_from(random.below(256)).unwrap())
                .collect()
        } else {
            (0..n).flat_map(|_| random.one(&PIECES).bytes()).collect()
        };
        wire.post_everywhere(&bytes);
    });
}

#[test]
fn changed_reviews_are_answered_as_they_must_be() {
    let wire = Wire::new();
    cases(lengths::random_reviews(), |random| {
        let kind = REGISTRY[random.below(REGISTRY.len())];
        let mut text = review(random, kind);
        for _ in 0..random.below(4) {
            text = change_a_place(random, &text);
        }
        let mut body = text.into_bytes();
        for _ in 0..random.below(3) {
            change_bytes(random, &mut body);
        }
        wire.post_everywhere(&body);
    });
}

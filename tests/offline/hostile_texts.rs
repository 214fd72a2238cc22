//! Texts that are changed at random, through the functions that the fuzz targets are made of.

use std::fs;
use std::path::Path;

use my_operator_rounds::lengths;

use super::admission::random::cases;
use super::texts::FORMATS;

/// The committed texts of a format.
fn corpus(format: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(format);
    let files = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn whatever_a_text_is_it_is_read_without_harm() {
    for (format, read) in FORMATS {
        let corpus = corpus(format);
        assert!(corpus.len() > 2, "{format}");
        for bytes in &corpus {
            read(bytes);
        }
        cases(lengths::changed_texts(), |random| {
            let mut bytes = corpus[random.below(corpus.len())].clone();
            for _ in 0..random.below(4) {
                let other = &corpus[random.below(corpus.len())];
                let (at, from) = (random.below(bytes.len() + 1), random.below(other.len()));
                let (end, until) = (at + random.below(20), from + random.below(20));
                let (end, until) = (end.min(bytes.len()), until.min(other.len()));
                bytes.splice(at..end, other[from..until].iter().copied());
                if random.once_in(3) && !bytes.is_empty() {
                    let at = random.below(bytes.len());
                    bytes[at] = u8::try_from(random.below(256)).unwrap();
                }
            }
            read(&bytes);
        });
    }
}

//! Texts that are changed at random, through the functions that the fuzz targets are made of.

use my_operator_rounds::lengths;

use super::admission::corpus::corpus;
use super::admission::random::cases;
use super::texts::FORMATS;

#[test]
fn whatever_a_text_is_it_is_read_without_harm() {
    for (format, read) in FORMATS {
        let corpus = corpus(format);
        assert!(corpus.len() > 2, "{format}");
        for (name, bytes) in &corpus {
            println!("{name}");
            read(bytes);
        }
        cases(lengths::changed_texts(), |random| {
            let mut bytes = corpus[random.below(corpus.len())].1.clone();
            for _ in 0..random.below(4) {
                let (_, other) = &corpus[random.below(corpus.len())];
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

//! The grammar of image references: a reference that no container runtime can pull is rejected.
//!
//! The kubelet parses an image with `ParseNormalizedNamed` of the Go module `github.com/distribution/reference`. This
//! module accepts the same references with one exception: a port above 65535 is rejected, because nothing can listen
//! there. The tests have a table generated with version 0.6.0 of that module.
//!
//! ```text
//! reference = [host "/"] path [":" tag] ["@" digest]
//! host      = name or IPv6 address in brackets, with an optional port
//! path      = components of [a-z0-9]+, joined inside by "." "_" "__" or dashes, outside by "/"
//! tag       = [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}
//! digest    = ("sha256" | "sha384" | "sha512") ":" lower-case hex of the algorithm's length
//! ```
//!
//! The part before the first slash is a host only if it contains a dot, a colon or a capital letter, or is `localhost`.
//! Otherwise the host is Docker Hub's.

/// The longest path, counted with the `library/` that a bare name of Docker Hub gets.
const PATH_MAX: usize = 255;

/// The longest tag.
const TAG_MAX: usize = 128;

/// What is wrong with a reference. Characters are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The reference is empty.
    #[error("an image must be named")]
    Empty,
    /// A blank or a control character.
    #[error("blank or control character at character {0}")]
    Blank(usize),
    /// A character that is not ASCII.
    #[error("character {0} is not ASCII")]
    NotAscii(usize),
    /// Only an image ID, which cannot be pulled.
    #[error("64 hex digits are an image ID, not a name that can be pulled")]
    Identifier,
    /// A tag, a digest or a host, but no name.
    #[error("the image's name is missing")]
    NoName,
    /// A capital letter in the path.
    #[error("capital letter at character {0}: an image's name is lower case")]
    UpperCase(usize),
    /// The path does not follow its grammar.
    #[error(
        "unexpected character {0}: a name consists of letters and digits, \
         joined by one of `.`, `_`, `__`, `/` or by dashes"
    )]
    Path(usize),
    /// The path is too long.
    #[error("the name has {0} characters, more than {PATH_MAX}")]
    PathTooLong(usize),
    /// The host does not follow its grammar.
    #[error("the part before the first `/` is not a valid host (unexpected character {0})")]
    Host(usize),
    /// The port is invalid.
    #[error("the registry's port is not a number of at most 65535")]
    Port,
    /// A colon with nothing behind it.
    #[error("the tag behind `:` is empty")]
    TagEmpty,
    /// The tag does not follow its grammar.
    #[error(
        "unexpected character {0}: a tag consists of letters, digits, `_`, `.` and `-`, \
         and begins with neither `.` nor `-`"
    )]
    Tag(usize),
    /// The tag is too long.
    #[error("the tag has {0} characters, more than {TAG_MAX}")]
    TagTooLong(usize),
    /// The digest's algorithm is unknown.
    #[error("the digest behind `@` must begin with `sha256:`, `sha384:` or `sha512:`")]
    DigestAlgorithm,
    /// The digest's length does not fit its algorithm.
    #[error("the digest has {found} hex digits, its algorithm makes {expected}")]
    DigestLength {
        /// The actual length.
        found: usize,
        /// The expected length.
        expected: usize,
    },
    /// The digest contains a character that is not a lower-case hex digit.
    #[error("unexpected character {0}: a digest consists of lower-case hex digits")]
    Digest(usize),
}

impl ImageError {
    /// A static word for metrics and Events.
    pub fn category(&self) -> &'static str {
        "image_invalid"
    }
}

/// The parts of a reference, as they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    /// The registry with its port; `None` is Docker Hub.
    pub host: Option<&'a str>,
    /// The name within the registry.
    pub path: &'a str,
    /// The tag; without tag and digest, a runtime pulls `latest`.
    pub tag: Option<&'a str>,
    /// The digest, algorithm included.
    pub digest: Option<&'a str>,
}

/// Splits `reference` into its parts, and checks each.
///
/// # Errors
/// The first fault found, from the general to the particular and from left to right.
pub fn parse(reference: &str) -> Result<Reference<'_>, ImageError> {
    if reference.is_empty() {
        return Err(ImageError::Empty);
    }
    if let Some(at) = reference.bytes().position(|b| !b.is_ascii_graphic()) {
        return Err(not_graphic(reference, at));
    }
    // From here on every byte is a character.
    if reference.len() == 64 && reference.bytes().all(is_hex) {
        return Err(ImageError::Identifier);
    }
    let (host, rest) = split_host(reference);
    let start = reference.len() - rest.len();
    let (rest, digest) = split_at_first(rest, b'@');
    let (path, tag) = split_at_first(rest, b':');

    // A "host" with an underscore is invalid, but valid as part of a path, and the module reads it as that.
    let bad_host = host.and_then(|host| check_host(host).err());
    if let (Some(host), Some(error)) = (host, bad_host)
        && check_path(host, 0).is_err()
    {
        return Err(error);
    }
    check_path(path, start)?;
    let end = start + path.len();
    let (host, path) = match bad_host {
        Some(_) => (None, &reference[..end]),
        None => (host, path),
    };
    let length = match host {
        None | Some("docker.io" | "index.docker.io") if !path.contains('/') => {
            "library/".len() + path.len()
        }
        _ => path.len(),
    };
    if length > PATH_MAX {
        return Err(ImageError::PathTooLong(length));
    }
    if let Some(tag) = tag {
        check_tag(tag, end + 1)?;
    }
    if let Some(digest) = digest {
        check_digest(digest, reference.len() - digest.len())?;
    }
    Ok(Reference {
        host,
        path,
        tag,
        digest,
    })
}

/// The fault of the byte at `at`, which belongs to the first character that is not visible ASCII.
fn not_graphic(reference: &str, at: usize) -> ImageError {
    let (before, after) = reference.split_at(at);
    let number = before.len() + 1;
    match after.chars().next() {
        Some(c) if !c.is_whitespace() && !c.is_control() => ImageError::NotAscii(number),
        _ => ImageError::Blank(number),
    }
}

/// Host, if there is one, and what follows it.
fn split_host(reference: &str) -> (Option<&str>, &str) {
    match reference.split_once('/') {
        Some((first, rest)) if looks_like_host(first) => (Some(first), rest),
        _ => (None, reference),
    }
}

fn looks_like_host(first: &str) -> bool {
    first == "localhost"
        || first
            .bytes()
            .any(|b| matches!(b, b'.' | b':') || b.is_ascii_uppercase())
}

/// Both sides of the first `separator`, if there is one.
fn split_at_first(text: &str, separator: u8) -> (&str, Option<&str>) {
    match text.split_once(char::from(separator)) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Checks a host with its port. It stands at the very beginning of the reference.
fn check_host(host: &str) -> Result<(), ImageError> {
    let (name, port) = if host.starts_with('[') {
        let end = host.find(']').ok_or(ImageError::Host(host.len()))?;
        let address = &host[1..end];
        if address.is_empty() {
            return Err(ImageError::Host(end + 1));
        }
        if let Some(at) = address
            .bytes()
            .position(|b| !b.is_ascii_hexdigit() && b != b':')
        {
            return Err(ImageError::Host(at + 2));
        }
        match host[end + 1..].strip_prefix(':') {
            Some(port) => (None, Some(port)),
            None if end + 1 == host.len() => (None, None),
            None => return Err(ImageError::Host(end + 2)),
        }
    } else {
        let (name, port) = split_at_first(host, b':');
        (Some(name), port)
    };
    if let Some(name) = name {
        check_host_name(name)?;
    }
    port.map_or(Ok(()), check_port)
}

/// Labels of letters, digits and dashes, joined by dots; a dash neither begins nor ends a label.
fn check_host_name(name: &str) -> Result<(), ImageError> {
    let mut start = 0;
    for label in name.split('.') {
        let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if let Some(at) = label.bytes().position(|b| !inner(b)) {
            return Err(ImageError::Host(start + at + 1));
        }
        if label.is_empty() || label.starts_with('-') {
            return Err(ImageError::Host(start + 1));
        }
        if label.ends_with('-') {
            return Err(ImageError::Host(start + label.len()));
        }
        start += label.len() + 1;
    }
    Ok(())
}

fn check_port(port: &str) -> Result<(), ImageError> {
    // `parse` alone would take a plus sign.
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    // Leading zeros are legal, however many.
    let significant = port.trim_start_matches('0');
    if digits && (significant.is_empty() || significant.parse::<u16>().is_ok()) {
        Ok(())
    } else {
        Err(ImageError::Port)
    }
}

/// Checks a path that begins at the byte `start` of the reference.
fn check_path(path: &str, start: usize) -> Result<(), ImageError> {
    let bytes = path.as_bytes();
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if path.is_empty() {
        return Err(ImageError::NoName);
    }
    let mut at = 0;
    loop {
        // Letters and digits, at least one...
        let letters = bytes[at..].iter().take_while(|b| is_letter(**b)).count();
        at += letters;
        let Some(byte) = bytes.get(at) else {
            // At the end there must have been one: a separator does not end a name.
            return if letters > 0 {
                Ok(())
            } else {
                Err(ImageError::Path(start + at))
            };
        };
        if byte.is_ascii_uppercase() {
            return Err(ImageError::UpperCase(start + at + 1));
        }
        // ...then one separator, and again.
        let separator = match &bytes[at..] {
            [b'_', b'_', ..] => 2,
            [b'.' | b'_' | b'/', ..] => 1,
            rest => rest.iter().take_while(|b| **b == b'-').count(),
        };
        if letters == 0 || separator == 0 {
            return Err(ImageError::Path(start + at + 1));
        }
        at += separator;
    }
}

/// Checks a tag that begins at the byte `start` of the reference.
fn check_tag(tag: &str, start: usize) -> Result<(), ImageError> {
    if tag.is_empty() {
        return Err(ImageError::TagEmpty);
    }
    let fits = |(at, b): (usize, u8)| {
        b.is_ascii_alphanumeric() || b == b'_' || (at > 0 && matches!(b, b'.' | b'-'))
    };
    if let Some((at, _)) = tag.bytes().enumerate().find(|pair| !fits(*pair)) {
        return Err(ImageError::Tag(start + at + 1));
    }
    if tag.len() > TAG_MAX {
        Err(ImageError::TagTooLong(tag.len()))
    } else {
        Ok(())
    }
}

/// Checks a digest that begins at the byte `start` of the reference.
fn check_digest(digest: &str, start: usize) -> Result<(), ImageError> {
    let (algorithm, hex) = digest.split_once(':').ok_or(ImageError::DigestAlgorithm)?;
    let expected = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(ImageError::DigestAlgorithm),
    };
    if let Some(at) = hex.bytes().position(|b| !is_hex(b)) {
        return Err(ImageError::Digest(start + algorithm.len() + 1 + at + 1));
    }
    let found = hex.len();
    if found == expected {
        Ok(())
    } else {
        Err(ImageError::DigestLength { found, expected })
    }
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use my_operator_rounds::{lengths, proptest_config};
    use oci_spec::distribution::Reference as Oracle;
    use proptest::prelude::*;

    use super::*;

    fn hex(length: usize) -> String {
        "0123456789abcdef".chars().cycle().take(length).collect()
    }

    #[test]
    fn what_the_design_accepts_is_accepted() {
        let (sha256, sha512) = (hex(64), hex(128));
        for good in [
            "nginx",
            "nginx:1.25",
            "a__b",
            "localhost/a",
            &format!("localhost:5000/a/b@sha256:{sha256}"),
            &format!("r.io/a:1@sha256:{sha256}"),
            &format!("x@sha512:{sha512}"),
            "[::1]:5000/a",
            "UPPER/case",
            &format!("a:{}", "t".repeat(128)),
        ] {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good));
        }
    }

    #[test]
    fn what_the_design_refuses_is_refused_with_its_place() {
        let long = "t".repeat(129);
        let upper = hex(64).to_uppercase();
        for (bad, error) in [
            ("", ImageError::Empty),
            (" ", ImageError::Blank(1)),
            ("a b", ImageError::Blank(2)),
            (" nginx", ImageError::Blank(1)),
            ("nginx ", ImageError::Blank(6)),
            ("nginx\n", ImageError::Blank(6)),
            ("nginx:\u{a0}", ImageError::Blank(7)),
            ("Upper", ImageError::UpperCase(1)),
            ("nginx:", ImageError::TagEmpty),
            (":tag", ImageError::NoName),
            ("a//b", ImageError::Path(3)),
            ("nginx:t\u{e4}g", ImageError::NotAscii(8)),
            ("nginx:\u{4e2d}", ImageError::NotAscii(7)),
            (&format!("a:{long}"), ImageError::TagTooLong(129)),
            (
                &format!("a:{}", "t".repeat(200)),
                ImageError::TagTooLong(200),
            ),
            (
                "a@sha256:abc",
                ImageError::DigestLength {
                    found: 3,
                    expected: 64,
                },
            ),
            (&format!("a@sha256:{upper}"), ImageError::Digest(20)),
            ("a@sha256", ImageError::DigestAlgorithm),
            ("a@", ImageError::DigestAlgorithm),
            ("r.io/", ImageError::NoName),
            ("r.io:70000/a", ImageError::Port),
            ("-r.io/a", ImageError::Host(1)),
            ("r-.io/a", ImageError::Host(2)),
            ("r.io./a", ImageError::Host(6)),
            ("a-", ImageError::Path(2)),
            ("a/", ImageError::Path(2)),
            ("r.io/a:x:y", ImageError::Tag(9)),
            ("a:-x", ImageError::Tag(3)),
            ("[zz]:1/a", ImageError::Host(2)),
        ] {
            assert_eq!(parse(bad), Err(error), "{bad:?}");
        }
    }

    #[test]
    fn the_parts_are_those_that_were_written() {
        let digest = format!("sha256:{}", hex(64));
        let text = format!("r.io:5000/a/b:1@{digest}");
        let expected = Reference {
            host: Some("r.io:5000"),
            path: "a/b",
            tag: Some("1"),
            digest: Some(&digest),
        };
        assert_eq!(parse(&text), Ok(expected));
        let bare = Reference {
            host: None,
            path: "a/b",
            tag: None,
            digest: None,
        };
        assert_eq!(parse("a/b"), Ok(bare));
    }

    /// Made with `ParseNormalizedNamed` of github.com/distribution/reference v0.6.0.
    #[test]
    fn it_agrees_with_the_module_that_the_kubelet_uses() {
        let a = |n: usize| "a".repeat(n);
        let h = hex;
        let good = [
            a(247),
            format!("b/{}", a(253)),
            format!("r.io/{}", a(255)),
            format!("index.docker.io/{}", a(247)),
            format!("Aaaa/{}", a(255)),
            format!("{}:x", h(64)),
            format!("sha256:{}", h(64)),
            format!("a@sha384:{}", h(96)),
        ];
        let good = good.iter().map(String::as_str).chain([
            "UPPER/case",
            "a.b",
            "A.b/c",
            "localhost",
            "localhost/a",
            "Localhost/a",
            "LOCALHOST/a",
            "r.io:0/a",
            "r.io:00080/a",
            "r.io:65535/a",
            "a:5000/b",
            "[::1]/a",
            "[::1]:5000/a",
            "[:]/a",
            "a--b",
            "a---b",
            "a__b",
            "index.docker.io/a",
            "docker.io/a",
            "a:_x",
            "r.io",
            "r_x.io/a",
            "a:Tag",
            "r.io/a:Tag",
            "UPPER/a:b",
            "UPPER:80/x",
            "Abc/de/f",
            "localhost:5000",
            "1.2.3.4:80/a",
            "a--b.io/c",
        ]);
        for good in good {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good));
        }
        let bad = [
            a(248),
            format!("b/{}", a(254)),
            format!("r.io/{}", a(256)),
            h(64),
            format!("a@md5:{}", h(32)),
            format!("a@sha256:{}:x", h(64)),
            format!("a@sha256:{0}@sha256:{0}", h(64)),
            format!("a@SHA256:{}", h(64)),
            format!("@sha256:{}", h(64)),
        ];
        let bad = bad.iter().map(String::as_str).chain([
            "r.io:/a",
            "a:b/c",
            "[zz]/a",
            "[]/a",
            "[::1]",
            "[::1]a/b",
            "a___b",
            "a._b",
            "a.b..c",
            "-a",
            "a-",
            "a:-x",
            "a:.x",
            "r.io./a",
            "r..io/a",
            "-r.io/a",
            "r-.io/a",
            "docker.io/",
            "a/",
            "/a",
            "a:x:y",
            "A:tag",
            "r.io/A",
            "nginx\n",
            "r.io/a@b",
            "\u{e9}/a",
            "a/\u{c9}",
            "a:\u{c9}",
            "r.io//a",
            "a/b:1/c",
            "a_b:80/c",
            "A_b/c",
            "r_x.io:80/a",
            "./a",
            ":/a",
            ":1/a",
        ]);
        for bad in bad {
            assert!(parse(bad).is_err(), "{bad}: {:?}", parse(bad));
        }
        // The one exception.
        assert_eq!(parse("r.io:65536/a"), Err(ImageError::Port));
        assert_eq!(parse("[::1]:70000/a"), Err(ImageError::Port));
    }

    #[test]
    fn messages_read_as_sentences() {
        let message = parse("Nginx").unwrap_err().to_string();
        assert_eq!(
            message,
            "capital letter at character 1: an image's name is lower case"
        );
        let message = parse("nginx:a b").unwrap_err().to_string();
        assert_eq!(message, "blank or control character at character 8");
    }

    /// Where the oracle is known to differ from the module (and from us).
    fn oracle_is_wrong_about(text: &str) -> bool {
        let (host, _) = split_host(text);
        let digest = text.split_once('@').map_or("", |(_, digest)| digest);
        // Capital hex, addresses in brackets, identifiers, big ports: see the table of the design.
        digest.bytes().any(|b| b.is_ascii_uppercase())
            || text.starts_with('[')
            || (text.len() == 64 && text.bytes().all(is_hex))
            || host.is_some_and(|host| check_host(host) == Err(ImageError::Port))
            // A capital letter without dot or colon makes a host since v0.6.0 of the module.
            || host.is_some_and(|host| {
                !host.contains(['.', ':']) && host.bytes().any(|b| b.is_ascii_uppercase())
            })
            // A "host" with an underscore counts as path there, and its length with it.
            || host.is_some_and(|host| host.contains('_'))
    }

    /// Pieces that references are made of, and some that they are not.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[a-z0-9]{1,3}",
            2 => prop::sample::select(vec![
                "/", ":", ".", "-", "_", "__", "--", "@", "localhost", "docker.io", "r.io", "5000",
                "index.docker.io/", "sha256:", "sha512:", "A", "library/",
            ]).prop_map(str::to_owned),
            1 => Just(format!("@sha256:{}", "0f".repeat(32))),
            1 => Just(format!("@sha512:{}", "0f".repeat(64))),
            1 => (240..260_usize).prop_map(|n| "a".repeat(n)),
            1 => (126..131_usize).prop_map(|n| format!(":{}", "t".repeat(n))),
        ];
        prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(proptest_config(lengths::image_references()))]

        #[test]
        fn it_agrees_with_the_oracle_on_references_made_of_pieces(text in pieces()) {
            prop_assume!(!oracle_is_wrong_about(&text));
            prop_assert_eq!(parse(&text).is_ok(), Oracle::try_from(text.as_str()).is_ok(), "{}", text);
        }

        #[test]
        fn it_agrees_with_the_oracle_on_any_ascii(text in "[ -~]{0,12}") {
            prop_assume!(!oracle_is_wrong_about(&text));
            prop_assert_eq!(parse(&text).is_ok(), Oracle::try_from(text.as_str()).is_ok(), "{}", text);
        }

        #[test]
        fn it_never_panics_and_points_into_the_text(text in any::<String>()) {
            if let Err(ImageError::Blank(at) | ImageError::NotAscii(at)) = parse(&text) {
                prop_assert!((1..=text.chars().count()).contains(&at));
            }
        }
    }
}

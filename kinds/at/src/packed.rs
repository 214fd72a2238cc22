//! The text of a spec or status in less memory: a hundred thousand Ats may wait for years, and almost all of these texts
//! are alike.

/// What they have in common, as the API server writes them: with sorted keys. Each is stored as one byte. Where one begins
/// like another, the longer one is first.
const PHRASES: [&[u8]; 28] = [
    br#""conditions":[{"lastTransitionTime":"20"#,
    br#""lastTransitionTime":"20"#,
    br#""message":"the spec is valid","observedGeneration":"#,
    br#""reason":"Valid","status":"True","type":"Accepted"}"#,
    br#""phase":"PENDING","scheduledTime":"20"#,
    br#""phase":""#,
    br#""scheduledTime":"20"#,
    br#""dryRunGeneration":"#,
    br#""observedGeneration":"#,
    br#""message":""#,
    br#""reason":""#,
    br#""status":"True","type":""#,
    br#""status":"False","type":""#,
    br#""completionTime":"20"#,
    br#""startTime":"20"#,
    br#""latenessMilliseconds":"#,
    br#""lateness":""#,
    br#""podName":""#,
    br#""podUID":""#,
    br#""result":"Succeeded""#,
    br#""exitCode":0"#,
    br#""command":""#,
    br#""image":""#,
    br#""schedule":"20"#,
    br#""shell":[""#,
    br#""suspend":false"#,
    br#""template":{""#,
    br#""metadata":{""#,
];

/// The byte for each phrase: JSON text has no control characters but tab and line breaks.
const CODES: [u8; 28] = [
    1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
    30, 31,
];

/// Packs JSON text.
pub(super) fn pack(text: &str) -> Vec<u8> {
    let mut packed = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    // All phrases begin with a quote.
    while let Some(quote) = rest.iter().position(|byte| *byte == b'"') {
        let (before, from) = rest.split_at(quote);
        packed.extend_from_slice(before);
        let mut phrases = CODES.into_iter().zip(PHRASES);
        let known = phrases.find_map(|(code, phrase)| Some((code, from.strip_prefix(phrase)?)));
        let (byte, after) = known.unwrap_or((b'"', &from[1..]));
        packed.push(byte);
        rest = after;
    }
    packed.extend_from_slice(rest);
    packed
}

/// The text that was packed.
pub(super) fn unpack(packed: &[u8]) -> String {
    let mut text = Vec::with_capacity(packed.len());
    for part in packed.split_inclusive(|byte| *byte < b' ') {
        let (last, before) = part.split_last().unwrap_or((&0, part));
        let known = CODES.iter().position(|code| code == last);
        match known.and_then(|nth| PHRASES.get(nth)) {
            Some(phrase) => {
                text.extend_from_slice(before);
                text.extend_from_slice(phrase);
            }
            None => text.extend_from_slice(part),
        }
    }
    // Nothing is lost: phrases are whole characters.
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use my_operator_rounds::cases;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_phrase_has_a_byte_that_json_does_not_have() {
        for (nth, code) in CODES.iter().enumerate() {
            assert!(*code < b' ' && !b"\t\n\r".contains(code), "{code}");
            assert!(!CODES[..nth].contains(code), "{code} twice");
        }
        for (nth, phrase) in PHRASES.iter().enumerate() {
            let hides = PHRASES[..nth]
                .iter()
                .find(|other| phrase.starts_with(other));
            assert_eq!(hides, None, "{nth} is never found");
            assert!(phrase.starts_with(b"\""), "{nth} is never looked for");
        }
    }

    #[test]
    fn a_waiting_at_takes_a_third() {
        let accepted = json!({"lastTransitionTime": "2026-11-29T10:00:57Z", "message": "the spec is valid",
            "observedGeneration": 1, "reason": "Valid", "status": "True", "type": "Accepted"});
        let status = json!({"conditions": [accepted], "dryRunGeneration": 1, "observedGeneration": 1,
            "phase": "PENDING", "scheduledTime": "2099-01-01T00:00:00Z"});
        let text = status.to_string();
        let packed = pack(&text);
        assert!(packed.len() * 3 < text.len(), "{}", packed.len());
        assert_eq!(unpack(&packed), text);
    }

    #[test]
    fn any_text_is_given_back() {
        cases(2_000, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut text = String::new();
            for _ in 0..random.usize(..12) {
                match random.u8(..3) {
                    0 => text.push(random.char(' '..)),
                    1 => text.push(['\t', '\n', '\r', '"', '{'][random.usize(..5)]),
                    _ => {
                        let phrase = PHRASES[random.usize(..PHRASES.len())];
                        let end = random.usize(..=phrase.len());
                        text.push_str(std::str::from_utf8(&phrase[..end]).unwrap());
                    }
                }
            }
            assert_eq!(unpack(&pack(&text)), text);
        });
    }
}

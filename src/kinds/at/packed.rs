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

/// The byte for a phrase: JSON text has no control characters but tab and line breaks.
fn code(phrase: usize) -> Option<u8> {
    let free = (1..=8).chain([11, 12]).chain(14..=31);
    free.into_iter().nth(phrase)
}

/// Packs JSON text.
pub(super) fn pack(text: &str) -> Vec<u8> {
    let mut packed = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let mut phrases = PHRASES.iter().enumerate();
        let phrase = phrases.find_map(|(nth, phrase)| {
            let after = rest.strip_prefix(*phrase)?;
            Some((code(nth)?, after))
        });
        let (byte, after) = phrase.unwrap_or((*first, after));
        packed.push(byte);
        rest = after;
    }
    packed
}

/// The text that was packed.
pub(super) fn unpack(packed: &[u8]) -> String {
    let mut text = Vec::new();
    for byte in packed {
        let mut phrases = PHRASES.iter().enumerate();
        match phrases.find(|(nth, _)| code(*nth) == Some(*byte)) {
            Some((_, phrase)) => text.extend_from_slice(phrase),
            None => text.push(*byte),
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
        let codes: Vec<_> = (0..PHRASES.len()).map(|nth| code(nth).unwrap()).collect();
        for (nth, code) in codes.iter().enumerate() {
            assert!(*code < b' ' && !b"\t\n\r".contains(code), "{code}");
            assert!(!codes[..nth].contains(code), "{code} twice");
        }
        for (nth, phrase) in PHRASES.iter().enumerate() {
            let hides = PHRASES[..nth]
                .iter()
                .find(|other| phrase.starts_with(other));
            assert_eq!(hides, None, "{nth} is never found");
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

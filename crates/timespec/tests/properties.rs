//! What holds for any text and any "now".
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use at_timespec::{Error, parse, parse_touch};
use chrono::{DateTime, FixedOffset, NaiveDateTime, Utc};
use proptest::prelude::*;

/// Words of timespecs, whole and broken, and numbers of any size.
fn words() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "(now|noon|midnight|teatime|today|tomorrow|next|fri|wednesday|jan|february|may|am|pm|utc)",
        "(minutes|min|hours|days|week|months|years|\\+|-|,|/|:|\\.|')",
        "[0-9]{1,2}",
        "[0-9]{1,24}",
        "[0-2]?[0-9][:.,'h][0-9]{2}",
        "[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{1,8}",
        "\\PC{0,6}",
    ];
    proptest::collection::vec((word, prop_oneof![Just(" "), Just(""), Just("\t")]), 0..12).prop_map(
        |words| {
            words
                .into_iter()
                .map(|(word, space)| word + space)
                .collect()
        },
    )
}

fn nows() -> impl Strategy<Value = DateTime<FixedOffset>> {
    let seconds = prop_oneof![
        any::<i64>(),
        0..4_102_444_800_i64,
        Just(i64::MAX),
        Just(NaiveDateTime::MIN.and_utc().timestamp()),
        Just(NaiveDateTime::MAX.and_utc().timestamp()),
    ];
    (seconds, -86_399..86_400_i32).prop_map(|(seconds, offset)| {
        DateTime::from_timestamp(seconds, 0)
            .unwrap_or(DateTime::<Utc>::MAX_UTC)
            .with_timezone(&FixedOffset::east_opt(offset).unwrap())
    })
}

fn check(text: &str, result: Result<DateTime<Utc>, Error>) {
    match result {
        Ok(instant) => assert_eq!(instant.timestamp_subsec_nanos(), 0),
        Err(error) => {
            let message = error.to_string();
            assert!(message.len() < 400, "{message}");
            assert!(message.chars().all(|c| !c.is_control()), "{message:?}");
            assert!(
                text.get(error.start().unwrap_or_default()..).is_some(),
                "{error:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn words_in_any_order_are_an_instant_or_an_error_of_one_line(text in words(), now in nows()) {
        check(&text, parse(&text, &now));
        check(&text, parse_touch(&text, &now));
    }

    #[test]
    fn any_text_is_an_instant_or_an_error_of_one_line(text in any::<String>(), now in nows()) {
        check(&text, parse(&text, &now));
        check(&text, parse_touch(&text, &now));
    }

    #[test]
    fn an_instant_is_not_before_the_minute_of_now(text in words(), now in nows()) {
        if let Ok(instant) = parse(&text, &now) {
            prop_assert!(instant.timestamp() > now.timestamp() - 60, "{text:?} {now:?} {instant:?}");
        }
    }

    #[test]
    fn every_argument_of_t_is_read_digit_by_digit(text in "[0-9]{8,12}(\\.[0-9]{2})?", now in nows()) {
        if let Ok(instant) = parse_touch(&text, &now) {
            let local = instant.with_timezone(now.offset()).naive_local();
            prop_assert!(local.format("%Y%m%d%H%M.%S").to_string().contains(&text), "{text} {local}");
        }
    }
}

#[test]
fn text_of_a_megabyte_is_read_in_time() {
    let now = "2026-11-23T12:47:35Z".parse::<DateTime<Utc>>().unwrap();
    for word in ["9", "x", "now ", "+ 1 day ", "\u{1F553}"] {
        let text = word.repeat(1_000_000 / word.len());
        check(&text, parse(&text, &now));
        check(&text, parse_touch(&text, &now));
    }
}

#[test]
fn what_a_terminal_would_act_on_is_escaped_in_messages() {
    let now = "2026-11-23T12:47:35Z".parse::<DateTime<Utc>>().unwrap();
    for hostile in [
        "\u{1b}[31mred",
        "\u{202e}txt",
        "\u{9b}2J",
        "\u{7}",
        "\r",
        "noon \u{2066}x",
        "x\u{200b}",
    ] {
        for error in [
            parse(hostile, &now).unwrap_err(),
            parse_touch(hostile, &now).unwrap_err(),
        ] {
            let message = error.to_string();
            assert!(
                message.chars().all(|c| (' '..='~').contains(&c)),
                "{message:?}"
            );
        }
    }
}

#[test]
fn an_error_knows_where_its_word_starts() {
    let now = "2026-11-23T12:47:35Z".parse::<DateTime<Utc>>().unwrap();
    for (text, word) in [
        ("16:00 tommorow", "tommorow"),
        ("now + 5minuts", "5minuts"),
        ("noon 45 nov", "45"),
        ("16:00 13/1/2027", "13"),
        ("now + 99999999999 days", "99999999999"),
    ] {
        let error = parse(text, &now).unwrap_err();
        assert_eq!(error.start(), text.find(word), "{text}");
        assert!(
            error.to_string().starts_with(&format!("{word:?} is not")),
            "{error}"
        );
    }
    for (text, start) in [
        ("202613011200", 4),
        ("01012400", 4),
        ("2601011260", 8),
        ("01011200.60", 9),
    ] {
        assert_eq!(
            parse_touch(text, &now).unwrap_err().start(),
            Some(start),
            "{text}"
        );
    }
}

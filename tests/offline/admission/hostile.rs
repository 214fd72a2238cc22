//! What no honest client sends, or no careful one. `Wire` holds every answer to what must always
//! hold; here is what must be sent, and what must be said besides.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, Request};
use my_operator::kinds::{Kind, REGISTRY};
use my_operator_rounds::large::pointers;
use my_operator_rounds::{lengths, seed};
use serde_json::{Value, json};

use super::objects::{has_field, sample, sample_with, schema};
use super::random::{Random, some_kinds};
use super::wire::{Ask, UID, VERBS, Wire};

/// The longest that an answer may take, in a debug build on a busy machine. What is quadratic takes
/// minutes.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Calls `check` with each kind and the path of each of its webhooks.
fn everywhere(mut check: impl FnMut(&Kind, &str)) {
    for kind in REGISTRY {
        for verb in VERBS {
            check(kind, &kind.admission.path(verb));
        }
    }
}

/// The same with some kinds, for bodies of megabytes.
fn somewhere(mut check: impl FnMut(&Kind, &str)) {
    for kind in some_kinds() {
        for verb in VERBS {
            check(kind, &kind.admission.path(verb));
        }
    }
}

/// Texts that should reach neither terminal nor log as they are.
fn hostile_texts() -> Vec<String> {
    vec![
        "x".repeat(4096),
        "\u{1F433}".repeat(1024),
        "\u{202e}txt.exe\u{202c}".to_owned(),
        "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m".to_owned(),
        "two\nlines\r\nand\u{2028}more\u{85}".to_owned(),
        "\0".to_owned(),
        "a\0b\t\u{8}\u{7f}".to_owned(),
        "\u{feff}\u{200b}\u{2066}\u{ad}\u{e0041}".to_owned(),
        "\u{ffff}\u{10ffff}\u{d7ff}\u{e000}".to_owned(),
        r#"" \ \\ ' `${x} %s {} <b>&amp;"#.to_owned(),
        "a/b~c~0d~1/".to_owned(),
        "../../../../etc/passwd".to_owned(),
        String::new(),
        "\u{202e}".repeat(1365),
    ]
}

/// As many of them as a run has time for in every place of every kind.
fn some_hostile_texts() -> Vec<String> {
    let mut texts = hostile_texts();
    Random::new(seed("the choice of texts")).shuffle(&mut texts);
    texts.truncate(lengths::hostile_texts());
    texts
}

#[test]
fn hostile_texts_in_any_place_never_come_back_raw() {
    let wire = Wire::new();
    for kind in REGISTRY {
        let good = sample_with(
            kind,
            &json!({"template": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": {"containers": [{"name": "side", "image": "r.io/a:1", "ports": [{"hostPort": 1}]}],
                         "initContainers": [{"name": "i", "image": "r.io/b:1"}], "nodeSelector": {"e": "f"},
                         "restartPolicy": "Never", "schedulingGates": [{"name": "g"}],
                         "volumes": [{"name": "v", "ephemeral": {}}]}}}),
        );
        let mut good = good;
        good["metadata"]["annotations"] = json!({"h": "i"});
        good["metadata"]["generateName"] = json!("x-");
        for key in kind.admission.recorded {
            good["metadata"]["annotations"][*key] = json!("j");
        }
        let good_text = good.to_string();
        let places = pointers(&good);
        assert!(places.len() > 20, "{}: {places:?}", kind.name);
        for text in some_hostile_texts() {
            for place in &places {
                let (parent, key) = place.rsplit_once('/').unwrap();
                let key = key.replace("~1", "/").replace("~0", "~");
                // As the value...
                let mut changed = good.clone();
                *changed.pointer_mut(place).unwrap() = text.as_str().into();
                both(&wire, kind, &good_text, &changed);
                // ...and as the name of a field, with the value and with one of another type.
                let mut changed = good.clone();
                if let Some(Value::Object(fields)) = changed.pointer_mut(parent) {
                    let value = fields.remove(&key).unwrap();
                    fields.insert(text.clone(), value);
                    both(&wire, kind, &good_text, &changed);
                    if let Some(Value::Object(fields)) = changed.pointer_mut(parent) {
                        fields.insert(text.clone(), json!([7]));
                    }
                    both(&wire, kind, &good_text, &changed);
                }
            }
        }
    }
}

/// To both webhooks, as a creation, and as an update in either direction.
fn both(wire: &Wire, kind: &Kind, old: &str, new: &Value) {
    let new = new.to_string();
    for (verb, ask) in [
        ("mutate", Ask::create(&new)),
        ("mutate", Ask::update(&new, old)),
        ("validate", Ask::update(old, &new)),
        ("validate", Ask::update(&new, &new)),
    ] {
        wire.post(&kind.admission.path(verb), ask.review(kind).as_bytes());
    }
}

#[test]
fn hostile_texts_around_the_object_never_come_back_raw() {
    let wire = Wire::new();
    everywhere(|kind, path| {
        let object = sample(kind).to_string();
        let good: Value =
            serde_json::from_str(&Ask::update(&object, &object).review(kind)).unwrap();
        let mut places = pointers(&good);
        places.retain(|place| !place.contains("bject/"));
        for text in hostile_texts() {
            for place in &places {
                let mut changed = good.clone();
                *changed.pointer_mut(place).unwrap() = text.as_str().into();
                wire.post(path, changed.to_string().as_bytes());
            }
            let mut changed = good.clone();
            changed["request"][text.as_str()] = json!({ "x": 1 });
            changed["request"]["requestSubResource"] = text.as_str().into();
            wire.post(path, changed.to_string().as_bytes());
        }
    });
}

#[test]
fn every_image_of_the_table_is_judged_as_the_rules_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle");
    let picked = fs::read_to_string(folder.join("picked.jsonl")).unwrap();
    let wire = Wire::new();
    for kind in REGISTRY.iter().filter(|kind| has_field(kind, "image")) {
        for line in picked.lines() {
            let image: String = serde_json::from_str(line).unwrap();
            let good = my_operator_kind::image::parse(&image).is_ok();
            let object = sample_with(kind, &json!({ "image": image }));
            let review = Ask::create(&object.to_string()).review(kind);
            let answer = wire.post(&kind.admission.path("validate"), review.as_bytes());
            let response = answer.response();
            assert_eq!(response["allowed"], good, "{line}: {response}");
            let causes = &response["status"]["details"]["causes"];
            if !good {
                assert_eq!(causes.as_array().unwrap().len(), 1, "{line}: {response}");
                assert_eq!(causes[0]["field"], "spec.image");
            }
        }
    }
}

#[test]
fn bad_schedules_are_refused_in_their_field() {
    let wire = Wire::new();
    for kind in REGISTRY.iter().filter(|kind| has_field(kind, "schedule")) {
        let long = "9".repeat(4096);
        for text in [
            "",
            " ",
            "now ",
            " now",
            "Now",
            "now + 0 days",
            "now +",
            "now + 1 fortnight",
            "now + 99999999999999999999 days",
            "now\u{a0}+ 1 day",
            "2026-02-30T00:00:00Z",
            "2026-04-12T10:12:60Z",
            "2026-04-12 10:12:00Z",
            "+2026-04-12T10:12:00Z",
            "2026-04-12T10:12:00Z\n",
            "\u{202e}Z00:21:01T21-40-6202",
            "\u{662}026-04-12T10:12:00Z",
            "* * * * *",
            "@daily",
            "1775988720",
            "\0",
            &long,
        ] {
            let object = sample_with(kind, &json!({ "schedule": text }));
            let review = Ask::create(&object.to_string()).review(kind);
            let answer = wire.post(&kind.admission.path("validate"), review.as_bytes());
            let status = &answer.response()["status"];
            assert_eq!(status["code"], 422, "{text:?}");
            assert_eq!(
                status["details"]["causes"][0]["field"], "spec.schedule",
                "{text:?}"
            );
        }
    }
}

#[test]
fn any_value_of_any_type_in_any_place_is_answered() {
    let values = [
        "null",
        "true",
        "0",
        "-0",
        "-1",
        "1.0",
        "1e3",
        "1e308",
        "1e-400",
        "0.1",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "-9223372036854775809",
        "99999999999999",
        "123456789012345678901234567890",
        "[]",
        "{}",
        "[[]]",
        "[null]",
        r#"{"":{}}"#,
        r#""""#,
        r#"[{"name":"x"}]"#,
        r#"["x"]"#,
        r#"{"x":"y"}"#,
    ];
    let wire = Wire::new();
    for kind in REGISTRY {
        let good = sample(kind);
        let whole: Value =
            serde_json::from_str(&Ask::update(&good.to_string(), &good.to_string()).review(kind))
                .unwrap();
        for place in pointers(&whole) {
            let mut marked = whole.clone();
            *marked.pointer_mut(&place).unwrap() = "MARK".into();
            let marked = marked.to_string();
            for value in values {
                for verb in VERBS {
                    let review = marked.replace(r#""MARK""#, value);
                    wire.post(&kind.admission.path(verb), review.as_bytes());
                }
            }
        }
    }
}

#[test]
fn what_is_no_review_is_a_4xx_with_its_reason() {
    let wire = Wire::new();
    everywhere(|kind, path| {
        let object = sample(kind).to_string();
        let review = Ask::create(&object).review(kind);
        let in_bytes = |text: &str, bytes: &[u8]| {
            let (before, after) = review.split_once(text).unwrap();
            [before.as_bytes(), bytes, after.as_bytes()].concat()
        };
        let mut not_utf_8 = Vec::new();
        for bad in [
            &b"\xff"[..],
            b"\xc0\xaf",
            b"\xed\xa0\x80",
            b"\xf5\x80\x80\x80",
            b"\xe2\x80",
        ] {
            not_utf_8.push(in_bytes("default", bad));
        }
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        let cases: Vec<(Vec<u8>, &str)> = vec![
            (b"".to_vec(), "EOF"),
            (b" ".to_vec(), "EOF"),
            (b"\0".to_vec(), "expected value"),
            (b"null".to_vec(), "not an AdmissionReview"),
            (b"[]".to_vec(), "not an AdmissionReview"),
            (b"\"x\"".to_vec(), "not an AdmissionReview"),
            (
                b"{}".to_vec(),
                "expected admission.k8s.io/v1 AdmissionReview",
            ),
            (format!("[{review}]").into_bytes(), "not an AdmissionReview"),
            (format!("{review}x").into_bytes(), "trailing characters"),
            (
                format!("{review}{review}").into_bytes(),
                "trailing characters",
            ),
            (format!("{review}\0").into_bytes(), "trailing characters"),
            (review.as_bytes()[..review.len() / 2].to_vec(), "EOF"),
            (
                [b"\xef\xbb\xbf", review.as_bytes()].concat(),
                "expected value",
            ),
            (
                review.encode_utf16().flat_map(u16::to_le_bytes).collect(),
                "not an AdmissionReview",
            ),
            (deep(100).into_bytes(), "not an AdmissionReview"),
            (deep(1_000).into_bytes(), "not an AdmissionReview"),
            (deep(100_000).into_bytes(), "not an AdmissionReview"),
            (
                format!("{{\"x\":{}", "[".repeat(100_000)).into_bytes(),
                "EOF",
            ),
            (
                review.replace("k8s.io/v1", "k8s.io/v1beta1").into_bytes(),
                "v1beta1",
            ),
            (
                review
                    .replace("AdmissionReview", "ConversionReview")
                    .into_bytes(),
                "ConversionReview",
            ),
            (
                review
                    .replacen("\"request\"", "\"response\"", 1)
                    .into_bytes(),
                "no request",
            ),
            (
                review
                    .replace(&format!("\"uid\":\"{UID}\","), "")
                    .into_bytes(),
                "missing field `uid`",
            ),
            (
                review.replace(&format!("\"{UID}\""), "7").into_bytes(),
                "invalid type: integer `7`",
            ),
            (
                review.replace(&format!("\"{UID}\""), "null").into_bytes(),
                "invalid type: null",
            ),
            (
                review.replace(UID, r"\ud800").into_bytes(),
                "not an AdmissionReview",
            ),
            (
                review.replace(UID, r"\udc00").into_bytes(),
                "not an AdmissionReview",
            ),
            (
                review
                    .replace("\"name\":\"x\"", "\"name\":\"x\",\"uid\":\"two\"")
                    .into_bytes(),
                "duplicate field `uid`",
            ),
            (
                review
                    .replacen("\"kind\":", "\"kind\":\"AdmissionReview\",\"kind\":", 1)
                    .into_bytes(),
                "duplicate field `kind`",
            ),
            (
                review
                    .replacen("\"request\":", "\"request\":null,\"request\":", 1)
                    .into_bytes(),
                "duplicate field `request`",
            ),
            (
                review
                    .replacen("\"object\":", "\"object\":{},\"object\":", 1)
                    .into_bytes(),
                "duplicate field `object`",
            ),
            (
                review.replace("\"default\"", "NaN").into_bytes(),
                "not an AdmissionReview",
            ),
            (
                review.replace("\"default\"", "'x'").into_bytes(),
                "not an AdmissionReview",
            ),
            (
                review.replace("\"default\"", "\"a\tb\"").into_bytes(),
                "control character",
            ),
            (
                review.replace("\"default\"", "01").into_bytes(),
                "not an AdmissionReview",
            ),
            (
                review.replace("\"default\"", "\"\\x\"").into_bytes(),
                "invalid escape",
            ),
        ];
        for (body, words) in cases
            .into_iter()
            .chain(not_utf_8.into_iter().map(|b| (b, "")))
        {
            let answer = wire.post(path, &body);
            let start = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
            assert_eq!(answer.status, 400, "{start}: {}", answer.json);
            let line = answer.json["error"].as_str().unwrap().to_owned();
            assert!(line.contains(words), "{start}: {line}");
        }
    });
}

#[test]
fn an_array_is_no_object_however_well_its_items_fit() {
    let wire = Wire::new();
    everywhere(|kind, path| {
        let good: Value =
            serde_json::from_str(&Ask::create(&sample(kind).to_string()).review(kind)).unwrap();
        let request = &good["request"];
        let with = |key: &str, items: Value| {
            let mut review = good.clone();
            review["request"][key] = items;
            review
        };
        let mut in_request = good.clone();
        in_request["request"] = json!([UID, request["kind"], "default", "CREATE", "", {}, {}, {}]);
        let names = &request["kind"];
        for review in [
            json!([good["apiVersion"], good["kind"], request]),
            in_request,
            with(
                "kind",
                json!([names["group"], names["version"], names["kind"]]),
            ),
            with("userInfo", json!(["ann"])),
        ] {
            let answer = wire.post(path, review.to_string().as_bytes());
            assert_eq!(answer.status, 400, "{review}");
        }
        for object in [
            json!([{"name": "x"}, {}, {}]),
            json!({"metadata": ["x", "", {}, null], "spec": {}}),
        ] {
            let answer = wire.post(path, with("object", object).to_string().as_bytes());
            assert_eq!(answer.response()["status"]["code"], 400);
        }
    });
}

#[test]
fn what_is_no_call_of_a_webhook_is_a_4xx_with_its_reason() {
    let wire = Wire::new();
    let path = REGISTRY[0].admission.path("validate");
    let object = sample(REGISTRY[0]).to_string();
    let review = Ask::create(&object).review(REGISTRY[0]);
    let send = |method: Method, path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(review.clone())).unwrap();
        wire.send(request, review.as_bytes()).status.as_u16()
    };
    let json = [("content-type", "application/json")];
    for method in [
        Method::GET,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ] {
        assert_eq!(send(method.clone(), &path, &json), 405, "{method}");
    }
    let longer = format!("{path}/");
    let upper = path.to_uppercase();
    let long = format!("/{}", "x".repeat(4096));
    for lost in [
        "/",
        "/validate",
        "//",
        &longer,
        &upper,
        &long,
        "/%00",
        "/%2e%2e/",
        "/metrics",
    ] {
        assert_eq!(send(Method::POST, lost, &json), 404, "{lost}");
    }
    for query in [
        "?",
        "?timeout=",
        "?timeout=-1s",
        "?timeout=10s&timeout=x",
        "?%ff=%00",
    ] {
        assert_eq!(
            send(Method::POST, &format!("{path}{query}"), &json),
            200,
            "{query}"
        );
    }
    for good in [
        "application/json",
        "application/json; charset=utf-8",
        "application/json ;x=\"y\"",
    ] {
        assert_eq!(
            send(Method::POST, &path, &[("content-type", good)]),
            200,
            "{good}"
        );
    }
    for bad in [
        "",
        "text/plain",
        "application/json-patch+json",
        "application/yaml",
        "application/jsonx",
        "application/vnd.kubernetes.protobuf",
        "multipart/form-data; boundary=application/json",
    ] {
        assert_eq!(
            send(Method::POST, &path, &[("content-type", bad)]),
            415,
            "{bad}"
        );
    }
    assert_eq!(send(Method::POST, &path, &[]), 415);
    for encoding in ["gzip", "deflate", "br", "zstd", "x"] {
        let headers = [json[0], ("content-encoding", encoding)];
        assert_eq!(send(Method::POST, &path, &headers), 415, "{encoding}");
    }
}

#[test]
fn a_review_that_should_not_have_come_keeps_its_uid() {
    let wire = Wire::new();
    everywhere(|kind, path| {
        let object = sample(kind).to_string();
        let names = (kind.admission.resource)();
        let create = Ask::create(&object).review(kind);
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        let with = |object: &str| Ask::create(object).review(kind);
        for (review, words) in [
            (
                create.replace(
                    &format!("\"kind\":\"{}\",", names.kind),
                    "\"kind\":\"Other\",",
                ),
                "this path judges",
            ),
            (
                // A group may be the end of another's name, as k8s.io is.
                create.replace(
                    &format!("\"group\":\"{}\"", names.group),
                    "\"group\":\"example.com\"",
                ),
                "this path judges",
            ),
            (
                create.replace(&format!("\"object\":{object},"), ""),
                "no object",
            ),
            (with("null"), "no object"),
            (with("[]"), "unreadable object"),
            (with("[{}]"), "unreadable object"),
            (with("\"x\""), "unreadable object"),
            (with("7"), "unreadable object"),
            (with(&deep(100)), "unreadable object"),
            (with(&deep(1_000)), "unreadable object"),
            (with(&deep(100_000)), "unreadable object"),
            (
                with(&format!(r#"{{"metadata":{{"name":"{}"}}}}"#, r"\ud800")),
                "unreadable object",
            ),
            (with(r#"{"metadata":{"name":7}}"#), "unreadable object"),
            (with(r#"{"metadata":[]}"#), "unreadable object"),
            (with(r#"{"metadata":"x"}"#), "unreadable object"),
            (
                with(r#"{"metadata":{"annotations":{"a":1}}}"#),
                "unreadable object",
            ),
            (
                with(r#"{"metadata":{"annotations":["a"]}}"#),
                "unreadable object",
            ),
            (
                with(r#"{"metadata":{"creationTimestamp":"yesterday"}}"#),
                "unreadable object",
            ),
            (
                with(r#"{"metadata":{"name":"a","name":"b"}}"#),
                "duplicate field `name`",
            ),
            (
                with(r#"{"metadata":{},"metadata":{}}"#),
                "duplicate field `metadata`",
            ),
            (with(r#"{"spec":{},"spec":{}}"#), "duplicate field `spec`"),
            (
                Ask::update("[]", &object).review(kind),
                "unreadable oldObject",
            ),
        ] {
            let start = &review[..review.len().min(200)];
            // A creation's mutating side refuses too: there is nothing that it could default.
            let answer = wire.post(path, review.as_bytes());
            let response = answer.response();
            assert_eq!(response["uid"], UID);
            assert_eq!(response["allowed"], false, "{start}");
            assert_eq!(response["status"]["code"], 400, "{start}");
            let message = response["status"]["message"].as_str().unwrap();
            assert!(message.contains(words), "{start}: {message}");
        }
    });
}

#[test]
fn a_spec_that_is_too_deep_or_holds_too_much_is_refused_before_it_is_read() {
    let wire = Wire::new();
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let many = |n: usize| format!("[{}0]", r#"{"a":0},"#.repeat(n));
    somewhere(|kind, path| {
        for (template, reason, words) in [
            (nested(101), "Forbidden", "nested deeper than 100 levels"),
            (
                nested(100_000),
                "Forbidden",
                "nested deeper than 100 levels",
            ),
            (many(10_001), "Forbidden", "takes more than 4 MiB of memory"),
            (
                many(100_000),
                "TooLong",
                "may not be more than 262144 bytes",
            ),
        ] {
            let object = format!(
                r#"{{"metadata":{{"name":"x"}},"spec":{{"template":{{"spec":{{"x":{template}}}}}}}}}"#
            );
            let answer = wire.post(path, Ask::create(&object).review(kind).as_bytes());
            let response = answer.response();
            // The defaulting side leaves it to the other.
            let refuses = path.starts_with("/validate");
            assert_eq!(response["allowed"], !refuses, "{words}");
            if refuses {
                let cause = &response["status"]["details"]["causes"][0];
                assert_eq!(
                    (&cause["field"], &cause["reason"]),
                    (&json!("spec"), &json!(format!("FieldValue{reason}")))
                );
                let message = cause["message"].as_str().unwrap();
                assert!(message.contains(words), "{message}");
            }
            // An object that is already stored may be labelled and fixed.
            let update = Ask::update(&object, &object).review(kind);
            let answer = wire.post(path, update.as_bytes());
            assert_eq!(answer.response()["allowed"], true, "{words}");
        }
    });
}

#[test]
fn a_review_of_very_many_annotations_is_read_as_any_other() {
    let wire = Wire::new();
    somewhere(|kind, path| {
        let annotations = r#""a":"","#.repeat(500_001);
        let object =
            format!(r#"{{"metadata":{{"name":"x","annotations":{{{annotations}"b":0}}}}}}"#);
        let answer = wire.post(path, Ask::create(&object).review(kind).as_bytes());
        let message = &answer.response()["status"]["message"];
        let message = message.as_str().unwrap();
        assert!(
            message.contains("an annotation must be a string"),
            "{message}"
        );
    });
}

#[test]
fn of_a_key_that_stands_twice_in_a_spec_the_last_one_counts_as_it_does_for_the_api_server() {
    let wire = Wire::new();
    for kind in REGISTRY.iter().filter(|kind| has_field(kind, "image")) {
        let object = sample_with(kind, &json!({ "image": "MARK" })).to_string();
        for (first, last, allowed) in [("a b", "a:1", true), ("a:1", "a b", false)] {
            let twice = format!(r#""image":"{first}","image":"{last}""#);
            let object = object.replace(r#""image":"MARK""#, &twice);
            let review = Ask::create(&object).review(kind);
            let answer = wire.post(&kind.admission.path("validate"), review.as_bytes());
            assert_eq!(answer.response()["allowed"], allowed, "{object}");
        }
    }
}

#[test]
fn what_is_not_judged_passes_whatever_the_object_is() {
    let wire = Wire::new();
    everywhere(|kind, path| {
        for object in ["null", "[]", "{}", "7", r#"{"spec":7}"#, r#""\ud800""#] {
            let ask = |operation| Ask {
                operation,
                ..Ask::update(object, object)
            };
            for operation in ["DELETE", "CONNECT", "", "create", "OTHER"] {
                let review = ask(operation).review(kind);
                let answer = wire.post(path, review.as_bytes());
                let response = answer.response();
                assert_eq!(response["allowed"], true, "{review}");
                assert_eq!(response.get("patch"), None);
            }
            for subresource in ["status", "scale", "x"] {
                let to = format!(r#""subResource":"{subresource}","object":"#);
                let review = ask("UPDATE").review(kind).replace(r#""object":"#, &to);
                let answer = wire.post(path, review.as_bytes());
                let response = answer.response();
                assert_eq!(response["allowed"], true, "{review}");
            }
        }
    });
}

#[test]
fn a_dry_run_and_a_generated_name_are_judged_as_any_other() {
    let wire = Wire::new();
    everywhere(|kind, path| {
        let mut object = sample(kind);
        object["spec"] = json!({});
        let plain = Ask::create(&object.to_string()).review(kind);
        let dry = plain.replace("\"dryRun\":false", "\"dryRun\":true");
        assert_ne!(plain, dry);
        let answer = wire.post(path, plain.as_bytes());
        assert_eq!(answer.body, wire.post(path, dry.as_bytes()).body);
        let name = object["metadata"]["name"].take();
        object["metadata"] = json!({ "generateName": name });
        let generated = Ask::create(&object.to_string()).review(kind);
        assert_eq!(answer.body, wire.post(path, generated.as_bytes()).body);
    });
}

#[test]
fn any_uid_comes_back_unless_it_is_long() {
    let wire = Wire::new();
    everywhere(|kind, path| {
        let object = sample(kind).to_string();
        let answered = |uid: &str| {
            let review = Ask::create(&object).review(kind).replace(UID, uid);
            wire.post(path, review.as_bytes())
        };
        let longest = "u".repeat(256);
        for uid in ["", "x", &longest, r"\u0000\n\u202e", "\u{1F433}"] {
            let back: Value = serde_json::from_str(&format!("\"{uid}\"")).unwrap();
            assert_eq!(answered(uid).response()["uid"], back);
        }
        let refused = answered(&format!("{longest}u"));
        assert_eq!(refused.status, 400);
        let message = "request.uid has 257 bytes; at most 256 are allowed";
        assert_eq!(refused.json["error"], message);
    });
}

/// Objects that are nearly nothing but faults, warnings or long texts, some of them of the size
/// that the API server takes.
fn huge_specs() -> Vec<(&'static str, String)> {
    let list = |item: &str, n: usize| format!("[{}]", vec![item; n].join(","));
    let containers = |list: &str| format!(r#"{{"template":{{"spec":{{"containers":{list}}}}}}}"#);
    let keys = |value: &str| {
        let keys: Vec<_> = (0..5_000).map(|i| format!("\"k{i}\":{value}")).collect();
        format!("{{{}}}", keys.join(","))
    };
    let text = "x".repeat(3 << 19);
    let dots = "\\u202e".repeat(1 << 18);
    vec![
        ("empty containers", containers(&list("{}", 5_000))),
        (
            "very many empty containers",
            containers(&list("{}", 50_000)),
        ),
        ("numbers for containers", containers(&list("7", 10_000))),
        (
            "containers of one name",
            containers(&list(r#"{"name":"a","image":"a"}"#, 5_000)),
        ),
        (
            "bad images",
            containers(&list(r#"{"name":"A","image":"a b"}"#, 5_000)),
        ),
        (
            "good containers",
            containers(&format!(
                "[{}]",
                (0..5_000)
                    .map(|i| format!(r#"{{"name":"c{i}","image":"a:1"}}"#))
                    .collect::<Vec<_>>()
                    .join(",")
            )),
        ),
        (
            "labels of another type",
            format!(
                r#"{{"template":{{"metadata":{{"labels":{}}}}}}}"#,
                keys("7")
            ),
        ),
        (
            "forbidden labels",
            format!(
                r#"{{"template":{{"metadata":{{"labels":{}}}}}}}"#,
                keys("\"v\"").replace("\"k", "\"apps.zhongmingmao.io/k")
            ),
        ),
        (
            "gates",
            format!(
                r#"{{"template":{{"spec":{{"schedulingGates":{}}}}}}}"#,
                list(r#"{"name":"g"}"#, 5_000)
            ),
        ),
        (
            "volumes",
            format!(
                r#"{{"template":{{"spec":{{"volumes":{}}}}}}}"#,
                list(r#"{"ephemeral":{}}"#, 5_000)
            ),
        ),
        ("unknown fields", keys("{}")),
        (
            "a long text for a number",
            format!(r#"{{"minReadySeconds":"{text}","ttlSecondsAfterFinished":"{text}"}}"#),
        ),
        ("a long image", format!(r#"{{"image":"{text}"}}"#)),
        (
            "a long schedule",
            format!(r#"{{"schedule":"{text}","command":"{text}"}}"#),
        ),
        (
            "a long name of a label",
            format!(r#"{{"template":{{"metadata":{{"labels":{{"{text}":7}}}}}}}}"#),
        ),
        (
            "a long name of a field in the way",
            format!(r#"{{"updateStrategy":{{"{text}":7,"type":7}}}}"#),
        ),
        (
            "a long name of a container",
            containers(&format!(
                r#"[{{"name":"{text}","image":"a:1","ports":[{{"hostPort":80}}]}}]"#
            )),
        ),
        (
            "texts that are longer when shown",
            format!(r#"{{"image":"{dots}","schedule":"{dots}"}}"#),
        ),
        (
            "a long shell",
            format!(r#"{{"shell":{}}}"#, list("\"\"", 20_000)),
        ),
        ("a text", format!("\"{text}\"")),
        ("a list", list("0", 20_000)),
    ]
}

#[test]
fn an_object_of_nothing_but_faults_is_answered_soon_and_briefly() {
    let wire = Wire::new();
    for (what, spec) in huge_specs() {
        let object = format!(r#"{{"metadata":{{"name":"x"}},"spec":{spec}}}"#);
        // The same with one change, so that every fault has to be looked up among the old ones.
        let other = format!(r#"{{"metadata":{{"name":"x"}},"extra":1,"spec":{spec}}}"#);
        somewhere(|kind, path| {
            for ask in [Ask::create(&object), Ask::update(&object, &other)] {
                // What is defaulted is the same for both.
                if ask.operation == "CREATE" && path.starts_with("/mutate") {
                    continue;
                }
                let review = ask.review(kind);
                let start = Instant::now();
                wire.post(path, review.as_bytes());
                let took = start.elapsed();
                assert!(
                    took < TIMEOUT,
                    "{what}: {path} {} took {took:?}",
                    ask.operation
                );
            }
        });
    }
}

#[test]
fn long_texts_outside_the_spec_are_answered_briefly() {
    let wire = Wire::new();
    let text = "x".repeat(1 << 19);
    let bidi = "\u{202e}".repeat(1 << 17);
    for text in [text, bidi] {
        somewhere(|kind, path| {
            for metadata in [
                json!({ "name": text }),
                json!({ "generateName": text }),
                json!({ "name": "x", "annotations": text }),
                json!({ "name": "x", "annotations": { text.as_str(): 7 } }),
                json!({ "name": "x", "annotations": { text.as_str(): text } }),
                json!({ "name": "x", "creationTimestamp": text }),
                json!(text),
            ] {
                let object = json!({ "metadata": metadata, "spec": {} }).to_string();
                wire.post(path, Ask::create(&object).review(kind).as_bytes());
                wire.post(path, Ask::update(&object, &object).review(kind).as_bytes());
            }
            let object = sample(kind).to_string();
            let review = Ask::create(&object).review(kind);
            for part in [
                "\"default\"",
                "\"CREATE\"",
                "\"ann\"",
                "\"admission.k8s.io/v1\"",
                "false",
            ] {
                let long = review.replace(part, &format!("\"{text}\""));
                wire.post(path, long.as_bytes());
            }
            let (kind_name, group) = {
                let names = (kind.admission.resource)();
                (names.kind, names.group)
            };
            for part in [kind_name, group] {
                wire.post(path, review.replace(&part, &text).as_bytes());
            }
        });
    }
}

/// Every place of a schema below `path`, with its schema.
fn places<'a>(path: &str, schema: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        found.push((path.clone(), inner));
        places(&path, inner, found);
    }
}

#[test]
fn what_the_schema_refuses_for_its_type_the_webhook_refuses_in_the_same_place() {
    let wire = Wire::new();
    for kind in REGISTRY {
        let schema = schema(kind);
        let mut all = Vec::new();
        places("spec", &schema["properties"]["spec"], &mut all);
        assert!(!all.is_empty(), "{}", kind.name);
        for (path, place) in all {
            let int_or_string = place["x-kubernetes-int-or-string"] == true;
            let good = |value: &Value| match place["type"].as_str() {
                Some("object") => value.is_object(),
                Some("array") => value.is_array(),
                Some("string") => value.is_string(),
                Some("boolean") => value.is_boolean(),
                Some("integer") => value.is_i64(),
                _ => int_or_string && (value.is_i64() || value.is_string()),
            };
            for value in [
                json!([]),
                json!([{}]),
                json!({}),
                json!("x"),
                json!(7),
                json!(1.5),
                json!(true),
            ] {
                if good(&value) {
                    continue;
                }
                let mut object = sample(kind);
                let mut at = &mut object;
                for name in path.split('.') {
                    at = &mut at[name];
                }
                *at = value.clone();
                let review = Ask::create(&object.to_string()).review(kind);
                let answer = wire.post(&kind.admission.path("validate"), review.as_bytes());
                let causes = &answer.response()["status"]["details"]["causes"];
                assert_eq!(
                    causes[0]["reason"], "FieldValueTypeInvalid",
                    "{path}: {value}"
                );
                let field = causes[0]["field"].as_str().unwrap();
                assert_eq!(field, path, "{value}");
            }
        }
    }
}

#[test]
fn an_object_of_very_many_faults_can_be_fixed_step_by_step_but_not_created() {
    let wire = Wire::new();
    for kind in REGISTRY.iter().filter(|kind| has_field(kind, "template")) {
        let with = |good: usize| {
            let containers: Vec<_> = (0..1_500)
                .map(|i| json!({"name": format!("c{i}"), "image": if i < good { "a:1" } else { "a b" }}))
                .collect();
            sample_with(
                kind,
                &json!({"template": {"spec": {"containers": containers}}}),
            )
            .to_string()
        };
        let path = kind.admission.path("validate");
        let (old, fixed, good) = (with(0), with(1), with(1_500));
        let answer = wire.post(&path, Ask::update(&old, &fixed).review(kind).as_bytes());
        assert_eq!(answer.response()["allowed"], true);
        let warnings = answer.response()["warnings"].as_array().unwrap();
        assert!((1..=64).contains(&warnings.len()), "{}", warnings.len());
        for ask in [Ask::create(&old), Ask::update(&good, &old)] {
            let answer = wire.post(&path, ask.review(kind).as_bytes());
            let status = &answer.response()["status"];
            let causes = status["details"]["causes"].as_array().unwrap();
            assert_eq!(causes.len(), 101);
            assert_eq!(causes[100]["message"], "and at least 900 more faults");
            let message = status["message"].as_str().unwrap();
            assert!(
                message.ends_with(", and at least 900 more faults]"),
                "{message}"
            );
        }
    }
}

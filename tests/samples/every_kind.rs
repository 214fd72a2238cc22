//! What holds for every kind of the registry.

use my_operator::admission::review::Request;
use my_operator::kinds::{Kind, REGISTRY, Sample};
use serde_json::{Value, json};

use crate::kubectl;

/// Where the samples of a kind lie.
fn folder(kind: &Kind) -> &'static str {
    if kind.by_default {
        "config/samples"
    } else {
        "config/samples/sample-kinds"
    }
}

/// What the rules find in a sample, as kubectl prints it.
fn faults(kind: &Kind, sample: &Sample) -> Vec<String> {
    let names = (kind.admission.resource)();
    let object: Value = serde_saphyr::from_str(sample.text).unwrap();
    let request = json!({
        "uid": "u",
        "kind": { "group": names.group, "version": names.version, "kind": names.kind },
        "operation": "CREATE",
        "object": object,
    })
    .to_string();
    let request = Request::read(&request).unwrap();
    let verdict = (kind.admission.validate)(&request, chrono::Utc::now());
    let faults = verdict.faults.iter();
    faults
        .map(|fault| format!("* {}: {}", fault.field, fault.message))
        .collect()
}

#[tokio::test]
async fn good_samples_are_accepted_and_bad_ones_are_refused_with_all_their_faults() {
    for kind in REGISTRY {
        // One namespace for each: Foo and Memcached may want Deployments of one name.
        let kubectl = kubectl(&format!("samples-{}", kind.name)).await;
        for sample in kind.samples {
            let apply = format!("apply -f {}/{}", folder(kind), sample.file);
            if !sample.file.starts_with("bad/") {
                let said = kubectl.run(&apply).good();
                assert!(said.ends_with(" created\n"), "{}: {said}", sample.file);
                continue;
            }
            let said = kubectl.run(&apply).bad();
            let (head, list) = said.split_once('\n').unwrap();
            assert!(head.ends_with(" is invalid: "), "{said}");
            let mut told: Vec<&str> = list.lines().collect();
            let mut faults = faults(kind, sample);
            told.sort_unstable();
            faults.sort_unstable();
            assert!(faults.len() >= 2, "{}: {faults:?}", sample.file);
            assert_eq!(told, faults, "{}", sample.file);
        }
    }
}

#[tokio::test]
async fn every_kind_is_found_by_its_names_and_explains_itself() {
    let kubectl = kubectl("names").await;
    for kind in REGISTRY {
        let crd = (kind.crd)();
        let names = &crd.spec.names;
        for name in std::iter::once(&names.plural)
            .chain(&names.singular)
            .chain(names.short_names.iter().flatten())
            .chain(names.categories.iter().flatten())
        {
            // Nothing but `all` means others too.
            let said = kubectl.run(&format!("get {name}"));
            assert!(said.ok, "{name}: {}", said.err);
        }
        let said = kubectl.run(&format!("explain {}.{}.spec", names.plural, crd.spec.group));
        assert!(said.good().contains("FIELDS:"), "{}", kind.name);
    }
}

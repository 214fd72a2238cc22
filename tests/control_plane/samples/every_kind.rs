//! What holds for every kind of the registry.

use std::process::Command;

use admission_rules::review::Request;
use my_operator::kinds::{Kind, REGISTRY, Sample};
use serde_json::{Value, json};

use crate::harness::{run, sample_path};
use crate::samples::{kubectl, rejection};

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
async fn good_samples_are_accepted_and_bad_ones_are_rejected_with_all_their_faults() {
    for kind in REGISTRY {
        // One namespace for each: Foo and Memcached may want Deployments of one name.
        let kubectl = kubectl(&format!("samples-{}", kind.name)).await;
        for sample in kind.samples {
            let apply = format!("apply -f {}", sample_path(kind, sample.file));
            if !sample.file.starts_with("bad/") {
                let said = kubectl.run(&apply).await.good();
                assert!(said.ends_with(" created\n"), "{}: {said}", sample.file);
                continue;
            }
            let said = kubectl.run(&apply).await.bad();
            let (head, list) = said.split_once('\n').unwrap();
            assert!(head.ends_with(" is invalid: "), "{said}");
            let mut printed: Vec<&str> = list.lines().collect();
            let mut faults = faults(kind, sample);
            printed.sort_unstable();
            faults.sort_unstable();
            assert!(faults.len() >= 2, "{}: {faults:?}", sample.file);
            assert_eq!(printed, faults, "{}", sample.file);
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
            let said = kubectl.run(&format!("get {name}")).await;
            assert!(said.ok, "{name}: {}", said.err);
        }
        let said = kubectl
            .run(&format!("explain {}.{}.spec", names.plural, crd.spec.group))
            .await;
        assert!(said.good().contains("FIELDS:"), "{}", kind.name);
    }
}

/// Every number below a schema that is just out of its bounds, with its path.
#[allow(clippy::cast_possible_truncation)]
fn out_of_bounds(path: &str, schema: &Value, found: &mut Vec<(String, i64)>) {
    let least = schema["minimum"].as_f64().map(|least| least as i64 - 1);
    let most = schema["maximum"].as_f64().map(|most| most as i64 + 1);
    let beyond = least.into_iter().chain(most);
    found.extend(beyond.map(|number| (path.to_owned(), number)));
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        out_of_bounds(&format!("{path}.{name}"), field, found);
    }
}

/// What `kubectl scale` writes no webhook sees, so the schema has the bounds, and `admit` knows them.
#[tokio::test]
async fn admit_says_what_the_api_server_says_of_a_number_out_of_the_bounds_of_a_schema() {
    let kubectl = kubectl("bounds").await;
    for kind in REGISTRY {
        let crd = serde_json::to_value((kind.crd)()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut numbers = Vec::new();
        out_of_bounds("spec", &schema["properties"]["spec"], &mut numbers);
        let good = kind.samples[0];
        for (path, value) in numbers {
            let mut object: Value = serde_saphyr::from_str(good.text).unwrap();
            let mut at = &mut object;
            for name in path.split('.') {
                at = &mut at[name];
            }
            *at = value.into();
            let resource = (kind.admission.resource)();
            let plural = format!("{}.{}", resource.plural, resource.group);
            let rejected = rejection(&kubectl, &plural, &object.to_string()).await;
            let mut admit = Command::new(env!("CARGO_BIN_EXE_my-operator"));
            let said = run(admit.args(["admit", "-f", "-"]), &object.to_string()).await;
            let fault = format!("{path}: Invalid value: {value}: {path} in body should be ");
            let (_, rest) = rejected.split_once(&fault).expect(&rejected);
            let bound = rest.split([',', ']']).next().unwrap();
            let fault = format!("{fault}{bound}");
            assert_eq!(said.out.matches(&path).count(), 2, "{}", said.out);
            assert!(said.out.contains(&fault), "{fault}: {}", said.out);
        }
    }
}

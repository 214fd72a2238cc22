//! The generated manifests: what is committed is what the types give, and it keeps its promises.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

use admission_rules::review::Request;
use my_operator::kinds::Permission;
use my_operator::manifests::Names;
use my_operator::{kinds, manifests};
use serde_json::{Value, json};

use crate::checkout::{checkout, files};

#[test]
fn committed_files_are_what_make_manifests_writes() {
    for (folder, files) in [
        ("config", manifests::config().unwrap()),
        ("docs", manifests::pages(kinds::REGISTRY).unwrap()),
        ("dist/chart", manifests::chart().unwrap()),
    ] {
        for file in files {
            let path = Path::new(folder).join(file.path);
            let committed = std::fs::read_to_string(checkout().join(&path)).unwrap_or_default();
            // The difference is not printed: `git diff` shows it after that.
            let (path, stale) = (path.display(), committed != file.text);
            assert!(!stale, "{path} is stale: run `make manifests`");
        }
    }
}

#[test]
fn the_files_of_the_chart_are_those_of_config() {
    let (config, chart) = (
        checkout().join("config"),
        checkout().join("dist/chart/files"),
    );
    let crds = files(&config.join("crd"), "yaml").into_iter();
    let crds = crds.filter(|path| !path.ends_with("kustomization.yaml"));
    let mut originals: BTreeMap<_, _> = crds
        .map(|path| (chart.join("crds").join(path.file_name().unwrap()), path))
        .collect();
    for (copy, original) in [
        ("alerts.yaml", "components/prometheus/alerts.yaml"),
        (
            "operator-policy.yaml",
            "components/operator-policy/policy.yaml",
        ),
        ("policy.yaml", "components/policy/policy.yaml"),
    ] {
        originals.insert(chart.join(copy), config.join(original));
    }
    let mut found = files(&chart, "yaml");
    found.retain(|path| !path.ends_with("kinds.yaml"));
    found.sort();
    assert!(
        found.iter().eq(originals.keys()),
        "run `make manifests`: {found:?}"
    );
    for (copy, original) in &originals {
        let [copied, text] = [copy, original].map(|path| std::fs::read_to_string(path).unwrap());
        // The difference is not printed: `git diff` shows it after that.
        let stale = copied != text;
        assert!(!stale, "{} is stale: run `make manifests`", copy.display());
    }
}

#[test]
fn no_generated_file_was_left_behind() {
    let config = manifests::config().unwrap().into_iter();
    let docs = manifests::pages(kinds::REGISTRY).unwrap().into_iter();
    let wanted: BTreeSet<_> = config
        .map(|file| checkout().join("config").join(file.path))
        .chain(docs.map(|file| checkout().join("docs").join(file.path)))
        .collect();
    for path in files(&checkout().join("config/schemas"), "json") {
        let known = wanted.contains(&path);
        assert!(known, "{} is not generated any more", path.display());
    }
    for folder in [
        "config/components/namespaced",
        "config/components/operator-policy",
        "config/components/policy",
        "config/components/sample-kinds",
        "config/crd/bases",
        "config/crd/sample-kinds",
        "config/rbac",
        "config/samples",
        "config/samples/bad",
        "config/samples/sample-kinds",
        "config/samples/sample-kinds/bad",
        "docs/reference",
    ] {
        // There is no folder for kinds that are off by default where there is no such kind.
        let Ok(entries) = std::fs::read_dir(checkout().join(folder)) else {
            assert!(folder.contains("sample-kinds"), "{folder} is missing");
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let known = path.is_dir() || wanted.contains(&path);
            assert!(known, "{} is not generated any more", path.display());
        }
    }
}

/// Every schema below a property, with its path.
fn properties<'a>(path: &str, schema: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        properties(&path, property, found);
        found.push((path, property));
    }
    for below in ["items", "additionalProperties"] {
        if schema[below].is_object() {
            properties(&format!("{path}[]"), &schema[below], found);
        }
    }
}

/// kstatus, and so Flux, takes an object without a status for Current.
#[test]
fn every_kind_has_a_status_before_an_operator_has_seen_it() {
    for kind in kinds::REGISTRY {
        let crd = serde_json::to_value((kind.crd)()).unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"];
            let default = &status["default"];
            assert_eq!(*default, json!({"observedGeneration": -1}), "{}", kind.name);
            let generation = &status["properties"]["observedGeneration"];
            // The API server refuses a CRD whose default is invalid.
            assert_eq!(generation["type"], "integer", "{}", kind.name);
            assert_eq!(generation["minimum"], Value::Null, "{}", kind.name);
            let meaning = generation["description"].as_str().unwrap();
            assert!(meaning.contains("-1 until"), "{}: {meaning}", kind.name);
        }
    }
}

#[test]
fn crds_are_small_and_describe_every_field() {
    for kind in kinds::REGISTRY {
        let crd = serde_json::to_value((kind.crd)()).unwrap();
        let yaml = serde_saphyr::to_string(&crd).unwrap();
        assert!(
            yaml.len() < 64 * 1024,
            "{}: {} bytes",
            kind.name,
            yaml.len()
        );
        let version = &crd["spec"]["versions"][0];
        let schema = &version["schema"]["openAPIV3Schema"];
        assert!(schema["description"].is_string(), "{}", kind.name);
        assert!(
            schema["required"].is_null(),
            "{}: a required field in the schema hides the webhook's complete list",
            kind.name
        );
        assert!(version["subresources"]["status"].is_object());
        assert!(
            !version["additionalPrinterColumns"]
                .as_array()
                .unwrap()
                .is_empty()
        );
        let mut found = Vec::new();
        properties("", schema, &mut found);
        for part in [".spec.", ".status."] {
            let holds = found.iter().any(|(path, _)| path.starts_with(part));
            assert!(holds, "{}: {part} is empty", kind.name);
        }
        for (path, property) in found {
            let described = property["description"]
                .as_str()
                .is_some_and(|d| d.len() > 10);
            assert!(
                described || path == ".apiVersion" || path == ".kind" || path == ".metadata",
                "{}{path} has no description",
                kind.name
            );
        }
    }
}

#[test]
fn the_age_is_the_last_column_of_a_plain_get() {
    for kind in kinds::REGISTRY {
        let crd = serde_json::to_value((kind.crd)()).unwrap();
        let columns = &crd["spec"]["versions"][0]["additionalPrinterColumns"];
        let plain = columns.as_array().unwrap().iter();
        let mut plain = plain.filter(|column| column["priority"].as_i64().unwrap_or(0) == 0);
        let last = plain.next_back().unwrap();
        assert_eq!(last["name"], "AGE", "{}", kind.name);
    }
}

#[test]
fn a_crd_in_a_group_of_kubernetes_says_that_it_is_not_approved() {
    // The API server does not serve it otherwise.
    for kind in kinds::REGISTRY {
        let crd = (kind.crd)();
        let group = format!(".{}", crd.spec.group);
        if [".k8s.io", ".kubernetes.io"]
            .iter()
            .any(|end| group.ends_with(end))
        {
            let annotations = crd.metadata.annotations.unwrap_or_default();
            let words = annotations.get("api-approved.kubernetes.io");
            let said = words.is_some_and(|words| words.starts_with("unapproved"));
            assert!(said, "{}: {words:?}", kind.name);
        }
    }
}

#[test]
fn webhook_rules_name_only_our_groups_and_never_a_subresource() {
    let groups: BTreeSet<String> = kinds::REGISTRY
        .iter()
        .map(|kind| (kind.admission.resource)().group)
        .collect();
    let reach = manifests::ClientConfig::Url("https://x".into());
    for configuration in
        manifests::configurations(kinds::REGISTRY, &Names::default(), &reach, &["ns".into()])
    {
        let webhooks = configuration["webhooks"].as_array().unwrap();
        assert_eq!(webhooks.len(), kinds::REGISTRY.len());
        for webhook in webhooks {
            assert_eq!(webhook["failurePolicy"], "Fail");
            assert_eq!(
                webhook["namespaceSelector"]["matchExpressions"][0]["values"][0],
                "ns"
            );
            for rule in webhook["rules"].as_array().unwrap() {
                for group in rule["apiGroups"].as_array().unwrap() {
                    assert!(groups.contains(group.as_str().unwrap()), "{group}");
                }
                for resource in rule["resources"].as_array().unwrap() {
                    assert!(
                        !resource.as_str().unwrap().contains(['/', '*']),
                        "{resource}"
                    );
                }
            }
        }
    }
}

/// Whether these rules allow that.
fn give(rules: &[Value], permission: &Permission) -> bool {
    rules.iter().any(|rule| {
        words(&rule["apiGroups"]).contains(&permission.group)
            && words(&rule["resources"]).contains(&permission.resource)
            && permission
                .verbs
                .iter()
                .all(|verb| words(&rule["verbs"]).contains(verb))
    })
}

#[test]
fn each_kind_has_its_rights_where_it_is_installed_and_nowhere_else() {
    let all = roles();
    let of = |role: &str| -> &[Value] {
        let found = all.iter().find(|(_, name, _)| name == role);
        found.map_or(&[], |(_, _, rules)| rules)
    };
    let default = of("/my-operator-manager-role");
    let others = of("/my-operator-sample-kinds-role");
    for kind in kinds::REGISTRY {
        let (its, not_its) = if kind.by_default {
            (default, others)
        } else {
            (others, default)
        };
        for permission in kind.permissions.iter().chain(kind.cluster_permissions) {
            assert!(give(its, permission), "{} lacks {permission:?}", kind.name);
        }
        let resource = (kind.admission.resource)();
        for rule in not_its {
            let of_group = words(&rule["apiGroups"]).contains(&resource.group.as_str());
            let of_kind = words(&rule["resources"])
                .into_iter()
                .any(|name| name.split('/').next() == Some(&resource.plural));
            assert!(!(of_group && of_kind), "{}: {rule}", kind.name);
        }
    }
}

#[test]
fn what_is_installed_by_default_names_no_other_kind() {
    let installed: Vec<manifests::File> = manifests::config()
        .unwrap()
        .into_iter()
        .filter(|file| {
            let apart = file.path.iter().any(|part| {
                ["check", "sample-kinds", "policy"]
                    .iter()
                    .any(|it| part == *it)
            });
            !apart
        })
        .collect();
    let stream = manifests::stream(&manifests::config().unwrap());
    for kind in kinds::REGISTRY {
        let resource = (kind.admission.resource)();
        // As a CRD is named, and as a webhook is.
        for name in [
            format!("{}.{}", resource.plural, resource.group),
            kind.admission.path("validate"),
        ] {
            let mut texts = installed.iter().map(|file| &file.text);
            assert_eq!(texts.any(|text| text.contains(&name)), kind.by_default);
            assert_eq!(stream.contains(&name), kind.by_default, "{name}");
        }
    }
}

/// `verb resource.group` of everything that these rules allow, without those about objects of a name.
fn rights(rules: &[Value]) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for rule in rules.iter().filter(|rule| rule["resourceNames"].is_null()) {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    rights.insert(format!("{verb} {resource}.{group}"));
                }
            }
        }
    }
    rights
}

#[test]
fn an_installation_of_one_kind_has_that_kind_and_nothing_of_others() {
    for kind in kinds::REGISTRY.iter().copied() {
        let files = manifests::files(&[kind]).unwrap();
        let text = |path: &str| {
            let mut files = files.iter();
            let found = files.find(|file| file.path == Path::new(path));
            found.map_or("", |file| file.text.as_str())
        };
        let crd = (kind.crd)().spec;
        let own = format!("bases/{}_{}.yaml", crd.group, crd.names.plural);
        let crds = text("crd/kustomization.yaml");
        assert!(crds.ends_with(&format!("resources:\n- {own}\n")), "{crds}");
        let arguments = text("manager/kinds.yaml");
        assert_eq!(arguments.matches("--kinds=").count(), 1, "{arguments}");
        assert!(arguments.contains(&format!("--kinds={}\n", kind.name)));
        for (path, entries) in [
            ("webhook/manifests.yaml", 2),
            ("components/namespaced/webhooks.yaml", 2),
        ] {
            assert_eq!(text(path).matches(".kb.io\n").count(), entries, "{path}");
        }
        let role = text("rbac/role.yaml").split("---\n").next().unwrap();
        let role: Value = serde_saphyr::from_str(role).unwrap();
        let mut needed = BTreeSet::new();
        for it in kind.permissions.iter().chain(kind.cluster_permissions) {
            let verbs = it.verbs.iter();
            needed.extend(verbs.map(|verb| format!("{verb} {}.{}", it.resource, it.group)));
        }
        let given = rights(role["rules"].as_array().unwrap());
        assert_eq!(given, needed, "{}", kind.name);
        let good = kind
            .samples
            .iter()
            .filter(|it| !it.file.starts_with("bad/"));
        let samples = text("samples/kustomization.yaml").matches("\n- ").count();
        assert_eq!(samples, good.count(), "{}", kind.name);
        // The policies and the check are for all kinds.
        let of_all = ["check", "policy", "operator-policy"].map(Path::new);
        let own = files.iter().filter(|file| {
            let mut folders = file.path.ancestors();
            !folders.any(|folder| of_all.iter().any(|it| folder.ends_with(it)))
        });
        for other in kinds::REGISTRY.iter().filter(|it| it.name != kind.name) {
            let resource = (other.admission.resource)();
            for name in [
                format!("{}.{}", resource.plural, resource.group),
                other.admission.path("validate"),
                format!("my-operator-{}-viewer-role", other.name),
            ] {
                for file in own.clone() {
                    let path = file.path.display();
                    assert!(!file.text.contains(&name), "{}: {path}: {name}", kind.name);
                }
            }
        }
    }
}

/// `my-operator manifests ARGS` in the checkout.
fn program(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_my-operator"))
        .arg("manifests")
        .args(args)
        .current_dir(checkout())
        .output()
        .unwrap()
}

#[test]
fn a_config_of_ones_own_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    let out = own.to_str().unwrap();
    let args = ["--kinds", "memcached", "--from", "config", "--out", out];
    let made = program(&args);
    assert!(made.status.success(), "{made:?}");
    // Everything that a kustomization names is there.
    let mut named = 0;
    for file in files(&own, "yaml") {
        if !file.ends_with("kustomization.yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let kustomization: Value = serde_saphyr::from_str(&text).unwrap();
        let patches = kustomization["patches"].as_array().into_iter().flatten();
        let patches = patches.filter_map(|patch| patch["path"].as_str());
        let resources = words(&kustomization["resources"]).into_iter();
        for name in resources.chain(patches) {
            named += 1;
            let path = file.with_file_name(name);
            assert!(path.exists(), "{} names {name}", file.display());
        }
    }
    assert!(named > 40, "{named}");
    // What is written by hand is the checkout's.
    let generated = manifests::config().unwrap();
    let generated: BTreeSet<_> = generated.into_iter().map(|file| file.path).collect();
    for file in files(&checkout().join("config"), "yaml") {
        let path = file.strip_prefix(checkout().join("config")).unwrap();
        if !generated.contains(path) {
            let text = |path: &Path| std::fs::read_to_string(path).unwrap();
            assert_eq!(text(&own.join(path)), text(&file), "{}", path.display());
        }
    }
    assert!(!own.join("components/sample-kinds").exists());

    // A component alone, for a folder that has nothing else.
    let namespaced = folder.path().join("namespaced");
    let out = namespaced.to_str().unwrap();
    let made = program(&["--kinds=memcached", "--namespace=a", "--out", out]);
    assert!(made.status.success(), "{made:?}");
    let roles = namespaced.join("components/namespaced/roles.yaml");
    let roles = std::fs::read_to_string(roles).unwrap();
    assert!(
        roles.contains("memcacheds") && !roles.contains("cnat."),
        "{roles}"
    );
}

/// The component `namespaced` of a `config/`: its namespaces, and the kinds of its webhooks. Its parts agree, and it
/// patches every webhook of that `config/` and no other.
fn component(config: &Path) -> (Vec<String>, Vec<String>) {
    let read = |path: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(config.join(path)).unwrap();
        let documents = text.split("---\n");
        documents
            .map(|text| serde_saphyr::from_str(text).unwrap())
            .collect()
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let arguments = read("components/namespaced/arguments.yaml").remove(0);
    let arguments = arguments.as_array().unwrap().iter();
    let namespaces = arguments.map(|it| text(&it["value"]).replace("--namespace=", ""));
    let namespaces: Vec<String> = namespaces.collect();
    let roles = read("components/namespaced/roles.yaml").into_iter();
    let mut of_roles: Vec<String> = roles.map(|it| text(&it["metadata"]["namespace"])).collect();
    of_roles.dedup();
    assert_eq!(of_roles, namespaces);
    let entries = |path: &str| -> Vec<Value> {
        let configurations = read(path);
        let lists = configurations.iter();
        let lists = lists.filter_map(|it| it["webhooks"].as_array());
        lists.flatten().cloned().collect()
    };
    let patches = entries("components/namespaced/webhooks.yaml");
    for patch in &patches {
        let selected = &patch["namespaceSelector"]["matchExpressions"][0]["values"];
        assert_eq!(words(selected), namespaces);
    }
    let names =
        |entries: &[Value]| -> Vec<String> { entries.iter().map(|it| text(&it["name"])).collect() };
    let of_patches = names(&patches);
    assert_eq!(of_patches, names(&entries("webhook/manifests.yaml")));
    let validating = of_patches.iter().filter_map(|name| name.strip_prefix('v'));
    let kinds = validating.map(|name| name.replace(".kb.io", ""));
    (namespaces, kinds.collect())
}

#[test]
fn a_component_of_ones_own_namespaces_fits_the_kinds_that_it_is_deployed_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (config, own) = (path("config"), path("own"));
    let run = |out: &Path, args: &[&str]| {
        let made = program(&[args, &["--out", out.to_str().unwrap()]].concat());
        let error = String::from_utf8(made.stderr).unwrap();
        (made.status.code(), error)
    };
    let write = |out: &Path, args: &[&str]| assert_eq!(run(out, args), (Some(0), String::new()));
    let expect = |config: &Path, namespaces: &[&str], kinds: &[&str]| {
        let (found, of) = component(config);
        assert_eq!(found, namespaces);
        assert_eq!(of, kinds);
    };
    write(&config, &["--from=config"]);
    expect(&config, &["default"], &["mydaemonset", "at"]);
    write(&config, &["--namespace=team-a", "--namespace=team-b"]);
    let teams = ["team-a", "team-b"];
    expect(&config, &teams, &["mydaemonset", "at"]);

    // As `make deploy KINDS=memcached COMPONENTS=namespaced` does.
    std::fs::create_dir(path("hack")).unwrap();
    std::fs::copy(checkout().join("hack/config"), path("hack/config")).unwrap();
    let made = Command::new("bash")
        .args([&path("hack/config"), &own])
        .env("KINDS", "memcached")
        .env("MY_OPERATOR", env!("CARGO_BIN_EXE_my-operator"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    expect(&own, &teams, &["memcached"]);

    // Later namespaces are for the kinds that are there, without being asked.
    write(&own, &["--namespace=team-c"]);
    expect(&own, &["team-c"], &["memcached"]);
    write(&own, &["--namespace=team-d", "--kinds=memcached"]);
    expect(&own, &["team-d"], &["memcached"]);
    let (code, error) = run(&own, &["--namespace=team-e", "--kinds=at"]);
    assert_eq!((code, error.lines().count()), (Some(1), 1), "{error}");
    for words in ["is for the kinds memcached", "leave out --kinds", "--from"] {
        assert!(error.contains(words), "{error}");
    }
    expect(&own, &["team-d"], &["memcached"]);

    // All at once.
    let all = path("all");
    let args = ["--from=config", "--kinds=foo", "--namespace=team-a"];
    write(&all, &args);
    expect(&all, &["team-a"], &["foo"]);
    assert!(all.join("default/kustomization.yaml").exists());

    // Without its namespaces, a component is not silently for another one.
    let arguments = config.join("components/namespaced/arguments.yaml");
    std::fs::write(arguments, "[]\n").unwrap();
    let (code, error) = run(&path("none"), &["--from", config.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("arguments.yaml has no --namespace="),
        "{error}"
    );
}

#[test]
fn kinds_are_named_as_for_run_and_a_wrong_one_is_one_line_with_those_there_are() {
    let said = program(&["--kinds", "foo, memcached"]);
    let stream = String::from_utf8(said.stdout).unwrap();
    let crds = stream.matches("kind: CustomResourceDefinition\n").count();
    assert!(
        crds == 2 && stream.contains("name: memcacheds.cache.example.com"),
        "{stream}"
    );
    let said = program(&["--kinds=at,cron"]);
    let error = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert_eq!(error.lines().count(), 1, "{error}");
    for kind in kinds::REGISTRY {
        assert!(error.contains(kind.name), "{error}");
    }
}

#[test]
fn editors_of_a_scalable_kind_may_scale_it() {
    for kind in kinds::REGISTRY {
        let versions = (kind.crd)().spec.versions;
        let scales = versions[0].subresources.as_ref().unwrap().scale.is_some();
        let plural = (kind.admission.resource)().plural;
        let role = format!("/my-operator-{}-editor-role", kind.name);
        let all = roles();
        let (_, _, rules) = all.iter().find(|(_, name, _)| *name == role).unwrap();
        let may = rules.iter().any(|rule| {
            words(&rule["resources"]).contains(&format!("{plural}/scale").as_str())
                && words(&rule["verbs"]).contains(&"patch")
        });
        assert_eq!(may, scales, "{}", kind.name);
    }
}

/// The objects of a file of `config` that is written by hand.
fn written(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(checkout().join("config").join(path)).unwrap();
    text.split("\n---\n")
        .map(|text| serde_saphyr::from_str(text).unwrap())
        .collect()
}

#[test]
fn the_pod_mounts_a_token_that_ends_within_an_hour_and_no_other() {
    let [account] = &written("rbac/service_account.yaml")[..] else {
        panic!("one ServiceAccount");
    };
    assert_eq!(account["automountServiceAccountToken"], false);
    let manager = written("manager/manager.yaml");
    let pod = &manager[1]["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    let mount = &pod["containers"][0]["volumeMounts"][0];
    // Where the client looks for it.
    assert_eq!(
        mount["mountPath"],
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
    let volume = &pod["volumes"][0];
    assert_eq!(mount["name"], volume["name"]);
    let [token, ca, namespace] = &volume["projected"]["sources"].as_array().unwrap()[..] else {
        panic!("{volume}");
    };
    // The API server extends one of 3607 s to a year.
    assert_eq!(token["serviceAccountToken"]["expirationSeconds"], 3600);
    assert_eq!(token["serviceAccountToken"]["path"], "token");
    assert_eq!(ca["configMap"]["items"][0]["path"], "ca.crt");
    assert_eq!(namespace["downwardAPI"]["items"][0]["path"], "namespace");
}

#[test]
fn the_pod_requests_what_it_uses_and_has_time_to_shut_down() {
    let manager = written("manager/manager.yaml");
    let pod = &manager[1]["spec"]["template"]["spec"];
    let resources = &pod["containers"][0]["resources"];
    assert_eq!(resources["requests"]["memory"], "64Mi");
    assert_eq!(resources["limits"]["memory"], "256Mi");
    // The delay, and END_TIMEOUT of src/run twice.
    let arguments = words(&pod["containers"][0]["args"]);
    assert!(arguments.contains(&"--shutdown-delay=5s"));
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > 5 + 20 + 20);
}

#[test]
fn the_namespace_enforces_the_restricted_profile_as_of_the_oldest_supported_kubernetes() {
    let manager = written("manager/manager.yaml");
    let labels = &manager[0]["metadata"]["labels"];
    for (mode, version) in [
        ("enforce", "v1.33"),
        ("audit", "latest"),
        ("warn", "latest"),
    ] {
        let label = format!("pod-security.kubernetes.io/{mode}");
        assert_eq!(labels[&label], "restricted");
        assert_eq!(labels[&format!("{label}-version")], version);
    }
    let page = std::fs::read_to_string(checkout().join("docs/operations/install.md")).unwrap();
    assert!(page.contains("You need Kubernetes 1.33 or newer"));
}

/// Every role among the generated files: (kind, namespace and name, rules).
fn roles() -> Vec<(String, String, Vec<Value>)> {
    let mut found = Vec::new();
    for file in manifests::config().unwrap() {
        for text in file.text.split("---\n") {
            let object: Value = serde_saphyr::from_str(text).unwrap();
            let kind = object["kind"].as_str().unwrap_or_default();
            if kind == "Role" || kind == "ClusterRole" {
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                let name = format!("{}/{}", text("namespace"), text("name"));
                let rules = object["rules"].as_array().unwrap().clone();
                found.push((kind.to_owned(), name, rules));
            }
        }
    }
    found
}

fn words(value: &Value) -> Vec<&str> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

#[test]
fn roles_have_no_wildcards_and_confine_to_names_what_is_not_theirs_alone() {
    let roles = roles();
    assert!(roles.len() >= 8, "{}", roles.len());
    for (kind, name, rules) in roles {
        for rule in rules {
            assert!(!rule.to_string().contains('*'), "{name}: {rule}");
            let verbs = words(&rule["verbs"]);
            let groups = words(&rule["apiGroups"]);
            for resource in words(&rule["resources"]) {
                let named = !words(&rule["resourceNames"]).is_empty();
                match resource {
                    // A create cannot be confined to a name.
                    "secrets" => assert!(
                        kind == "Role" && (named || verbs == ["create"]),
                        "{name}: {rule}"
                    ),
                    // The check finds them by their label, and writes nothing.
                    _ if name.ends_with("-check-role") && verbs == ["list"] => {}
                    _ if groups == ["admissionregistration.k8s.io"] => {
                        assert!(named && !verbs.contains(&"create"), "{name}: {rule}");
                    }
                    "clusterroles"
                    | "clusterrolebindings"
                    | "roles"
                    | "rolebindings"
                    | "serviceaccounts"
                    | "pods/exec" => panic!("{name}: {rule}"),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn the_operator_may_own_what_it_makes_where_that_is_enforced() {
    // With OwnerReferencesPermissionEnforcement, as OpenShift has it, blockOwnerDeletion needs this.
    let may = |role: &str, plural: &str| {
        roles().iter().any(|(_, name, rules)| {
            name == role
                && rules.iter().any(|rule| {
                    words(&rule["resources"]).contains(&format!("{plural}/finalizers").as_str())
                        && words(&rule["verbs"]).contains(&"update")
                })
        })
    };
    let makes = |kind: &kinds::Kind| {
        let mut made = kind.permissions.iter();
        made.any(|p| p.resource != "events" && p.verbs.contains(&"create"))
    };
    for kind in kinds::REGISTRY.iter().filter(|kind| makes(kind)) {
        let plural = (kind.admission.resource)().plural;
        let roles: &[&str] = if kind.by_default {
            &[
                "/my-operator-manager-role",
                "default/my-operator-namespace-role",
            ]
        } else {
            &["/my-operator-sample-kinds-role"]
        };
        for role in roles {
            assert!(may(role, &plural), "{role} lacks {plural}/finalizers");
        }
    }
}

#[test]
fn an_operator_of_some_namespaces_has_the_same_rights_there_and_only_reads_elsewhere() {
    let file = |name: &str| {
        let files = manifests::namespaced(kinds::REGISTRY, &["a".into(), "b".into()]).unwrap();
        let path = Path::new("components/namespaced").join(name);
        files.into_iter().find(|f| f.path == path).unwrap().text
    };
    let everywhere: Value = serde_saphyr::from_str(&file("cluster_role.yaml")).unwrap();
    for rule in everywhere["rules"].as_array().unwrap() {
        let reads = ["get", "list", "watch"];
        let foreign = words(&rule["verbs"])
            .iter()
            .any(|verb| !reads.contains(verb));
        let named = !words(&rule["resourceNames"]).is_empty();
        assert!(!foreign || named, "{rule}");
    }
    let roles: Vec<Value> = file("roles.yaml")
        .split("---\n")
        .map(|text| serde_saphyr::from_str(text).unwrap())
        .collect();
    let namespaces = roles
        .iter()
        .map(|role| role["metadata"]["namespace"].clone());
    assert_eq!(namespaces.collect::<Vec<_>>(), ["a", "a", "b", "b"]);
    for permission in kinds::REGISTRY.iter().flat_map(|kind| kind.permissions) {
        let given = |role: &Value| give(role["rules"].as_array().unwrap(), permission);
        assert!(given(&roles[0]) && given(&roles[2]), "{permission:?}");
    }
    let arguments = file("arguments.yaml");
    for namespace in ["--namespace=a", "--namespace=b"] {
        assert!(arguments.contains(namespace), "{arguments}");
    }
}

#[test]
fn good_samples_obey_the_rules_and_bad_ones_break_several() {
    let now = chrono::DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    for kind in kinds::REGISTRY {
        let names = (kind.admission.resource)();
        for sample in kind.samples {
            let object: Value = serde_saphyr::from_str(sample.text).unwrap();
            let request = serde_json::json!({
                "uid": "u",
                "kind": { "group": names.group, "version": names.version, "kind": names.kind },
                "operation": "CREATE",
                "object": object,
            })
            .to_string();
            let request = Request::read(&request).unwrap();
            let verdict = (kind.admission.validate)(&request, now);
            let bad = sample.file.starts_with("bad/");
            assert_eq!(verdict.response.allowed, !bad, "{}", sample.file);
            let faults = verdict.faults.len();
            let expected = if bad { faults >= 2 } else { faults == 0 };
            assert!(expected, "{}: {:?}", sample.file, verdict.faults);
        }
    }
}

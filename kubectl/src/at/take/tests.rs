#![allow(clippy::unwrap_used)]

use chrono::Utc;
use my_operator_admit::read::Source;
use my_operator_admit::report::Outcome;
use my_operator_at::KIND;
use my_operator_at::crd::AtSpec;

use super::*;
use crate::at::manifest::Wish;

/// A Deployment with this pod template.
fn deployment(template: &Value) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "template": template}})
}

/// One whose pods have these containers.
fn with_containers(containers: &Value) -> Value {
    deployment(&json!({"spec": {"containers": containers}}))
}

fn taken(object: &Value) -> Taken {
    take(object, Place::Template, None).unwrap()
}

fn refused(object: &Value, container: Option<&str>) -> String {
    take(object, Place::Template, container).unwrap_err()
}

/// The faults that the webhook finds in the At.
fn faults(taken: &Taken) -> Vec<String> {
    let wish = Wish {
        name: "x".to_owned(),
        namespace: "default".to_owned(),
        spec: AtSpec {
            schedule: Some("now".to_owned()),
            command: Some("ls".to_owned()),
            image: Some(taken.image.clone()),
            ..AtSpec::default()
        },
        template: Some(taken.template.clone()),
        env: vec![("A".to_owned(), "b".to_owned())],
        ..Wish::default()
    };
    let source = Source {
        name: "-".to_owned(),
        text: Ok(wish.manifest().unwrap().to_string()),
        is_named: true,
    };
    let books = [KIND.rulebook()];
    let judged = my_operator_admit::judge(&source, &books, Utc::now());
    let [judged] = judged.as_slice() else {
        unreachable!("{judged:?}");
    };
    let faults = judged.faults.iter();
    let faults = faults.map(|fault| format!("{}: {}", fault.field, fault.message));
    let faults: Vec<String> = faults.chain(judged.error.clone()).collect();
    let is_accepted = judged.result == Outcome::Accepted;
    assert_eq!(is_accepted, faults.is_empty(), "{judged:?}");
    faults
}

/// A server as people write them.
fn server() -> Value {
    json!({
        "metadata": {
            "creationTimestamp": null,
            "labels": {"app": "web", "pod-template-hash": "5d", "azure.workload.identity/use": "true"},
            "annotations": {
                "kubectl.kubernetes.io/restartedAt": "2026-11-24T16:00:00Z",
                "sidecar.istio.io/inject": "false",
                "container.apparmor.security.beta.kubernetes.io/web": "runtime/default",
                "prometheus.io/scrape": "true", "prometheus.io/port": "80",
                "cni.projectcalico.org/ipAddrs": "[\"10.0.0.7\"]",
                "cni.projectcalico.org/ipAddrsNoIpam": "[\"10.0.0.7\"]",
                "cni.projectcalico.org/hwAddr": "1c:0c:0a:c0:ff:ee",
                "cni.projectcalico.org/floatingIPs": "[\"10.0.0.8\"]",
                "cni.projectcalico.org/ipv4pools": "[\"jobs\"]",
            },
        },
        "spec": {
            "containers": [{
                "name": "web",
                "image": "registry.example.com/web:1",
                "imagePullPolicy": "IfNotPresent",
                "command": ["./serve"],
                "args": ["--port", "80"],
                "env": [{"name": "CPU", "valueFrom": {"resourceFieldRef": {"containerName": "web", "resource": "limits.cpu"}}}],
                "envFrom": [{"secretRef": {"name": "web"}}],
                "resources": {"limits": {"cpu": "1"}},
                "securityContext": {"runAsNonRoot": true},
                "volumeMounts": [{"name": "config", "mountPath": "/config"}],
                "ports": [{"containerPort": 80, "hostPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "readinessProbe": {"httpGet": {"port": 80}},
                "startupProbe": {"httpGet": {"port": 80}},
                "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
                "stdin": true, "stdinOnce": true, "tty": true,
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "initContainers": [
                {"name": "wait", "image": "wait:1", "restartPolicy": "Never", "restartPolicyRules": []},
                {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always",
                 "ports": [{"name": "admin", "containerPort": 9, "hostPort": 9}],
                 "startupProbe": {"httpGet": {"port": "admin"}},
                 "volumeMounts": [{"name": "certs", "mountPath": "/certs"}]},
            ],
            "volumes": [
                {"name": "unused", "emptyDir": {}},
                {"name": "certs", "secret": {"secretName": "certs"}},
                {"name": "config", "configMap": {"name": "web"}},
            ],
            "serviceAccountName": "web", "serviceAccount": "web",
            "imagePullSecrets": [{"name": "registry"}],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}, "podAntiAffinity": {}},
            "securityContext": {"fsGroup": 1},
            "priorityClassName": "high",
            "restartPolicy": "Always",
            "nodeName": "node-1", "hostname": "web", "subdomain": "web",
            "topologySpreadConstraints": [{"labelSelector": {}}],
            "schedulingGates": [{"name": "example.com/gate"}],
            "readinessGates": [{"conditionType": "x"}],
            "ephemeralContainers": [{"name": "debug"}],
            "priority": 1000, "preemptionPolicy": "Never", "overhead": {"cpu": "1"},
        },
    })
}

#[test]
fn what_a_pod_needs_stays_and_what_is_a_servers_goes() {
    let taken = taken(&deployment(&server()));
    assert_eq!(taken.image, "registry.example.com/web:1");
    assert_eq!(taken.words, ["./serve", "--port", "80"]);
    assert_eq!(taken.notes, [""; 0]);
    let expected = json!({
        "metadata": {
            "labels": {"azure.workload.identity/use": "true"},
            "annotations": {
                "sidecar.istio.io/inject": "false",
                "container.apparmor.security.beta.kubernetes.io/at": "runtime/default",
                "cni.projectcalico.org/ipv4pools": "[\"jobs\"]",
            },
        },
        "spec": {
            "containers": [{
                "name": "at",
                "imagePullPolicy": "IfNotPresent",
                "env": [{"name": "CPU", "valueFrom": {"resourceFieldRef": {"containerName": "at", "resource": "limits.cpu"}}}],
                "envFrom": [{"secretRef": {"name": "web"}}],
                "resources": {"limits": {"cpu": "1"}},
                "securityContext": {"runAsNonRoot": true},
                "volumeMounts": [{"name": "config", "mountPath": "/config"}],
            }],
            "initContainers": [
                {"name": "wait", "image": "wait:1"},
                {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always",
                 "ports": [{"name": "admin", "containerPort": 9}],
                 "startupProbe": {"httpGet": {"port": "admin"}},
                 "volumeMounts": [{"name": "certs", "mountPath": "/certs"}]},
            ],
            "volumes": [
                {"name": "certs", "secret": {"secretName": "certs"}},
                {"name": "config", "configMap": {"name": "web"}},
            ],
            "serviceAccountName": "web",
            "imagePullSecrets": [{"name": "registry"}],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "securityContext": {"fsGroup": 1},
            "priorityClassName": "high",
        },
    });
    assert_eq!(taken.template, expected);
    assert_eq!(faults(&taken), [""; 0]);
}

#[test]
fn fields_that_this_program_does_not_know_stay() {
    let unknown = json!({"deep": [1, 2.5, null]});
    let taken = taken(&deployment(&json!({"spec": {
        "madeUp": unknown,
        "containers": [{"name": "web", "image": "a:1", "madeUp": unknown}],
        "initContainers": [{"name": "init", "image": "a:1", "madeUp": unknown}],
    }})));
    let expected = json!({"spec": {
        "madeUp": unknown,
        "containers": [{"name": "at", "madeUp": unknown}],
        "initContainers": [{"name": "init", "image": "a:1", "madeUp": unknown}],
    }});
    assert_eq!(taken.template, expected);
}

#[test]
fn every_kind_has_its_template_in_its_place() {
    let spec = json!({"containers": [{"name": "app", "image": "a:1"}]});
    let template = json!({"spec": spec});
    let expected = json!({"spec": {"containers": [{"name": "at"}]}});
    for (object, place) in [
        (json!({"spec": {"template": template}}), Place::Template),
        (
            json!({"spec": {"jobTemplate": {"spec": {"template": template}}}}),
            Place::CronJob,
        ),
        (json!({"spec": {"template": template}}), Place::Job),
        (json!({"spec": spec}), Place::Pod),
        (
            json!({"spec": {"image": "b:1", "template": template}}),
            Place::MyDaemonSet,
        ),
        (json!({"spec": {"image": "a:1"}}), Place::MyDaemonSet),
        (
            json!({"spec": {"image": "a:1", "template": {"spec": {"containers": [{"name": "app"}]}}}}),
            Place::MyDaemonSet,
        ),
    ] {
        let taken = take(&object, place, None).unwrap();
        assert_eq!(taken.image, "a:1", "{object}");
        assert_eq!(taken.template, expected, "{object}");
    }
}

#[test]
fn of_several_containers_the_flag_or_the_annotation_chooses() {
    let two = json!([
        {"name": "log", "image": "log:1", "volumeMounts": [{"name": "logs"}]},
        {"name": "web", "image": "web:1", "volumeMounts": [{"name": "data"}]},
    ]);
    let mut object = with_containers(&two);
    object["spec"]["template"]["spec"]["volumes"] = json!([{"name": "logs"}, {"name": "data"}]);
    assert_eq!(
        refused(&object, None),
        "has several containers, choose one with -c: log, web"
    );
    assert_eq!(
        refused(&object, Some("wbe")),
        "has no container \"wbe\", but log, web"
    );
    let by_flag = take(&object, Place::Template, Some("web")).unwrap();
    object["spec"]["template"]["metadata"] = json!({"annotations": {DEFAULT_CONTAINER: "web"}});
    let by_annotation = taken(&object);
    for taken in [by_flag, by_annotation] {
        assert_eq!(taken.image, "web:1");
        assert_eq!(
            taken.notes,
            ["leaves out container log, which would keep the pod running"]
        );
        let spec = &taken.template["spec"];
        assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
        assert_eq!(spec["volumes"], json!([{"name": "data"}]));
        assert_eq!(taken.template.get("metadata"), None);
    }
    let three = json!([
        {"name": "log", "image": "log:1"}, {"name": "web", "image": "web:1"},
        {"name": "proxy", "image": "proxy:1"},
    ]);
    let taken_web = take(&with_containers(&three), Place::Template, Some("web")).unwrap();
    assert_eq!(
        taken_web.notes,
        ["leaves out containers log, proxy, which would keep the pod running"]
    );
    // The flag goes before the annotation, and an annotation that names none does not count.
    let log = take(&object, Place::Template, Some("log")).unwrap();
    assert_eq!(log.image, "log:1");
    object["spec"]["template"]["metadata"]["annotations"][DEFAULT_CONTAINER] = json!("gone");
    assert!(refused(&object, None).starts_with("has several containers"));
}

#[test]
fn another_container_named_at_is_in_the_way_only_if_it_stays() {
    let mut object = with_containers(&json!([
        {"name": "at", "image": "a:1"}, {"name": "web", "image": "web:1"},
    ]));
    let taken = take(&object, Place::Template, Some("web")).unwrap();
    assert_eq!((taken.image.as_str(), faults(&taken).len()), ("web:1", 0));
    let inits = &mut object["spec"]["template"]["spec"]["initContainers"];
    *inits = json!([{"name": "at", "image": "a:1"}]);
    let error = refused(&object, Some("web"));
    assert!(
        error.starts_with("has an init container named \"at\""),
        "{error}"
    );
}

#[test]
fn a_mount_without_a_volume_is_named() {
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    let mut object =
        with_containers(&json!([{"name": "db", "image": "db:1", "volumeMounts": mounts}]));
    let what = "mounts \"data\" in its container \"db\"";
    assert_eq!(
        refused(&object, None),
        format!("{what}, but has no such volume")
    );
    object["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}}]);
    assert_eq!(
        refused(&object, None),
        format!(
            "{what}, of which each of its pods has its own: take one of them, as in --from pod/web-0"
        )
    );
    object["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]);
    let notes = taken(&object).notes;
    assert!(
        notes.len() == 1 && notes[0].starts_with("mounts data-web-0: a ReadWriteOnce claim"),
        "{notes:?}"
    );
    // A block device is a mount, too.
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    container["volumeDevices"] = json!([{"name": "disk", "devicePath": "/dev/x"}]);
    assert!(refused(&object, None).starts_with("mounts \"disk\""));
}

#[test]
fn a_pod_is_taken_without_what_admission_and_its_controllers_wrote() {
    let tolerated = |key: &str, seconds: u32| {
        let effect = "NoExecute";
        json!({"key": key, "operator": "Exists", "effect": effect, "tolerationSeconds": seconds})
    };
    let admitted = |key: &str| tolerated(key, 300);
    // The user's own, of which admission would make 300.
    let short = tolerated("node.kubernetes.io/not-ready", 30);
    let access = json!({"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    let data = json!({"name": "data", "mountPath": "/data"});
    let own =
        json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"});
    let pod = json!({
        "metadata": {
            "name": "web-0", "uid": "u", "ownerReferences": [{"kind": "StatefulSet"}], "finalizers": ["x"],
            "labels": {"app": "web", "statefulset.kubernetes.io/pod-name": "web-0", "sidecar.istio.io/inject": "false"},
            "annotations": {
                "cni.projectcalico.org/podIP": "10.0.0.7/32", "sidecar.istio.io/inject": "false",
                "vault.hashicorp.com/agent-inject": "true",
            },
        },
        "spec": {
            "containers": [{"name": "web", "image": "a:1", "volumeMounts": [data, access]}],
            "initContainers": [{"name": "init", "image": "a:1", "volumeMounts": [access]}],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "kube-api-access-x7k2p", "projected": {}}],
            "tolerations": [
                admitted("node.kubernetes.io/not-ready"), own, short,
                admitted("node.kubernetes.io/unreachable"), admitted("mine"),
            ],
            "nodeName": "node-1",
        },
        "status": {"phase": "Running"},
    });
    let taken = take(&pod, Place::Pod, None).unwrap();
    let expected = json!({
        "metadata": {
            "labels": {"sidecar.istio.io/inject": "false"},
            "annotations": {"sidecar.istio.io/inject": "false"},
        },
        "spec": {
            "containers": [{"name": "at", "volumeMounts": [data]}],
            "initContainers": [{"name": "init", "image": "a:1", "volumeMounts": []}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "tolerations": [own, short, admitted("mine")],
        },
    });
    assert_eq!(taken.template, expected);
    assert_eq!(faults(&taken), [""; 0]);
}

#[test]
fn the_command_is_the_one_that_is_given_else_that_of_the_container() {
    let object = |container: Value| {
        let mut all = json!({"name": "web", "image": "a:1"});
        all.as_object_mut()
            .unwrap()
            .extend(container.as_object().unwrap().clone());
        with_containers(&json!([all]))
    };
    let own = object(
        json!({"command": ["./serve"], "args": ["--port=$(PORT)", "on"], "env": [{"name": "PORT", "value": "80"}]}),
    );
    let given = ["./migrate".to_owned(), "up".to_owned()];
    let mut one = taken(&own);
    let run = one.run(&given, None, &[]).unwrap();
    assert_eq!(
        (run.shell.as_slice(), run.command.as_str()),
        (&given[..1], "up")
    );
    assert_eq!(one.notes, [""; 0]);
    let run = one.run(&[], None, &[]).unwrap();
    assert_eq!(run.shell, ["./serve", "--port=$(PORT)"]);
    assert_eq!(run.command, "on");
    assert_eq!(
        one.notes,
        ["runs its own command: ./serve '--port=$(PORT)' on"]
    );
    // One word needs a shell, and says so, unless it was chosen.
    let mut one = taken(&own);
    assert!(one.run(&given[..1], None, &[]).unwrap().quoted);
    let needs_sh = "needs sh in its image: the command runs with sh -c";
    assert_eq!(one.notes, [needs_sh]);
    let mut one = taken(&own);
    let run = one.run(&given, Some("bash"), &[]).unwrap();
    assert_eq!(run.shell, ["bash", "-c"]);
    assert_eq!(one.notes, [""; 0]);
    // So does a text.
    let mut one = taken(&own);
    assert_eq!(one.by_shell(Some("bash")), ["bash", "-c"]);
    assert_eq!(one.notes, [""; 0]);
    assert_eq!(one.by_shell(None), ["sh", "-c"]);
    assert_eq!(one.notes, [needs_sh]);
    // Of the container's own command, the user reads every word, also those before a text.
    let of_shell = json!({"command": ["sh", "-ec", "tar c /x | gzip"]});
    let mut one = taken(&object(of_shell));
    let run = one.run(&[], None, &[]).unwrap();
    assert_eq!(run.command, "tar c /x | gzip");
    assert_eq!(
        one.notes,
        ["runs its own command: sh -ec 'tar c /x | gzip'"]
    );
    // A flag makes a variable, too.
    let mut one = taken(&object(json!({"command": ["echo", "$(WHO)"]})));
    assert!(!one.run(&[], None, &[]).unwrap().quoted);
    let who = [("WHO".to_owned(), "me".to_owned())];
    assert!(one.run(&[], None, &who).unwrap().quoted);
    // Only the image knows its command, and what the arguments are for.
    for container in [json!({}), json!({"args": ["x"]}), json!({"command": []})] {
        let error = taken(&object(container)).run(&[], None, &[]).unwrap_err();
        assert!(
            error.starts_with("runs the command of its image"),
            "{error}"
        );
    }
}

#[test]
fn the_deadline_of_a_job_is_that_of_the_at() {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "a:1"}]}});
    let job = json!({"spec": {"activeDeadlineSeconds": 600, "template": template}});
    let cron_job = json!({"spec": {"jobTemplate": job, "activeDeadlineSeconds": 7}});
    for (object, place, timeout) in [
        (&job, Place::Job, Some(600)),
        (&cron_job, Place::CronJob, Some(600)),
        (&json!({"spec": {"template": template}}), Place::Job, None),
        // Others have no such field.
        (&job, Place::Template, None),
    ] {
        let taken = take(object, place, None).unwrap();
        assert_eq!(taken.timeout, timeout, "{place:?} {object}");
    }
}

/// The API server makes every port of such a pod one of its node, where the pods of the object have them.
#[test]
fn in_the_network_of_the_node_a_sidecar_has_only_ports_that_are_named() {
    let ports = ["named", "hooked", "other"].map(|name| json!({"name": name, "containerPort": 9}));
    let mut ports = ports.to_vec();
    ports.push(json!({"containerPort": 10, "hostPort": 10}));
    let sidecar = json!({
        "name": "proxy", "image": "proxy:1", "restartPolicy": "Always", "ports": ports,
        "readinessProbe": {"tcpSocket": {"port": "named"}},
        "livenessProbe": {"httpGet": {"port": 10, "path": "other"}},
        "lifecycle": {"preStop": {"httpGet": {"port": "hooked"}}},
    });
    let bare = json!({"name": "init", "image": "a:1", "ports": [{"containerPort": 11}]});
    let mut object = with_containers(&json!([{"name": "web", "image": "web:1"}]));
    let spec = &mut object["spec"]["template"]["spec"];
    spec["initContainers"] = json!([sidecar, bare]);
    let ports_of = |object: &Value, container: usize| {
        let template = taken(object).template;
        let ports = &template["spec"]["initContainers"][container]["ports"];
        let ports = ports.as_array().cloned().unwrap_or_default();
        let ports = ports.iter().map(|port| {
            assert_eq!(port.get("hostPort"), None);
            port["name"].as_str().unwrap_or("-").to_owned()
        });
        ports.collect::<Vec<_>>()
    };
    assert_eq!(ports_of(&object, 0), ["named", "hooked", "other", "-"]);
    assert_eq!(ports_of(&object, 1), ["-"]);
    object["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    assert_eq!(ports_of(&object, 0), ["named", "hooked"]);
    assert_eq!(ports_of(&object, 1), [""; 0]);
}

#[test]
fn hostile_objects_are_an_error_or_an_at_and_never_a_panic() {
    let hostile = "x\u{1b}[2J\n\u{202e}";
    for (template, error) in [
        (json!(null), "has no pod template"),
        (json!([]), "has no pod template"),
        (json!({"spec": 7}), "has no pod template"),
        (json!({"spec": {}}), "has no container"),
        (
            json!({"spec": {"containers": {}}}),
            "has containers that cannot be read",
        ),
        (
            json!({"spec": {"containers": [1]}}),
            "has containers that cannot be read",
        ),
        (json!({"spec": {"containers": [{}]}}), "has no image"),
        (
            json!({"spec": {"containers": [{"image": ["a"]}]}}),
            "has no image",
        ),
        (
            json!({"spec": {"containers": [{"image": "a:1", "command": "x"}]}}),
            "has command that cannot be read",
        ),
        (
            json!({"spec": {"containers": [{"image": "a:1", "args": [1]}]}}),
            "has args that cannot be read",
        ),
        (
            json!({"spec": {"containers": [{"image": "a:1", "env": 5}]}}),
            "has env that cannot be read",
        ),
        (
            json!({"spec": {"initContainers": 5, "containers": [{"image": "a:1"}]}}),
            "has initContainers that cannot be read",
        ),
        (
            json!({"spec": {"volumes": "x", "containers": [{"image": "a:1"}]}}),
            "has volumes that cannot be read",
        ),
        (
            json!({"spec": {"initContainers": [{"ports": 5}], "containers": [{"image": "a:1"}]}}),
            "has ports that cannot be read",
        ),
        (
            json!({"spec": {"containers": [{"name": hostile, "image": "a:1", "volumeMounts": [{"name": hostile}]}]}}),
            "mounts ",
        ),
    ] {
        for place in [
            Place::Template,
            Place::Pod,
            Place::Job,
            Place::CronJob,
            Place::MyDaemonSet,
        ] {
            let _ = take(&deployment(&template), place, Some(hostile));
            let _ = take(&template, place, None);
        }
        let found = refused(&deployment(&template), None);
        assert!(found.starts_with(error), "{template}: {found}");
    }
    for template in [
        json!({"metadata": 5, "spec": {"containers": [{"image": "a:1"}]}}),
        json!({"metadata": {"labels": [], "annotations": {hostile: 5}}, "spec": {
            "affinity": 5, "tolerations": [5], "volumes": [5, {"name": 5}],
            "hostNetwork": 5,
            "initContainers": [{"ports": [5], "lifecycle": 5, "volumeMounts": 5, "restartPolicy": []}],
            "containers": [{"name": hostile, "image": hostile, "volumeMounts": {}, "env": [5, {"name": 5}], "envFrom": 5}],
        }}),
    ] {
        for place in [Place::Template, Place::Pod] {
            let object = match place {
                Place::Pod => template.clone(),
                _ => deployment(&template),
            };
            let taken = take(&object, place, None).unwrap();
            // What is wrong in it is the webhook's to say.
            let _ = faults(&taken);
        }
    }
}

#[test]
fn a_huge_template_is_taken_whole_and_its_names_are_cut() {
    let count = 20_000;
    let numbered = |name: &str| {
        let all =
            (0..count).map(|number| json!({"name": format!("{name}-{number}"), "image": "a:1"}));
        all.collect::<Vec<_>>()
    };
    let object = json!({"spec": {"template": {"spec": {
        "volumes": numbered("v"),
        "initContainers": numbered("i"),
        "containers": [{"name": "web", "image": "a:1", "env": numbered("e"), "volumeMounts": numbered("v")}],
    }}}});
    let spec = &taken(&object).template["spec"];
    assert_eq!(spec["volumes"].as_array().unwrap().len(), count);
    assert_eq!(spec["initContainers"].as_array().unwrap().len(), count);
    let error = refused(&with_containers(&numbered("c").into()), None);
    assert!(error.len() < 300 && error.ends_with("..."), "{error}");
}

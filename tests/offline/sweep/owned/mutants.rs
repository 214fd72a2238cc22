//! Bugs that only a kind with a child can have.

use axum::http::Method;
use serde_json::json;
use simulated_apiserver::Server;

use super::{NAME, TAKEN_BEFORE};
use crate::sweep::cluster::NAMESPACE;
use crate::sweep::faults::Fault;
use crate::sweep::mutants::{BASE, Mutant, NO_RETRY_AFTER, Sent};

/// The path ends of the kinds of children.
const CHILDREN: [&str; 3] = ["deployments", "cronjobs", "jobs"];

fn is_child(sent: &Sent) -> bool {
    CHILDREN.iter().any(|child| {
        sent.path.contains(&format!("/{child}/")) || sent.path.ends_with(&format!("/{child}"))
    })
}

/// A write of a child; deletions apart.
fn writes_child(sent: &Sent) -> bool {
    is_child(sent) && [Method::PATCH, Method::POST].contains(&sent.method)
}

fn is_status(sent: &Sent) -> bool {
    sent.is(&Method::PUT, "/status")
}

const NO_OWNER: Mutant = Mutant {
    name: "a child has no owner",
    request: |_, sent| {
        if writes_child(sent) {
            sent.remove("/metadata", "ownerReferences");
        }
    },
    ..BASE
};

const ANY_CHILD: Mutant = Mutant {
    name: "any child of the name is changed",
    request: |_, sent| {
        if writes_child(sent) {
            sent.remove("/metadata", "uid");
            sent.remove("/metadata", "resourceVersion");
        }
    },
    shown_by: &[Fault::RecreateBefore],
    ..BASE
};

const FORCED: Mutant = Mutant {
    name: "a name that is taken is overwritten",
    request: |_, sent| {
        if sent.method == Method::PATCH && is_child(sent) {
            sent.path.push_str("?fieldManager=my-operator&force=true");
        }
    },
    shown_by: &[Fault::Own(TAKEN_BEFORE)],
    ..BASE
};

const BLIND: Mutant = Mutant {
    name: "a read of the child finds none",
    answer: |_, sent, answer| {
        let none = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
            "reason": "NotFound", "message": "not found"});
        if sent.method == Method::GET && is_child(sent) {
            Some((404, none))
        } else {
            answer
        }
    },
    shown_by: &[Fault::CrashAfter],
    ..BASE
};

const FAILURE_IS_SUCCESS: Mutant = Mutant {
    name: "a failure is taken for success",
    answer: |_, sent, answer| match &answer {
        Some((500.., _)) if is_status(sent) => Some(sent.as_if_done()),
        _ => answer,
    },
    shown_by: &[Fault::InternalError],
    ..BASE
};

/// Those of every kind whose child is kept equal to the spec.
pub const OF_ANY: &[Mutant] = &[
    NO_OWNER,
    ANY_CHILD,
    FORCED,
    BLIND,
    FAILURE_IS_SUCCESS,
    NO_RETRY_AFTER,
];

/// Those of Foo.
pub const OF_FOO: &[Mutant] = &[
    NO_OWNER,
    ANY_CHILD,
    FORCED,
    BLIND,
    FAILURE_IS_SUCCESS,
    NO_RETRY_AFTER,
    Mutant {
        name: "any child of an earlier name is deleted",
        request: |_, sent| {
            if sent.method == Method::DELETE && is_child(sent) {
                sent.remove("", "preconditions");
            }
        },
        shown_by: &[Fault::RecreateBefore],
        ..BASE
    },
    Mutant {
        name: "the child before is forgotten",
        answer: |_, sent, answer| {
            if sent.method == Method::DELETE && is_child(sent) {
                Some((
                    404,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": 404, "reason": "NotFound", "message": "not found"}),
                ))
            } else {
                answer
            }
        },
        request: |_, sent| {
            if sent.method == Method::DELETE && is_child(sent) {
                sent.path.push_str("?dryRun=All");
            }
        },
        ..BASE
    },
];

/// The Jobs of the object, by the API server.
fn jobs(server: &Server) -> Vec<serde_json::Value> {
    server.direct().list("jobs", NAMESPACE)
}

/// Those of `FooBar`.
pub const OF_FOOBAR: &[Mutant] = &[
    NO_OWNER,
    BLIND,
    FAILURE_IS_SUCCESS,
    NO_RETRY_AFTER,
    Mutant {
        name: "a Job is born running",
        request: |_, sent| {
            if sent.is(&Method::POST, "/jobs") {
                sent.remove("/spec", "suspend");
            }
        },
        ..BASE
    },
    Mutant {
        name: "any Job of the name is released",
        request: |_, sent| {
            if sent.is_on(&Method::PATCH, "jobs") {
                sent.remove("/metadata", "uid");
                sent.remove("/metadata", "resourceVersion");
            }
        },
        shown_by: &[Fault::RecreateBefore, Fault::Late],
        ..BASE
    },
    Mutant {
        name: "a Job that runs is deleted with the others",
        request: |server, sent| {
            if is_status(sent) && sent.body["status"]["phase"] == "Succeeded" {
                for job in jobs(server) {
                    let name = job["metadata"]["name"].as_str().unwrap_or_default();
                    if sent.body["status"]["jobName"] != name {
                        let _ = server
                            .direct_as("operator-mutant")
                            .delete("jobs", NAMESPACE, name);
                    }
                }
            }
        },
        ..BASE
    },
    Mutant {
        name: "a Job is released whatever the object is now",
        answer: |server, sent, answer| {
            let is_read = sent.is(&Method::GET, &format!("/foobars/{NAME}"));
            answer.map(|(code, mut body)| {
                let foobar = server.direct().get("foobars", NAMESPACE, NAME);
                let job = foobar
                    .as_ref()
                    .and_then(|it| it["status"]["jobName"].as_str());
                let number = job.and_then(|job| job.rsplit_once('-')?.1.parse::<i64>().ok());
                if is_read
                    && code == 200
                    && let Some(number) = number
                {
                    body["metadata"]["generation"] = json!(number);
                }
                (code, body)
            })
        },
        ..BASE
    },
    Mutant {
        name: "the status does not record the Job",
        request: |_, sent| {
            if is_status(sent) {
                sent.remove("/status", "jobUID");
            }
        },
        ..BASE
    },
    Mutant {
        name: "the record of a Job is written over any version",
        request: |server, sent| {
            if is_status(sent)
                && let Some(foobar) = server.direct().get("foobars", NAMESPACE, NAME)
            {
                sent.body["metadata"]["resourceVersion"] =
                    foobar["metadata"]["resourceVersion"].clone();
            }
        },
        shown_by: &[
            Fault::EditBefore,
            Fault::HeldBack("foobars"),
            Fault::Late,
            Fault::CrashAndOldList,
        ],
        ..BASE
    },
];

//! The rules of the kind, shared by the webhook and the reconciler.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Map, Value};

use super::crd::{At, AtSpec, AtStatus, Phase};
use super::pod::names::{CONTAINER, OWN_PREFIX, POD_SUFFIX};
use super::schedule::{self, Schedule, ceil_to_millisecond};
use admission_rules::faults::Fault;
use admission_rules::rules::{Findings, Recorded, Request, Rules, Subject};
use my_operator_kind::command;
use my_operator_kind::template::{self, PodTemplate, check_image, check_restart_policy, given};
use wall_clock_controller::reconcile::write::MANAGED_BY;

/// The annotation that records who created the object.
pub(crate) const CREATED_BY: &str = "cnat.programming-kubernetes.info/created-by";
/// The annotation that records when an update changed a relative schedule: RFC 3339, with milliseconds, rounded up.
pub(crate) const SCHEDULE_SET_AT: &str = "cnat.programming-kubernetes.info/schedule-set-at";

/// An image with bash and little else.
pub(crate) const DEFAULT_IMAGE: &str = "bash:5.3";
/// The originals ran every command in a Bash shell.
pub(crate) const DEFAULT_SHELL: [&str; 2] = ["bash", "-c"];
/// The starting deadline of an object that deletes itself. Without one, a tool that keeps creating
/// what its repository contains would run the command again after every deletion.
pub(crate) const DEFAULT_DEADLINE_WITH_TTL: i64 = 3600;

const MAX_SHELL_ITEMS: usize = 8;
/// Names of pods have at most 253 characters.
const MAX_NAME_LEN: usize = 253 - POD_SUFFIX.len();
/// The API server rejects pods with a longer deadline.
const MAX_ACTIVE_DEADLINE: i64 = 2_147_483_647;
const STARTED: &str = "the command has started";
const TEMPLATE: &str = "spec.template";

/// See the module.
#[derive(Debug)]
pub(crate) struct AtRules;

impl Rules for AtRules {
    type Object = At;
    type Spec = AtSpec;
    type Status = AtStatus;

    const RECORDED: &'static [&'static str] = &[CREATED_BY, SCHEDULE_SET_AT];

    fn default(spec: &mut AtSpec) {
        spec.image.get_or_insert_with(|| DEFAULT_IMAGE.to_owned());
        spec.shell
            .get_or_insert_with(|| DEFAULT_SHELL.map(str::to_owned).to_vec());
        spec.suspend.get_or_insert(false);
        if spec.ttl_seconds_after_finished.is_some() {
            spec.starting_deadline_seconds
                .get_or_insert(DEFAULT_DEADLINE_WITH_TTL);
        }
    }

    fn bulk(spec: &mut AtSpec) -> Option<&mut Value> {
        spec.template.as_mut().map(|template| &mut template.0)
    }

    fn record(request: &Request<'_, AtSpec>) -> Vec<Recorded> {
        let created_by = match &request.old {
            None => Some(request.user.to_owned()),
            Some(old) => old.annotations.get(CREATED_BY).cloned(),
        };
        vec![
            (CREATED_BY, created_by),
            (SCHEDULE_SET_AT, schedule_set_at(request)),
        ]
    }

    fn check(subject: &Subject<'_, AtSpec>, now: DateTime<Utc>) -> Findings {
        let mut findings = Findings::default();
        let spec = subject.spec;
        findings.check_name(subject, MAX_NAME_LEN);
        let schedule = check_schedule(spec, &mut findings);
        let text = spec.command.as_deref().unwrap_or_default();
        command::check("spec.command", text, &mut findings);
        check_own_image(spec.image.as_deref().unwrap_or_default(), &mut findings);
        check_shell(spec, &mut findings);
        if let Some(template) = &spec.template {
            check_template(template, &mut findings);
        }
        check_seconds(spec, &mut findings);
        if findings.faults.is_empty()
            && let Some(schedule) = schedule
        {
            let set = base(subject.annotations, subject.created.unwrap_or(now));
            warn(
                spec,
                schedule,
                schedule_instant(schedule, set),
                now,
                &mut findings,
            );
        }
        findings
    }

    fn check_update(
        old: &Subject<'_, AtSpec>,
        status: Option<&AtStatus>,
        new: &Subject<'_, AtSpec>,
    ) -> Findings {
        let mut findings = Findings::default();
        let (old, new) = (old.spec, new.spec);
        // A status that cannot be decoded may belong to a command that has started.
        let is_idle = |status: &AtStatus| {
            status.phase.unwrap_or_default() == Phase::Pending && status.pod_uid.is_none()
        };
        if status.is_some_and(is_idle) {
            return findings;
        }
        let fixed = [
            ("spec.schedule", old.schedule == new.schedule),
            ("spec.command", old.command == new.command),
            ("spec.image", old.image == new.image),
            ("spec.shell", old.shell == new.shell),
            (TEMPLATE, old.template == new.template),
        ];
        for (field, same) in fixed {
            if !same {
                findings.fault(Fault::forbidden(field, STARTED));
            }
        }
        // The default that comes with a new TTL is not a change by the user.
        let defaulted = old.starting_deadline_seconds.is_none()
            && new.starting_deadline_seconds == Some(DEFAULT_DEADLINE_WITH_TTL)
            && old.ttl_seconds_after_finished.is_none()
            && new.ttl_seconds_after_finished.is_some();
        let idle = [
            (
                "suspend",
                "now that the command has started",
                old.suspend == new.suspend,
            ),
            (
                "startingDeadlineSeconds",
                "once the pod was released",
                defaulted || old.starting_deadline_seconds == new.starting_deadline_seconds,
            ),
            (
                "activeDeadlineSeconds",
                "once a node has taken the pod",
                old.active_deadline_seconds == new.active_deadline_seconds,
            ),
        ];
        for (field, when, same) in idle {
            if !same {
                findings.warn(format!("spec.{field}: has no effect {when}"));
            }
        }
        findings
    }
}

/// When the schedule was set: what the webhook recorded when the text was changed, otherwise the
/// creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// From `metadata.creationTimestamp`, which the API server truncates to whole seconds.
    Created(DateTime<Utc>),
    /// From the annotation, which is exact.
    Changed(DateTime<Utc>),
}

/// The base of an object's schedule. A malformed annotation is ignored: it can only be there if the
/// object bypassed the webhook.
pub(crate) fn base(annotations: &BTreeMap<String, String>, created: DateTime<Utc>) -> Base {
    let recorded = annotations
        .get(SCHEDULE_SET_AT)
        .and_then(|text| schedule::parse(text).ok());
    match recorded {
        Some(Schedule::At(instant)) => Base::Changed(instant),
        _ => Base::Created(created),
    }
}

/// The instant that a schedule means; `None` beyond the year 9999.
///
/// `metadata.creationTimestamp` is truncated to whole seconds, so an object that says 10:00:00 may
/// have been created at 10:00:00.999. A duration therefore counts from the end of that second:
/// otherwise it could be up to a second short. `now` needs no such care, since nothing is seen
/// before it exists.
pub(crate) fn schedule_instant(schedule: Schedule, base: Base) -> Option<DateTime<Utc>> {
    let from = match (base, schedule) {
        (Base::Changed(instant), _) => instant,
        (Base::Created(created), Schedule::After(_)) => {
            created.checked_add_signed(TimeDelta::seconds(1))?
        }
        (Base::Created(created), _) => created,
    };
    schedule.instant(from)
}

/// When an update changed the schedule; `None` for a schedule that was not changed since the creation.
///
/// A relative schedule counts from it. So does the lateness of an absolute one whose instant was past.
fn schedule_set_at(request: &Request<'_, AtSpec>) -> Option<String> {
    let old = request.old.as_ref()?;
    let text = request.new.spec.schedule.as_deref();
    if old.spec.schedule.as_deref() == text {
        return old.annotations.get(SCHEDULE_SET_AT).cloned();
    }
    let instant = ceil_to_millisecond(request.now);
    Some(instant.to_rfc3339_opts(SecondsFormat::Millis, true))
}

fn check_schedule(spec: &AtSpec, findings: &mut Findings) -> Option<Schedule> {
    let text = spec.schedule.as_deref().unwrap_or_default();
    if text.is_empty() {
        findings.fault(Fault::required("spec.schedule", "schedule is required"));
        return None;
    }
    schedule::parse(text)
        .map_err(|error| {
            findings.fault(Fault::invalid("spec.schedule", text, &error.to_string()));
        })
        .ok()
}

/// Only an image that is left out has a default.
fn check_own_image(image: &str, findings: &mut Findings) {
    if image.is_empty() {
        let detail = format!(
            "image is required: name one, or leave the field out, which means {DEFAULT_IMAGE}"
        );
        findings.fault(Fault::required("spec.image", &detail));
    } else {
        check_image("spec.image", image, findings);
    }
}

fn check_shell(spec: &AtSpec, findings: &mut Findings) {
    let shell = spec.shell.as_deref().unwrap_or_default();
    if shell.is_empty() {
        findings.fault(Fault::required(
            "spec.shell",
            "give 1 to 8 items, such as [\"sh\", \"-c\"]",
        ));
    }
    findings.check_count("spec.shell", shell.len(), MAX_SHELL_ITEMS);
    for (i, item) in shell.iter().take(MAX_SHELL_ITEMS).enumerate() {
        let field = format!("spec.shell[{i}]");
        if i == 0 && item.trim().is_empty() {
            findings.fault(Fault::required(field, "the first item is the program"));
        } else if item.contains('\0') {
            findings.fault(Fault::invalid(
                field,
                item.as_str(),
                "must not contain a NUL character: no program can be given one",
            ));
        }
    }
}

fn check_seconds(spec: &AtSpec, findings: &mut Findings) {
    let bounds = [
        (
            "startingDeadlineSeconds",
            spec.starting_deadline_seconds,
            0,
            i64::MAX,
        ),
        (
            "activeDeadlineSeconds",
            spec.active_deadline_seconds,
            1,
            MAX_ACTIVE_DEADLINE,
        ),
        (
            "ttlSecondsAfterFinished",
            spec.ttl_seconds_after_finished,
            0,
            i64::MAX,
        ),
    ];
    for (name, value, least, most) in bounds {
        findings.check_number(&format!("spec.{name}"), value, least..=most);
    }
}

/// The rules of this kind for its template, in addition to those for every kind's.
fn check_template(pods: &PodTemplate, findings: &mut Findings) {
    findings.extend(template::check(TEMPLATE, pods, CONTAINER));
    for (key, texts) in [
        ("labels", pods.labels()),
        ("annotations", pods.annotations()),
    ] {
        for name in texts.into_iter().flat_map(Map::keys) {
            if name.starts_with(OWN_PREFIX) || name == MANAGED_BY {
                let field = format!("{TEMPLATE}.metadata.{key}");
                findings.fault(Fault::forbidden(field, "the operator sets it").at_key(name));
            }
        }
    }
    let Some(spec) = pods.spec() else { return };
    check_restart_policy(format_args!("{TEMPLATE}.spec"), spec, "Never", findings);
    check_gates(spec, findings);
    for container in pods.containers() {
        let (at, fields) = (container.field(TEMPLATE), container.fields);
        if container.init {
            // The only restart policy of an init container: it makes it a sidecar.
            check_restart_policy(&at, fields, "Always", findings);
        } else if given(fields, "restartPolicy") {
            forbid_restart(format!("{at}.restartPolicy"), findings);
        }
        if given(fields, "restartPolicyRules") {
            forbid_restart(format!("{at}.restartPolicyRules"), findings);
        }
        if !container.init && container.name() == CONTAINER {
            for key in ["command", "args"] {
                if given(fields, key) {
                    let detail = "spec.command and spec.shell say what this container runs";
                    findings.fault(Fault::forbidden(format!("{at}.{key}"), detail));
                }
            }
        }
    }
}

fn forbid_restart(field: String, findings: &mut Findings) {
    findings.fault(Fault::forbidden(
        field,
        "a command runs once and is never restarted",
    ));
}

fn check_gates(spec: &Map<String, Value>, findings: &mut Findings) {
    let field = format!("{TEMPLATE}.spec.schedulingGates");
    let gates = match spec.get("schedulingGates") {
        None | Some(Value::Null) => return,
        Some(Value::Array(gates)) => gates,
        Some(other) => {
            findings.fault(Fault::type_invalid(field, other, "must be an array"));
            return;
        }
    };
    for (i, gate) in gates.iter().enumerate() {
        let name = gate.get("name").and_then(Value::as_str);
        match name {
            None => findings.fault(Fault::type_invalid(
                format!("{field}[{i}]"),
                gate,
                "must be an object with a name",
            )),
            Some(name) if name.starts_with(OWN_PREFIX) => findings.fault(Fault::forbidden(
                format!("{field}[{i}].name"),
                "gates of this name are the operator's",
            )),
            Some(_) => findings.warn(format!(
                "{field}[{i}]: the command does not start before this gate is removed too, however long ago the operator released the pod"
            )),
        }
    }
}

/// Warnings about a valid object.
fn warn(
    spec: &AtSpec,
    schedule: Schedule,
    instant: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
    findings: &mut Findings,
) {
    let deadline = spec.starting_deadline_seconds;
    match instant {
        None => {
            findings.warn("spec.schedule: lies beyond the year 9999, the command will never start");
        }
        Some(instant) if instant < now && !schedule.is_relative() => {
            let late = deadline.is_some_and(|seconds| past(instant, seconds, now));
            findings.warn(if late {
                "spec.schedule: lies further in the past than spec.startingDeadlineSeconds allows, the command is not started (unless it has started already)"
            } else {
                "spec.schedule: is in the past, the command starts at once (unless it has started already)"
            });
        }
        Some(_) => {}
    }
    if deadline == Some(0) {
        findings.warn("spec.startingDeadlineSeconds: 0 leaves no time at all, the command will hardly ever start");
    }
    if spec.ttl_seconds_after_finished.is_some() && schedule.is_relative() {
        findings.warn("spec.ttlSecondsAfterFinished: with a relative schedule the command runs again whenever the object is created again after its deletion");
    }
    let own = spec.template.as_ref().and_then(PodTemplate::spec);
    if spec.active_deadline_seconds.is_some()
        && own.is_some_and(|own| given(own, "activeDeadlineSeconds"))
    {
        findings.warn("spec.template.spec.activeDeadlineSeconds: has no effect, spec.activeDeadlineSeconds takes its place");
    }
    // Most often a pod of something else, whose container was to run the command.
    if let Some(template) = &spec.template
        && template.containers().any(|container| !container.init)
        && template.container(CONTAINER).is_none()
    {
        findings.warn(format!(
            "{TEMPLATE}.spec.containers: none is named {CONTAINER:?}: the command runs in one of that name that is added, with spec.image, next to those given"
        ));
    }
}

/// The last instant at which a start is still allowed; `None` if it is beyond what a calendar can represent.
pub(crate) fn deadline(instant: DateTime<Utc>, seconds: i64) -> Option<DateTime<Utc>> {
    instant.checked_add_signed(TimeDelta::try_seconds(seconds)?)
}

/// Whether a start at `now` would be later than the deadline allows.
pub(crate) fn past(instant: DateTime<Utc>, seconds: i64, now: DateTime<Utc>) -> bool {
    deadline(instant, seconds).is_some_and(|last| now > last)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use admission_rules::rules::decode_and_validate;

    fn instant(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    fn now() -> DateTime<Utc> {
        instant("2026-04-12T10:00:00Z")
    }

    /// A good spec with these fields in it.
    fn spec(fields: Value) -> AtSpec {
        let mut raw = json!({"schedule": "2026-04-12T10:12:00Z", "command": "echo YAY"});
        let (raw_fields, Value::Object(fields)) = (raw.as_object_mut().unwrap(), fields) else {
            unreachable!()
        };
        raw_fields.extend(fields);
        let mut spec = serde_json::from_value(raw).unwrap();
        AtRules::default(&mut spec);
        spec
    }

    fn check(name: &str, spec: &AtSpec) -> Findings {
        let subject = Subject {
            name,
            annotations: &BTreeMap::new(),
            created: Some(now()),
            spec,
        };
        AtRules::check(&subject, now())
    }

    fn faults(fields: Value) -> Vec<String> {
        let findings = check("a", &spec(fields));
        findings.faults.iter().map(ToString::to_string).collect()
    }

    fn warnings(fields: Value) -> Vec<String> {
        let findings = check("a", &spec(fields));
        assert_eq!(findings.faults, []);
        assert!(findings.warnings.iter().all(|w| w.len() <= 256));
        findings.warnings
    }

    #[test]
    fn defaults_fill_in_what_is_missing_and_nothing_else() {
        let mut bare = AtSpec::default();
        AtRules::default(&mut bare);
        assert_eq!(
            serde_json::to_value(&bare).unwrap(),
            json!({"image": "bash:5.3", "shell": ["bash", "-c"], "suspend": false})
        );
        let mut given = spec(json!({"image": "x:1", "shell": ["sh"], "suspend": true,
            "ttlSecondsAfterFinished": 5, "startingDeadlineSeconds": 7}));
        let before = given.clone();
        AtRules::default(&mut given);
        assert_eq!(given, before);
        let ttl = spec(json!({"ttlSecondsAfterFinished": 0}));
        assert_eq!(ttl.starting_deadline_seconds, Some(3600));
        let mut twice = ttl.clone();
        AtRules::default(&mut twice);
        assert_eq!(twice, ttl);
    }

    #[test]
    fn good_specs_have_no_fault() {
        for fields in [
            json!({}),
            json!({"schedule": "now"}),
            json!({"schedule": "now + 5 minutes", "shell": ["sh", "-c"], "image": "busybox:1"}),
            json!({"command": "x".repeat(32_768)}),
            json!({"startingDeadlineSeconds": 0, "activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 0}),
            json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "restartPolicy": "Never", "schedulingGates": [{"name": "example.com/quota"}],
                "initContainers": [{"name": "proxy", "image": "p:1", "restartPolicy": "Always"}],
                "containers": [{"name": "log", "image": "l:1"}, {"name": "at", "env": []}]}}}),
        ] {
            assert_eq!(faults(fields.clone()), Vec::<String>::new(), "{fields}");
        }
    }

    #[test]
    fn each_rule_names_its_field() {
        let container = |c: Value| json!({"template": {"spec": {"containers": [c]}}});
        let init = |c: Value| json!({"template": {"spec": {"initContainers": [c]}}});
        let pod = |s: Value| json!({"template": {"spec": s}});
        for (fields, text) in [
            (
                json!({"schedule": null}),
                "spec.schedule: Required value: schedule is required",
            ),
            (
                json!({"schedule": ""}),
                "spec.schedule: Required value: schedule is required",
            ),
            (
                json!({"schedule": "2026-04-12 10:12:00Z"}),
                "spec.schedule: Invalid value: \"2026-04-12 10:12:00Z\": at character 11: expected an upper-case T between date and time",
            ),
            (
                json!({"schedule": "16:00"}),
                "spec.schedule: Invalid value: \"16:00\": at character 1: expected an instant such as 2026-04-12T10:12:00Z, or now, or now + 5 minutes",
            ),
            (
                json!({"command": null}),
                "spec.command: Required value: command is required",
            ),
            (
                json!({"command": " \n\t"}),
                "spec.command: Required value: command is required",
            ),
            (
                json!({"command": "x".repeat(32_769)}),
                "spec.command: Too long: may not be more than 32768 bytes",
            ),
            (
                json!({"command": "a\0b"}),
                "spec.command: Invalid value: \"a\\0b\": must not contain a NUL character: no program can be given one",
            ),
            (
                json!({"image": ""}),
                "spec.image: Required value: image is required: name one, or leave the field out, which means bash:5.3",
            ),
            (
                json!({"shell": []}),
                "spec.shell: Required value: give 1 to 8 items, such as [\"sh\", \"-c\"]",
            ),
            (
                json!({"shell": ["a", "b", "c", "d", "e", "f", "g", "h", "i"]}),
                "spec.shell: Invalid value: 9: must have at most 8 items",
            ),
            (
                json!({"shell": ["", "-c"]}),
                "spec.shell[0]: Required value: the first item is the program",
            ),
            (
                json!({"startingDeadlineSeconds": -1}),
                "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"activeDeadlineSeconds": 0}),
                "spec.activeDeadlineSeconds: Invalid value: 0: must be greater than or equal to 1",
            ),
            (
                json!({"activeDeadlineSeconds": 2_147_483_648_i64}),
                "spec.activeDeadlineSeconds: Invalid value: 2147483648: must be less than or equal to 2147483647",
            ),
            (
                json!({"ttlSecondsAfterFinished": -5}),
                "spec.ttlSecondsAfterFinished: Invalid value: -5: must be greater than or equal to 0",
            ),
            (
                json!({"template": 7}),
                "spec.template: Invalid value: 7: must be an object",
            ),
            (
                json!({"template": {"spec": []}}),
                "spec.template.spec: Invalid value: []: must be an object",
            ),
            (
                pod(json!({"nodeName": "n"})),
                "spec.template.spec.nodeName: Forbidden: the node is not the template's to choose",
            ),
            (
                pod(json!({"restartPolicy": "OnFailure"})),
                "spec.template.spec.restartPolicy: Unsupported value: \"OnFailure\": supported values: \"Never\"",
            ),
            (
                pod(json!({"restartPolicy": 3})),
                "spec.template.spec.restartPolicy: Invalid value: 3: must be a string",
            ),
            (
                pod(json!({"schedulingGates": {}})),
                "spec.template.spec.schedulingGates: Invalid value: {}: must be an array",
            ),
            (
                pod(json!({"schedulingGates": ["x"]})),
                "spec.template.spec.schedulingGates[0]: Invalid value: \"x\": must be an object with a name",
            ),
            (
                pod(
                    json!({"schedulingGates": [{"name": "cnat.programming-kubernetes.info/armed"}]}),
                ),
                "spec.template.spec.schedulingGates[0].name: Forbidden: gates of this name are the operator's",
            ),
            (
                json!({"template": {"metadata": {"labels": {"cnat.programming-kubernetes.info/at-uid": "x"}}}}),
                "spec.template.metadata.labels[cnat.programming-kubernetes.info/at-uid]: Forbidden: the operator sets it",
            ),
            (
                json!({"template": {"metadata": {"labels": {"app.kubernetes.io/managed-by": "x"}}}}),
                "spec.template.metadata.labels[app.kubernetes.io/managed-by]: Forbidden: the operator sets it",
            ),
            (
                json!({"template": {"metadata": {"ownerReferences": [{}]}}}),
                "spec.template.metadata.ownerReferences: Forbidden: the operator sets it",
            ),
            (
                container(json!({"name": "at", "command": ["x"]})),
                "spec.template.spec.containers[0].command: Forbidden: spec.command and spec.shell say what this container runs",
            ),
            (
                container(json!({"name": "at", "args": ["x"]})),
                "spec.template.spec.containers[0].args: Forbidden: spec.command and spec.shell say what this container runs",
            ),
            (
                container(json!({"name": "at", "restartPolicy": "Always"})),
                "spec.template.spec.containers[0].restartPolicy: Forbidden: a command runs once and is never restarted",
            ),
            (
                container(json!({"name": "b", "image": "b:1", "restartPolicyRules": [{}]})),
                "spec.template.spec.containers[0].restartPolicyRules: Forbidden: a command runs once and is never restarted",
            ),
            (
                init(json!({"name": "b", "image": "b:1", "restartPolicy": "Never"})),
                "spec.template.spec.initContainers[0].restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
            (
                init(json!({"name": "b", "image": "b:1", "restartPolicyRules": []})),
                "spec.template.spec.initContainers[0].restartPolicyRules: Forbidden: a command runs once and is never restarted",
            ),
            (
                init(json!({"name": "at", "image": "b:1"})),
                "spec.template.spec.initContainers[0].name: Forbidden: the container that the operator adds has this name",
            ),
        ] {
            assert_eq!(faults(fields.clone()), [text], "{fields}");
        }
    }

    #[test]
    fn several_faults_are_all_named() {
        let found = faults(
            json!({"schedule": "soon", "command": "", "image": "a b", "shell": [],
            "activeDeadlineSeconds": 0, "template": {"spec": {"nodeName": "n", "restartPolicy": "Always"}}}),
        );
        assert_eq!(found.len(), 7, "{found:#?}");
    }

    #[test]
    fn a_name_is_short_enough_for_that_of_the_pod() {
        let good = spec(json!({}));
        assert_eq!(check(&"a".repeat(249), &good).faults, []);
        let found = check(&"a".repeat(250), &good).faults;
        assert_eq!(found[0].field, "metadata.name");
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn surprising_specs_cause_warnings() {
        let first = |fields: Value| warnings(fields).concat();
        assert_eq!(warnings(json!({})), Vec::<String>::new());
        assert!(first(json!({"schedule": "2026-04-12T09:59:59Z"})).contains("starts at once"));
        assert!(
            first(json!({"schedule": "2026-04-12T08:00:00Z", "ttlSecondsAfterFinished": 1}))
                .contains("is not started")
        );
        assert!(first(json!({"image": "bash"})).contains("neither tag nor digest"));
        assert!(
            first(json!({"schedule": "now", "ttlSecondsAfterFinished": 1})).contains("runs again")
        );
        assert!(first(json!({"schedule": "now + 999999 weeks"})).contains("never start"));
        assert!(first(json!({"startingDeadlineSeconds": 0})).contains("hardly ever"));
        assert!(
            first(json!({"activeDeadlineSeconds": 1, "template": {"spec": {"activeDeadlineSeconds": 2}}}))
                .contains("has no effect")
        );
    }

    #[test]
    fn containers_of_which_none_is_for_the_command_cause_a_warning() {
        let of = |spec: Value| warnings(json!({"template": {"spec": spec}}));
        let log = json!({"name": "log", "image": "l:1"});
        let found = of(json!({"containers": [log]}));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("none is named \"at\""), "{found:?}");
        for spec in [
            json!({}),
            json!({"containers": []}),
            json!({"initContainers": [log]}),
            json!({"containers": [log, {"name": "at"}]}),
        ] {
            assert_eq!(of(spec.clone()), [""; 0], "{spec}");
        }
    }

    fn update(phase: Option<Phase>, change: Value) -> (Vec<String>, Vec<String>) {
        let (old, new) = (spec(json!({})), spec(change));
        let none = BTreeMap::new();
        let of = |spec| Subject {
            name: "a",
            annotations: &none,
            created: Some(now()),
            spec,
        };
        let status = AtStatus {
            phase,
            ..AtStatus::default()
        };
        let found = AtRules::check_update(&of(&old), Some(&status), &of(&new));
        let faults = found.faults.iter().map(ToString::to_string).collect();
        (faults, found.warnings)
    }

    #[test]
    fn what_runs_cannot_be_changed_after_the_start() {
        let changes = [
            ("spec.schedule", json!({"schedule": "now"})),
            ("spec.command", json!({"command": "echo NO"})),
            ("spec.image", json!({"image": "x:1"})),
            ("spec.shell", json!({"shell": ["sh", "-c"]})),
            ("spec.template", json!({"template": {}})),
        ];
        for (field, change) in changes {
            assert_eq!(update(None, change.clone()).0, Vec::<String>::new());
            assert_eq!(
                update(Some(Phase::Pending), change.clone()).0,
                Vec::<String>::new()
            );
            for phase in [Phase::Running, Phase::Done] {
                assert_eq!(
                    update(Some(phase), change.clone()).0,
                    [format!("{field}: Forbidden: the command has started")]
                );
            }
        }
    }

    #[test]
    fn after_the_start_the_ttl_may_change_and_suspending_is_a_warning() {
        let ttl = json!({"ttlSecondsAfterFinished": 9, "startingDeadlineSeconds": null});
        let (faults, _) = update(Some(Phase::Running), ttl);
        assert_eq!(faults, Vec::<String>::new());
        // The defaulted deadline is not a change by the user.
        let ttl = json!({"ttlSecondsAfterFinished": 9});
        let nothing = (Vec::new(), Vec::new());
        assert_eq!(update(Some(Phase::Done), ttl), nothing);
        let deadline = json!({"startingDeadlineSeconds": 3600});
        assert_eq!(
            update(Some(Phase::Done), deadline).1,
            ["spec.startingDeadlineSeconds: has no effect once the pod was released"]
        );
        let (faults, warnings) = update(Some(Phase::Running), json!({"suspend": true}));
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(
            warnings,
            ["spec.suspend: has no effect now that the command has started"]
        );
        assert!(update(None, json!({"suspend": true})).1.is_empty());
    }

    fn record(
        old: Option<(&str, &[(&str, &str)])>,
        new: &str,
        forged: &[(&str, &str)],
        now: &str,
    ) -> Vec<Option<String>> {
        let map = |list: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            pairs.collect()
        };
        let old = old.map(|(text, notes)| (spec(json!({"schedule": text})), map(notes)));
        let (new, notes) = (spec(json!({"schedule": new})), map(forged));
        let recorded = AtRules::record(&Request {
            user: "ann",
            old: old.as_ref().map(|(spec, annotations)| Subject {
                name: "a",
                annotations,
                created: None,
                spec,
            }),
            new: Subject {
                name: "a",
                annotations: &notes,
                created: None,
                spec: &new,
            },
            now: instant(now),
        });
        assert_eq!(recorded[0].0, CREATED_BY);
        assert_eq!(recorded[1].0, SCHEDULE_SET_AT);
        recorded.into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn annotations_are_recorded_and_never_taken_from_the_client() {
        let some = |text: &str| Some(text.to_owned());
        let forged: &[_] = &[
            (CREATED_BY, "root"),
            (SCHEDULE_SET_AT, "1970-01-01T00:00:00Z"),
        ];
        let clock = "2026-04-12T10:00:00.1230001Z";
        // A creation.
        assert_eq!(record(None, "now", forged, clock), [some("ann"), None]);
        // An update that leaves the schedule alone.
        let kept: &[_] = &[
            (CREATED_BY, "bob"),
            (SCHEDULE_SET_AT, "2026-04-12T09:00:00.5Z"),
        ];
        assert_eq!(
            record(Some(("now", kept)), "now", forged, clock),
            [some("bob"), some("2026-04-12T09:00:00.5Z")]
        );
        assert_eq!(
            record(Some(("now", &[])), "now", forged, clock),
            [None, None]
        );
        // One that changes it: rounded up, never down.
        assert_eq!(
            record(Some(("now", kept)), "now + 1 hour", forged, clock),
            [some("bob"), some("2026-04-12T10:00:00.124Z")]
        );
        // To an instant, too: a command that was due before that is not late.
        assert_eq!(
            record(Some(("now", kept)), "2026-04-12T09:12:00Z", forged, clock),
            [some("bob"), some("2026-04-12T10:00:00.124Z")]
        );
    }

    #[test]
    fn a_relative_schedule_never_comes_early() {
        let created = instant("2026-04-12T10:00:00Z");
        let after = schedule::parse("now + 5 seconds").unwrap();
        // It may have been created at 10:00:00.999.
        assert_eq!(
            schedule_instant(after, Base::Created(created)),
            Some(instant("2026-04-12T10:00:06Z"))
        );
        assert_eq!(
            schedule_instant(Schedule::Now, Base::Created(created)),
            Some(created)
        );
        let notes = BTreeMap::from([(
            SCHEDULE_SET_AT.to_owned(),
            "2026-04-12T11:00:00.124Z".to_owned(),
        )]);
        assert_eq!(
            schedule_instant(after, base(&notes, created)),
            Some(instant("2026-04-12T11:00:05.124Z"))
        );
        let rubbish = BTreeMap::from([(SCHEDULE_SET_AT.to_owned(), "soon".to_owned())]);
        assert_eq!(base(&rubbish, created), Base::Created(created));
    }

    #[test]
    fn raw_specs_of_any_shape_are_validated_without_a_panic() {
        for raw in [
            json!(null),
            json!([]),
            json!("x"),
            json!({"shell": "x"}),
            json!({"template": [1]}),
            json!({"command": 7}),
            json!({"activeDeadlineSeconds": 1.5}),
        ] {
            assert!(
                decode_and_validate::<AtRules>("a", &BTreeMap::new(), &raw.to_string(), now())
                    .is_err(),
                "{raw}"
            );
        }
    }
}

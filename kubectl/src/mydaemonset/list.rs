//! `get` without a name: all objects, those first that need a user.

use std::io::{self, BufWriter, Write as _};

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use my_operator_mydaemonset::status::{
    AUTO_PAUSED, CANARY, COMPLETE, DEGRADED, INVALID, NO_ELIGIBLE_NODES, OUTSIDE_WINDOW,
    ROLLED_BACK, ROLLING_BACK, UNAVAILABLE, WAITING_FOR_APPROVAL,
};

use super::cluster;
use super::object::{Object, UNOBSERVED};
use crate::connection::{Connection, Failure};
use crate::terminal::{self, Style, Table};

/// The states that need a user, the worst first.
const TROUBLES: [(&str, Style); 7] = [
    (INVALID, Style::Bad),
    (AUTO_PAUSED, Style::Bad),
    (NO_ELIGIBLE_NODES, Style::Bad),
    (ROLLED_BACK, Style::Bad),
    (DEGRADED, Style::Bad),
    (UNAVAILABLE, Style::Warning),
    (WAITING_FOR_APPROVAL, Style::Warning),
];
/// The beginning of the state of a roll-out under way: `Rolling 37%`.
const ROLLING: &str = "Rolling";

/// How a state is shown.
pub(super) fn style(state: &str) -> Option<Style> {
    let trouble = TROUBLES.iter().find(|(known, _)| *known == state);
    match state {
        COMPLETE => Some(Style::Good),
        ROLLING_BACK | UNOBSERVED => Some(Style::Warning),
        _ => trouble.map(|(_, style)| *style),
    }
}

/// Prints the table of the namespace, or of all.
pub(super) async fn run(connection: &Connection, all_namespaces: bool) -> Result<u8, Failure> {
    let objects = cluster::objects(connection, all_namespaces).await?;
    if objects.is_empty() {
        return Ok(0);
    }
    let rows = objects.into_iter().map(Row::new).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    table(rows, all_namespaces).write(&mut out, terminal::width())?;
    out.flush()?;
    Ok(0)
}

/// What the table shows of an object.
struct Row {
    namespace: String,
    name: String,
    /// Nodes that should have a pod; that have one of the newest revision; that have an available one.
    counts: [Option<i32>; 3],
    state: String,
    image: String,
    reason: String,
}

impl Row {
    fn new(raw: DynamicObject) -> Self {
        let (namespace, name) = (raw.namespace().unwrap_or_default(), raw.name_any());
        match Object::decode(raw) {
            Ok(object) => {
                let status = &object.status;
                let counts = [
                    status.desired_number_scheduled,
                    status.updated_number_scheduled,
                    status.number_available,
                ];
                // Complete needs a reason only where the message names nodes without the revision, behind a semicolon.
                let is_plain = object.state() == COMPLETE && !object.reason().contains("; ");
                let reason = Some(object.reason()).filter(|_| !is_plain);
                Self {
                    namespace,
                    name,
                    counts,
                    state: object.state().to_owned(),
                    image: object.image(),
                    reason: reason.unwrap_or_default().to_owned(),
                }
            }
            // One that cannot be read does not hide the others.
            Err(reason) => Self {
                namespace,
                name,
                counts: [None; 3],
                state: INVALID.to_owned(),
                image: String::new(),
                reason,
            },
        }
    }

    /// The lower, the earlier in the table: what needs a user, what is under way, the rest.
    fn rank(&self) -> usize {
        let trouble = TROUBLES.iter().position(|(state, _)| *state == self.state);
        let goes_on = [CANARY, OUTSIDE_WINDOW, UNOBSERVED];
        let is_under_way =
            self.state.starts_with(ROLLING) || goes_on.contains(&self.state.as_str());
        trouble.unwrap_or(TROUBLES.len() + usize::from(!is_under_way))
    }
}

fn table(mut rows: Vec<Row>, all_namespaces: bool) -> Table {
    rows.sort_by_cached_key(|row| (row.rank(), row.namespace.clone(), row.name.clone()));
    let mut header = vec![
        "NAME",
        "DESIRED",
        "UP-TO-DATE",
        "AVAILABLE",
        "STATE",
        "IMAGE",
        "REASON",
    ];
    if all_namespaces {
        header.insert(0, "NAMESPACE");
    }
    let mut table = Table::new(&header);
    for row in rows {
        let count = |count: Option<i32>| count.map(|count| count.to_string()).unwrap_or_default();
        let mut cells = vec![row.name];
        cells.extend(row.counts.map(count));
        cells.extend([row.state, row.image, row.reason]);
        if all_namespaces {
            cells.insert(0, row.namespace);
        }
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn row(namespace: &str, name: &str, spec: &Value, status: &Value) -> Row {
        let object = json!({"metadata": {"namespace": namespace, "name": name, "generation": 2},
            "spec": spec, "status": status});
        Row::new(serde_json::from_value(object).unwrap())
    }

    fn of_state(name: &str, state: &str) -> Row {
        with_message(name, state, &format!("why {state}"))
    }

    fn with_message(name: &str, state: &str, message: &str) -> Row {
        let condition = json!({"type": "Progressing", "status": "False", "reason": "x",
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"observedGeneration": 2, "state": state, "desiredNumberScheduled": 3,
            "updatedNumberScheduled": 1, "numberAvailable": 2, "conditions": [condition]});
        row("shop", name, &json!({"image": "nginx:1.29"}), &status)
    }

    fn written(rows: Vec<Row>, all_namespaces: bool) -> String {
        let mut out = Vec::new();
        table(rows, all_namespaces).write(&mut out, None).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_needs_a_user_is_listed_first() {
        let states = [
            ("a", "Complete"),
            ("b", "Paused"),
            ("c", "Rolling 37%"),
            ("d", "Degraded"),
            ("e", "Unavailable"),
            ("f", "AutoPaused"),
            ("g", "Complete"),
            ("j", "Canary"),
            ("k", "WaitingForApproval"),
            ("l", "OutsideWindow"),
        ];
        let mut rows: Vec<Row> = states.map(|(name, state)| of_state(name, state)).into();
        // A status of an earlier spec, and an object that was stored without the schema.
        rows.push(row(
            "shop",
            "h",
            &json!({}),
            &json!({"observedGeneration": 1, "state": "Complete"}),
        ));
        rows.push(row("shop", "i", &json!({"image": 7}), &json!({})));
        let text = written(rows, false);
        let names: String = text
            .lines()
            .skip(1)
            .filter_map(|line| line.chars().next())
            .collect();
        assert_eq!(names, "ifdekchjlabg", "{text}");
    }

    #[test]
    fn a_row_has_the_counts_and_the_reason() {
        let rows = vec![
            of_state("web", "AutoPaused"),
            with_message("a", "Complete", "on all 3 nodes"),
            // Nodes that are down or cordoned and have no pod are not in the counts.
            with_message("b", "Complete", "on 3 of 4 nodes; cordoned: n"),
        ];
        assert_eq!(
            written(rows, false),
            "NAME   DESIRED   UP-TO-DATE   AVAILABLE   STATE        IMAGE        REASON\n\
             web    3         1            2           AutoPaused   nginx:1.29   why AutoPaused\n\
             a      3         1            2           Complete     nginx:1.29   <none>\n\
             b      3         1            2           Complete     nginx:1.29   on 3 of 4 nodes; cordoned: n\n"
        );
        let rows = vec![
            row("b", "web", &json!({}), &json!({})),
            row("a", "web", &json!({}), &json!({})),
        ];
        let text = written(rows, true);
        let namespaces: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(namespaces, ["NAMESPACE", "a", "b"]);
        assert!(
            text.contains("Unobserved   <none>   the operator has not seen this spec yet"),
            "{text}"
        );
    }
}

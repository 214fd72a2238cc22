//! `why`: for each node that is behind or has no available pod, the cause, since when, and what a person can do.
//!
//! [`read`] makes the requests, and [`facts`] keeps what is needed of each object. The causes are those that the operator
//! itself finds ([`my_operator_mydaemonset::why`]), of a closed list. [`mod@explain`] has the words, and [`pod`] is
//! a closer look at pods than the operator takes, which keeps less of them.

mod explain;
mod facts;
mod pod;
mod read;
mod reason;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};

use chrono::{SecondsFormat, Utc};
use clap::Args;
use serde_json::json;

use super::cluster;
use super::object::{Object, parse_name};
use crate::connection::{Connection, Failure, Kind};
use crate::print;
use crate::terminal::{Table, harmless, note};
use explain::{Finding, Report, explain};
use facts::Fleet;
pub(super) use read::fleet;

/// How a node is spelled before its name.
pub(crate) const NODE: Kind = Kind {
    words: &["node", "nodes", "no"],
    mistake: "is not a node",
};

/// Why nodes are behind.
#[derive(Args, Debug)]
pub(super) struct Why {
    /// The object
    #[arg(value_name = "NAME")]
    name: String,
    /// Only this node, even if no pod of the object belongs there
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Print it for programs
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json"])]
    output: Option<String>,
}

/// What is not known without a right to list objects, each with the objects.
const MISSING: [(&str, &str); 4] = [
    (
        "nodes",
        "what is wrong with nodes, and nodes without a pod, are not shown",
    ),
    (
        "controllerrevisions",
        "where pods of older revisions belong is not known",
    ),
    ("pods", "only the state of the object is shown"),
    (
        "events",
        "why volumes are not mounted, and what probes answered, is not shown",
    ),
];

impl Why {
    pub(super) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let name = parse_name(&self.name)?;
        let node = self.node.as_deref().map(|node| NODE.name(node));
        let node = node.transpose()?;
        let object = cluster::get(connection, &name).await?;
        let (report, fleet) = find(connection, &object, node).await?;
        if let Some(node) = node.filter(|_| !report.is_known && !fleet.lacks("pods")) {
            let hint = if fleet.lacks("nodes") {
                ", or you may not see it"
            } else {
                ""
            };
            return Err(format!("there is no node {node:?}{hint}").into());
        }
        let missing = MISSING.into_iter().filter(|(kind, _)| fleet.lacks(kind));
        let mut out = BufWriter::new(io::stdout().lock());
        if self.output.is_some() {
            json(&object, &report, missing.map(|(kind, _)| kind), &mut out)?;
        } else {
            for (kind, text) in missing {
                note(&format!("You may not list {kind}: {text}."))?;
            }
            if fleet.lacks("pods") {
                let stands = format!("{}: {}", object.state(), object.reason());
                writeln!(out, "{}", harmless(&stands))?;
            } else {
                text(&object, &report, node, &mut out)?;
            }
        }
        out.flush()?;
        Ok(0)
    }
}

/// Reads what is needed, and finds the causes.
async fn find(
    connection: &Connection,
    object: &Object,
    node: Option<&str>,
) -> Result<(Report, Fleet), Failure> {
    let now = Utc::now();
    let mut fleet = fleet(connection, &object.name, now).await?;
    if fleet.lacks("pods") {
        return Ok((Report::default(), fleet));
    }
    let report = explain(object, &fleet, node, now);
    let reasons = report.findings.iter().map(|finding| &finding.reason);
    let unclear = reasons.filter(|reason| pod::wants_events(reason.cause));
    let unclear: BTreeSet<&str> = unclear.filter_map(|it| it.pod.as_deref()).collect();
    let views = fleet.pods.iter().map(|pod| &pod.view);
    let uids = views.filter(|view| unclear.contains(view.name.as_str()) && !view.is_ready());
    let uids: BTreeSet<String> = uids.map(|view| view.uid.clone()).collect();
    if uids.is_empty() {
        return Ok((report, fleet));
    }
    read::warnings(connection, &uids, &mut fleet).await?;
    Ok((explain(object, &fleet, node, now), fleet))
}

/// The table, or a sentence where nothing is to be explained.
fn text(
    object: &Object,
    report: &Report,
    node: Option<&str>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let revision = object.revision();
    match (report.findings.as_slice(), node) {
        ([], Some(node)) => writeln!(
            out,
            "node {node} has an available pod of revision {revision}, and no other"
        )?,
        ([], None) if report.done == 0 => writeln!(out, "no node has or needs a pod")?,
        ([], None) => writeln!(
            out,
            "{0} of {0} nodes have an available pod of revision {revision}, and no other",
            report.done
        )?,
        (findings, _) => table(findings).write(out, None)?,
    }
    if node.is_none() && report.ineligible > 0 {
        let (count, name, namespace) = (report.ineligible, &object.name, &object.namespace);
        note(&format!(
            "nodes that get no pod by their labels or taints: {count}; to see why: kubectl mydaemonset why {name} <node> -n {namespace}"
        ))?;
    }
    Ok(())
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(&["NODE", "CAUSE", "SINCE", "WHAT TO DO"]);
    for finding in findings {
        let reason = &finding.reason;
        let since = reason
            .since
            .map(|since| since.to_rfc3339_opts(SecondsFormat::Secs, true));
        let advice = match reason.message.as_str() {
            "" => finding.advice.clone(),
            message => format!("{} ({message})", finding.advice),
        };
        table.row([
            finding.node.clone(),
            // The names of the causes are what scripts match, as reasons of conditions.
            format!("{:?}", reason.cause),
            since.unwrap_or_default(),
            advice,
        ]);
    }
    table
}

/// Everything that was found out.
fn json(
    object: &Object,
    report: &Report,
    missing: impl Iterator<Item = &'static str>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let answer = json!({
        "namespace": object.namespace,
        "name": object.name,
        // The newest one.
        "revision": object.revision(),
        "state": object.state(),
        "reason": object.reason(),
        "nodes": report.findings,
        // How many nodes are not in `nodes`, since nothing is to be explained, or no pod belongs there.
        "availableNodes": report.done,
        "ineligibleNodes": report.ineligible,
        // The kinds of objects that the user may not list.
        "forbidden": missing.collect::<Vec<_>>(),
    });
    print::json(&answer, out)
}

//! Whether all replicas run, and the same image; and which version that is.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fetch::Fetched;
use super::installation::manager;
use super::report::Finding;

const CHECK: &str = "replicas";

/// The finding on the Deployment and its pods.
pub(super) fn judge(deployment: &Value, pods: &Fetched<Vec<Value>>) -> Finding {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    let (ready, updated) = (count("readyReplicas"), count("updatedReplicas"));
    if wanted == 0 {
        return Finding::failed(CHECK, "the Deployment is scaled to 0")
            .action("kubectl scale the Deployment to 2");
    }
    let seen = count("observedGeneration")
        >= deployment["metadata"]["generation"]
            .as_i64()
            .unwrap_or_default();
    let pods = match pods {
        Ok(pods) => pods,
        Err(unread) if ready >= wanted && updated >= wanted && seen => {
            return unread.finding(CHECK);
        }
        Err(_) => &Vec::new(),
    };
    let mut images = BTreeSet::new();
    images.extend(
        pods.iter()
            .filter_map(|pod| manager(&pod["spec"])?["image"].as_str()),
    );
    if images.len() > 1 {
        let images: Vec<&str> = images.into_iter().collect();
        let text = format!("replicas run different images: {}", images.join(", "));
        return Finding::failed(CHECK, text)
            .action("wait for the roll-out, or look at it: kubectl rollout status");
    }
    if ready < wanted || updated < wanted || count("replicas") > wanted || !seen {
        let why = pods.iter().find_map(trouble);
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let text = format!("{ready} of {wanted} ready, {updated} of this revision{why}");
        return Finding::failed(CHECK, text)
            .action("kubectl describe the pods, and look at their log");
    }
    let builds: BTreeSet<&str> = pods.iter().filter_map(build).collect();
    if builds.len() > 1 {
        let text = "replicas run different builds under one name of an image";
        return Finding::failed(CHECK, text)
            .action("use a tag of its own for each build, or a digest");
    }
    let image = images
        .first()
        .copied()
        .unwrap_or("an image that was not seen");
    Finding::passed(
        CHECK,
        format!("{ready} of {wanted} ready, all with {image}"),
    )
}

/// Why a pod is not ready: what its container waits for, or how it ended, or why it has no node.
fn trouble(pod: &Value) -> Option<String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let status = &pod["status"];
    let containers = status["containerStatuses"].as_array().into_iter().flatten();
    for container in containers {
        for state in [
            &container["state"]["waiting"],
            &container["state"]["terminated"],
        ] {
            if let Some(reason) = state["reason"].as_str() {
                let message = state["message"].as_str().unwrap_or_default();
                return Some(format!("{name}: {reason} {message}"));
            }
        }
    }
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let unscheduled =
        conditions.find(|it| it["type"] == "PodScheduled" && it["status"] == "False")?;
    let message = unscheduled["message"].as_str().unwrap_or_default();
    Some(format!("{name}: {message}"))
}

/// The digest of the manager's image, as the node has it.
fn build(pod: &Value) -> Option<&str> {
    let name = manager(&pod["spec"])?["name"].as_str();
    let mut containers = pod["status"]["containerStatuses"].as_array()?.iter();
    let container = containers.find(|it| it["name"].as_str() == name)?;
    container["imageID"].as_str().filter(|id| !id.is_empty())
}

/// The version of the Deployment against that of this program, which knows only its own CRDs and rights.
pub(super) fn skew(deployment: &Value, image: Option<&str>) -> Finding {
    const CHECK: &str = "version";
    let own = env!("CARGO_PKG_VERSION");
    let label = deployment["metadata"]["labels"]["app.kubernetes.io/version"].as_str();
    match image.and_then(tag).or(label).and_then(version) {
        Some(other) if other == own => Finding::passed(CHECK, format!("{own}, as this program")),
        Some(other) => {
            let text = format!("the Deployment runs {other}, and this program is {own}");
            Finding::warning(CHECK, text)
                .action(format!("check with {other}, or finish the upgrade"))
        }
        None => Finding::passed(
            CHECK,
            format!("this program is {own}; the image has no version in its name"),
        ),
    }
}

/// The tag of an image's name. A port of the registry is none.
fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next()?.rsplit('/').next()?;
    name.split_once(':').map(|(_, tag)| tag)
}

/// The text without its `v`, if it is a version.
fn version(text: &str) -> Option<&str> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts = text.splitn(3, '.');
    let number = |part: Option<&str>| part.is_some_and(|it| it.parse::<u32>().is_ok());
    let numbers = number(parts.next()) && number(parts.next());
    (numbers
        && parts
            .next()
            .is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit())))
    .then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::report::Level;

    fn deployment(ready: i64) -> Value {
        json!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 2},
            "status": {"observedGeneration": 2, "replicas": 2, "readyReplicas": ready, "updatedReplicas": 2},
        })
    }

    fn pod(image: &str, id: &str) -> Value {
        json!({
            "metadata": {"name": "pod"},
            "spec": {"containers": [{"name": "manager", "image": image}]},
            "status": {"containerStatuses": [{"name": "manager", "imageID": id, "state": {}}]},
        })
    }

    #[test]
    fn replicas_are_ready_and_the_same() {
        let mut pulling = pod("a:1", "");
        pulling["status"]["containerStatuses"][0]["state"] =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}});
        let mut scaled = deployment(0);
        scaled["spec"]["replicas"] = 0.into();
        let mut unseen = deployment(2);
        unseen["metadata"]["generation"] = 3.into();
        for (deployment, pods, level, words) in [
            (
                deployment(2),
                vec![pod("a:1", "x"), pod("a:1", "x")],
                Level::Passed,
                "2 of 2 ready, all with a:1",
            ),
            (
                deployment(2),
                vec![pod("a:1", "x"), pod("a:2", "y")],
                Level::Failed,
                "different images: a:1, a:2",
            ),
            (
                deployment(2),
                vec![pod("a:1", "x"), pod("a:1", "y")],
                Level::Failed,
                "different builds",
            ),
            (
                deployment(0),
                vec![pulling],
                Level::Failed,
                "0 of 2 ready, 2 of this revision: pod: ImagePullBackOff not found",
            ),
            (scaled, vec![], Level::Failed, "scaled to 0"),
            (unseen, vec![pod("a:1", "x")], Level::Failed, "2 of 2 ready"),
        ] {
            let finding = judge(&deployment, &Ok(pods));
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.message.contains(words), "{finding:?}");
        }
    }

    #[test]
    fn versions_are_read_from_tags() {
        let own = format!(
            "registry:5000/team/my-operator:v{}",
            env!("CARGO_PKG_VERSION")
        );
        let none = json!({});
        assert_eq!(skew(&none, Some(&own)).level, Level::Passed);
        let other = skew(&none, Some("registry:5000/my-operator:9.0.0@sha256:ab"));
        assert_eq!(other.level, Level::Warning);
        assert!(other.message.contains("runs 9.0.0"), "{other:?}");
        for image in [
            "registry:5000/my-operator",
            "my-operator:latest",
            "my-operator:1",
        ] {
            assert_eq!(skew(&none, Some(image)).level, Level::Passed, "{image}");
        }
        let labelled = json!({"metadata": {"labels": {"app.kubernetes.io/version": "9.0.0"}}});
        assert_eq!(skew(&labelled, Some("x@sha256:ab")).level, Level::Warning);
    }
}

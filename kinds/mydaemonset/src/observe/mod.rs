//! What is watched of nodes and pods: little, since a cluster may have many thousands of each.

pub mod node;
pub mod pod;
pub mod predecessor;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::node::WatchedNode;
    use super::pod::WatchedPod;

    #[test]
    fn a_time_in_the_year_10000_does_not_block_the_watch() {
        let far = "10000-01-01T00:59:59Z";
        let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": far});
        let node = json!({"metadata": {"name": "n"}, "status": {"conditions": [condition]}});
        serde_json::from_str::<WatchedNode>(&node.to_string()).unwrap();
        let ended = json!({"state": {"terminated": {"reason": "Error", "finishedAt": far}}});
        let pod = json!({"metadata": {"name": "p"},
            "status": {"conditions": [condition], "containerStatuses": [ended], "startTime": far}});
        serde_json::from_str::<WatchedPod>(&pod.to_string()).unwrap();
    }
}

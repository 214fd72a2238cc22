// Where Kubernetes lets a pod run: for each line {"pod": ..., "node": ...} of standard input, what its own
// helpers say of node selector and affinity, and of the node's taints. See ../README.md.
package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"my-operator/tests/oracle/lines"
)

type question struct {
	Pod  v1.Pod  `json:"pod"`
	Node v1.Node `json:"node"`
}

// What the built-in DaemonSet controller asks as well (NodeShouldRunDaemonPod in pkg/controller/daemon).
type answer struct {
	// Node selector and required node affinity match. Errors of parsing are ignored, as they are there.
	Matches bool `json:"matches"`
	// The keys of the taints that are not tolerated.
	NoExecute  []string `json:"noExecute"`
	NoSchedule []string `json:"noSchedule"`
}

// The gate TaintTolerationComparisonOperators is alpha, and off, in 1.36.
const comparisonOperators = false

func judge(asked *question) answer {
	matches, _ := nodeaffinity.GetRequiredNodeAffinity(&asked.Pod).Match(&asked.Node)
	out := answer{Matches: matches, NoExecute: []string{}, NoSchedule: []string{}}
	for _, taint := range asked.Node.Spec.Taints {
		one := []v1.Taint{taint}
		tolerations := asked.Pod.Spec.Tolerations
		if _, found := corev1.FindMatchingUntoleratedTaint(klog.Background(), one, tolerations, nil, comparisonOperators); !found {
			continue
		}
		switch taint.Effect {
		case v1.TaintEffectNoExecute:
			out.NoExecute = append(out.NoExecute, taint.Key)
		case v1.TaintEffectNoSchedule:
			out.NoSchedule = append(out.NoSchedule, taint.Key)
		}
	}
	return out
}

func main() {
	lines.Answer(judge)
}

// Package v1beta1 has MyDaemonSet as the programs here use it.
package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GroupVersion is that of MyDaemonSet.
var GroupVersion = schema.GroupVersion{Group: "apps.zhongmingmao.io", Version: "v1beta1"}

// MyDaemonSet has the fields of the CRD.
type MyDaemonSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MyDaemonSetSpec   `json:"spec,omitempty"`
	Status MyDaemonSetStatus `json:"status,omitempty"`
}

type MyDaemonSetSpec struct {
	Image                string                  `json:"image,omitempty"`
	Template             *corev1.PodTemplateSpec `json:"template,omitempty"`
	UpdateStrategy       *UpdateStrategy         `json:"updateStrategy,omitempty"`
	MinReadySeconds      *int32                  `json:"minReadySeconds,omitempty"`
	RevisionHistoryLimit *int32                  `json:"revisionHistoryLimit,omitempty"`
}

type UpdateStrategy struct {
	Type          string         `json:"type,omitempty"`
	RollingUpdate *RollingUpdate `json:"rollingUpdate,omitempty"`
}

type RollingUpdate struct {
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	MaxSurge       *intstr.IntOrString `json:"maxSurge,omitempty"`
	Partition      *int32              `json:"partition,omitempty"`
	Paused         *bool               `json:"paused,omitempty"`
	AutoPause      *AutoPause          `json:"autoPause,omitempty"`
	OnFailure      string              `json:"onFailure,omitempty"`
}

type AutoPause struct {
	Enabled       *bool  `json:"enabled,omitempty"`
	MaxFailures   *int32 `json:"maxFailures,omitempty"`
	WindowSeconds *int32 `json:"windowSeconds,omitempty"`
}

type MyDaemonSetStatus struct {
	ObservedGeneration     int64              `json:"observedGeneration,omitempty"`
	AvailableReplicas      int32              `json:"availableReplicas,omitempty"`
	DesiredNumberScheduled int32              `json:"desiredNumberScheduled,omitempty"`
	CurrentNumberScheduled int32              `json:"currentNumberScheduled,omitempty"`
	NumberMisscheduled     int32              `json:"numberMisscheduled,omitempty"`
	NumberReady            int32              `json:"numberReady,omitempty"`
	UpdatedNumberScheduled int32              `json:"updatedNumberScheduled,omitempty"`
	NumberAvailable        int32              `json:"numberAvailable,omitempty"`
	NumberUnavailable      int32              `json:"numberUnavailable,omitempty"`
	CurrentRevision        string             `json:"currentRevision,omitempty"`
	UpdateRevision         string             `json:"updateRevision,omitempty"`
	Conditions             []metav1.Condition `json:"conditions,omitempty"`
}

type MyDaemonSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MyDaemonSet `json:"items"`
}

func (in *MyDaemonSet) DeepCopyObject() runtime.Object {
	out := in.copy()
	return &out
}

func (in *MyDaemonSet) copy() MyDaemonSet {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	spec := &out.Spec
	if spec.Template != nil {
		spec.Template = spec.Template.DeepCopy()
	}
	spec.UpdateStrategy = same(spec.UpdateStrategy)
	if spec.UpdateStrategy != nil {
		rolling := same(spec.UpdateStrategy.RollingUpdate)
		if rolling != nil {
			rolling.MaxUnavailable = same(rolling.MaxUnavailable)
			rolling.MaxSurge = same(rolling.MaxSurge)
			rolling.Partition = same(rolling.Partition)
			rolling.Paused = same(rolling.Paused)
			autoPause := same(rolling.AutoPause)
			if autoPause != nil {
				autoPause.Enabled = same(autoPause.Enabled)
				autoPause.MaxFailures = same(autoPause.MaxFailures)
				autoPause.WindowSeconds = same(autoPause.WindowSeconds)
			}
			rolling.AutoPause = autoPause
		}
		spec.UpdateStrategy.RollingUpdate = rolling
	}
	spec.MinReadySeconds = same(spec.MinReadySeconds)
	spec.RevisionHistoryLimit = same(spec.RevisionHistoryLimit)
	out.Status.Conditions = append([]metav1.Condition(nil), in.Status.Conditions...)
	return out
}

func same[T any](in *T) *T {
	if in == nil {
		return nil
	}
	out := *in
	return &out
}

func (in *MyDaemonSetList) DeepCopyObject() runtime.Object {
	out := *in
	out.Items = make([]MyDaemonSet, len(in.Items))
	for i := range in.Items {
		out.Items[i] = in.Items[i].copy()
	}
	return &out
}

package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// At has the fields of the CRD that it looks at.
type At struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AtSpec   `json:"spec,omitempty"`
	Status AtStatus `json:"status,omitempty"`
}

type AtSpec struct {
	Schedule string                  `json:"schedule,omitempty"`
	Command  string                  `json:"command,omitempty"`
	Image    string                  `json:"image,omitempty"`
	Shell    []string                `json:"shell,omitempty"`
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`
	Suspend  *bool                   `json:"suspend,omitempty"`

	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	ActiveDeadlineSeconds   *int64 `json:"activeDeadlineSeconds,omitempty"`
	TTLSecondsAfterFinished *int64 `json:"ttlSecondsAfterFinished,omitempty"`
}

type AtStatus struct {
	Phase string `json:"phase,omitempty"`
}

type AtList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []At `json:"items"`
}

func (in *At) DeepCopyObject() runtime.Object {
	out := in.copy()
	return &out
}

func (in *At) copy() At {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Shell = append([]string(nil), in.Spec.Shell...)
	if in.Spec.Template != nil {
		out.Spec.Template = in.Spec.Template.DeepCopy()
	}
	for _, pair := range [][2]**int64{
		{&out.Spec.StartingDeadlineSeconds, &in.Spec.StartingDeadlineSeconds},
		{&out.Spec.ActiveDeadlineSeconds, &in.Spec.ActiveDeadlineSeconds},
		{&out.Spec.TTLSecondsAfterFinished, &in.Spec.TTLSecondsAfterFinished},
	} {
		if *pair[1] != nil {
			value := **pair[1]
			*pair[0] = &value
		}
	}
	if in.Spec.Suspend != nil {
		suspend := *in.Spec.Suspend
		out.Spec.Suspend = &suspend
	}
	return out
}

func (in *AtList) DeepCopyObject() runtime.Object {
	out := *in
	out.Items = make([]At, len(in.Items))
	for i := range in.Items {
		out.Items[i] = in.Items[i].copy()
	}
	return &out
}

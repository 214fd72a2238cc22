// Command controller-runtime is a small webhook as kubebuilder lays it out.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"my-operator/benches/peers/controller-runtime/v1beta1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func main() {
	var port int
	var certificates, probes, metrics string
	flag.IntVar(&port, "webhook-port", 9443, "where the webhooks are served")
	flag.StringVar(&certificates, "webhook-cert-path", "", "the folder of tls.crt and tls.key")
	flag.StringVar(&probes, "health-probe-bind-address", ":8081", "where probes are served")
	flag.StringVar(&metrics, "metrics-bind-address", ":8080", "where metrics are served")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	if err := run(port, certificates, probes, metrics); err != nil {
		ctrl.Log.Error(err, "failed")
		os.Exit(1)
	}
}

func run(port int, certificates, probes, metrics string) error {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(v1beta1.GroupVersion, &v1beta1.MyDaemonSet{})
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: metrics},
		HealthProbeBindAddress: probes,
		WebhookServer: webhook.NewServer(webhook.Options{
			Host:    "127.0.0.1",
			Port:    port,
			CertDir: certificates,
		}),
	})
	if err != nil {
		return err
	}
	err = ctrl.NewWebhookManagedBy(manager, &v1beta1.MyDaemonSet{}).
		WithDefaulter(defaulter{}).
		WithValidator(validator{}).
		Complete()
	if err != nil {
		return err
	}
	if err := manager.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

type defaulter struct{}

func (defaulter) Default(_ context.Context, set *v1beta1.MyDaemonSet) error {
	spec := &set.Spec
	fill(&spec.MinReadySeconds, 0)
	fill(&spec.RevisionHistoryLimit, 10)
	fill(&spec.UpdateStrategy, v1beta1.UpdateStrategy{})
	strategy := spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = "RollingUpdate"
	}
	if strategy.Type == "RollingUpdate" {
		fill(&strategy.RollingUpdate, v1beta1.RollingUpdate{})
		rolling := strategy.RollingUpdate
		fill(&rolling.MaxUnavailable, intstr.FromInt32(1))
		fill(&rolling.MaxSurge, intstr.FromInt32(0))
		fill(&rolling.Partition, 0)
		fill(&rolling.Paused, false)
		fill(&rolling.AutoPause, v1beta1.AutoPause{})
		fill(&rolling.AutoPause.Enabled, true)
		fill(&rolling.AutoPause.WindowSeconds, 600)
		if rolling.OnFailure == "" {
			rolling.OnFailure = "Pause"
		}
	}
	return nil
}

func fill[T any](place **T, value T) {
	if *place == nil {
		*place = &value
	}
}

type validator struct{}

func (validator) ValidateCreate(_ context.Context, set *v1beta1.MyDaemonSet) (admission.Warnings, error) {
	return nil, validate(set)
}

func (validator) ValidateUpdate(_ context.Context, _, set *v1beta1.MyDaemonSet) (admission.Warnings, error) {
	return nil, validate(set)
}

func (validator) ValidateDelete(context.Context, *v1beta1.MyDaemonSet) (admission.Warnings, error) {
	return nil, nil
}

func validate(set *v1beta1.MyDaemonSet) error {
	var faults field.ErrorList
	spec := field.NewPath("spec")
	if set.Spec.Image == "" {
		faults = append(faults, field.Required(spec.Child("image"), "image is required"))
	} else if err := checkImage(spec.Child("image"), set.Spec.Image); err != nil {
		faults = append(faults, err)
	}
	if set.Spec.Template != nil {
		containers := spec.Child("template", "spec", "containers")
		for i, container := range set.Spec.Template.Spec.Containers {
			if container.Image == "" {
				continue
			}
			if err := checkImage(containers.Index(i).Child("image"), container.Image); err != nil {
				faults = append(faults, err)
			}
		}
	}
	if len(faults) > 0 {
		kind := v1beta1.GroupVersion.WithKind("MyDaemonSet").GroupKind()
		return apierrors.NewInvalid(kind, set.Name, faults)
	}
	return nil
}

func checkImage(path *field.Path, image string) *field.Error {
	if _, err := reference.ParseNormalizedNamed(image); err != nil {
		return field.Invalid(path, image, err.Error())
	}
	return nil
}

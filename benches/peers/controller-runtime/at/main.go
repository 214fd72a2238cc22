// Command at is a small At as kubebuilder lays it out: it creates the pod when the time has come,
// and writes what it did into the status afterwards. A crash between the two, or a stale cache, is
// met by the name of the pod and nothing else.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	var probes, metrics string
	var workers int
	flag.StringVar(&probes, "health-probe-bind-address", ":8081", "where probes are served")
	flag.StringVar(&metrics, "metrics-bind-address", ":8080", "where metrics are served")
	flag.IntVar(&workers, "workers", 1, "how many Ats are reconciled at a time")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	if err := run(probes, metrics, workers); err != nil {
		ctrl.Log.Error(err, "failed")
		os.Exit(1)
	}
}

func run(probes, metrics string, workers int) error {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	scheme.AddKnownTypes(groupVersion, &At{}, &AtList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: metrics},
		HealthProbeBindAddress: probes,
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&At{}).
		Owns(&corev1.Pod{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&reconciler{Client: manager.GetClient(), scheme: scheme})
	if err != nil {
		return err
	}
	if err := manager.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

type reconciler struct {
	client.Client
	scheme *runtime.Scheme
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	at := &At{}
	if err := r.Get(ctx, request.NamespacedName, at); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch at.Status.Phase {
	case "":
		return ctrl.Result{}, r.setPhase(ctx, at, "PENDING")
	case "DONE":
		return ctrl.Result{}, nil
	}
	instant, err := time.Parse(time.RFC3339Nano, at.Spec.Schedule)
	if err != nil {
		return ctrl.Result{}, nil
	}
	if wait := time.Until(instant); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: at.Namespace, Name: at.Name + "-pod"}
	err = r.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		pod, err = r.pod(at)
		if err == nil {
			err = r.Create(ctx, pod)
		}
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	phase := "RUNNING"
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		phase = "DONE"
	}
	return ctrl.Result{}, r.setPhase(ctx, at, phase)
}

func (r *reconciler) setPhase(ctx context.Context, at *At, phase string) error {
	if at.Status.Phase == phase {
		return nil
	}
	at.Status.Phase = phase
	return r.Status().Update(ctx, at)
}

func (r *reconciler) pod(at *At) (*corev1.Pod, error) {
	image := at.Spec.Image
	if image == "" {
		image = "bash:5.3"
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: at.Name + "-pod", Namespace: at.Namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name:    "at",
				Image:   image,
				Command: []string{"bash", "-c", at.Spec.Command},
			}},
		},
	}
	return pod, ctrl.SetControllerReference(at, pod, r.scheme)
}

var groupVersion = schema.GroupVersion{Group: "cnat.programming-kubernetes.info", Version: "v1alpha1"}

// Command mydaemonset is a small MyDaemonSet as kubebuilder lays it out: each reconcile lists the
// nodes and its pods from the cache, and creates the missing pods. It never rolls out a change: a
// roll-out that keeps to its limits although the cache lags behind is not a small program.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"my-operator/benches/peers/controller-runtime/v1beta1"
)

func main() {
	var probes, metrics string
	var creates int
	flag.StringVar(&probes, "health-probe-bind-address", ":8081", "where probes are served")
	flag.StringVar(&metrics, "metrics-bind-address", ":8080", "where metrics are served")
	flag.IntVar(&creates, "creates", 1, "how many pods are created at a time")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	if err := run(probes, metrics, creates); err != nil {
		ctrl.Log.Error(err, "failed")
		os.Exit(1)
	}
}

const ownerIndex = ".metadata.controller"

func run(probes, metrics string, creates int) error {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	scheme.AddKnownTypes(v1beta1.GroupVersion, &v1beta1.MyDaemonSet{}, &v1beta1.MyDaemonSetList{})
	metav1.AddToGroupVersion(scheme, v1beta1.GroupVersion)
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: metrics},
		HealthProbeBindAddress: probes,
	})
	if err != nil {
		return err
	}
	owner := func(pod client.Object) []string {
		if controller := metav1.GetControllerOf(pod); controller != nil {
			return []string{string(controller.UID)}
		}
		return nil
	}
	err = manager.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, ownerIndex, owner)
	if err != nil {
		return err
	}
	r := &reconciler{Client: manager.GetClient(), scheme: scheme, creates: creates}
	err = ctrl.NewControllerManagedBy(manager).
		For(&v1beta1.MyDaemonSet{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(noHeartbeats)).
		Complete(r)
	if err != nil {
		return err
	}
	if err := manager.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

var noHeartbeats = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return belongs(e.ObjectOld.(*corev1.Node)) != belongs(e.ObjectNew.(*corev1.Node))
}}

// Cordoned nodes and those with taints of their own get no pod.
func belongs(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key != corev1.TaintNodeNotReady && taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return false
		}
	}
	return !node.Spec.Unschedulable
}

type reconciler struct {
	client.Client
	scheme  *runtime.Scheme
	creates int
}

// all asks for every MyDaemonSet.
func (r *reconciler) all(ctx context.Context, _ client.Object) []ctrl.Request {
	sets := &v1beta1.MyDaemonSetList{}
	if err := r.List(ctx, sets); err != nil {
		return nil
	}
	var requests []ctrl.Request
	for i := range sets.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&sets.Items[i])})
	}
	return requests
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	set := &v1beta1.MyDaemonSet{}
	if err := r.Get(ctx, request.NamespacedName, set); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	nodes := &corev1.NodeList{}
	if err := r.List(ctx, nodes); err != nil {
		return ctrl.Result{}, err
	}
	pods := &corev1.PodList{}
	own := client.MatchingFields{ownerIndex: string(set.UID)}
	if err := r.List(ctx, pods, client.InNamespace(set.Namespace), own); err != nil {
		return ctrl.Result{}, err
	}
	byNode := map[string]*corev1.Pod{}
	for i := range pods.Items {
		byNode[pods.Items[i].Spec.NodeName] = &pods.Items[i]
	}
	status := v1beta1.MyDaemonSetStatus{
		ObservedGeneration: set.Generation,
		Conditions:         set.Status.Conditions,
	}
	var missing []*corev1.Pod
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if !belongs(node) {
			continue
		}
		status.DesiredNumberScheduled++
		if pod := byNode[node.Name]; pod == nil {
			pod, err := r.pod(set, node.Name)
			if err != nil {
				return ctrl.Result{}, err
			}
			missing = append(missing, pod)
		} else {
			status.CurrentNumberScheduled++
			status.UpdatedNumberScheduled++
			if isReady(pod) {
				status.NumberReady++
			}
		}
	}
	status.NumberAvailable = status.NumberReady
	status.AvailableReplicas = status.NumberReady
	status.NumberUnavailable = status.DesiredNumberScheduled - status.NumberReady
	if err := r.create(ctx, missing); err != nil {
		return ctrl.Result{}, err
	}
	if reflect.DeepEqual(status, set.Status) {
		return ctrl.Result{}, nil
	}
	set.Status = status
	return ctrl.Result{}, r.Status().Update(ctx, set)
}

// create creates pods concurrently. A pod that the cache does not show yet may exist already.
func (r *reconciler) create(ctx context.Context, pods []*corev1.Pod) error {
	var group sync.WaitGroup
	failures := make([]error, len(pods))
	places := make(chan struct{}, r.creates)
	for i, pod := range pods {
		places <- struct{}{}
		group.Go(func() {
			if err := r.Create(ctx, pod); !apierrors.IsAlreadyExists(err) {
				failures[i] = err
			}
			<-places
		})
	}
	group.Wait()
	return errors.Join(failures...)
}

func (r *reconciler) pod(set *v1beta1.MyDaemonSet, node string) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      node + "-" + set.Name,
			Namespace: set.Namespace,
			Labels: map[string]string{
				"app.kubernetes.io/managed-by":     "controller-runtime",
				"apps.zhongmingmao.io/mydaemonset": set.Name,
			},
		},
		Spec: corev1.PodSpec{
			NodeName:    node,
			Tolerations: tolerations,
			Containers:  []corev1.Container{{Name: "app", Image: set.Spec.Image}},
		},
	}
	return pod, ctrl.SetControllerReference(set, pod, r.scheme)
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Those of the built-in DaemonSet.
var tolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// Command go-client runs a command once, as an At, and waits for its end: go run . NAME COMMAND [TEMPLATE], where
// TEMPLATE is a pod template in JSON. docs/clients.md explains it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
)

var resource = schema.GroupVersionResource{
	Group: "cnat.programming-kubernetes.info", Version: "v1alpha1", Resource: "ats"}

// At has what this program reads of an At. Never write it back: the fields that it lacks would be lost.
type At struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		Result   string `json:"result"`
		ExitCode *int32 `json:"exitCode"`
	} `json:"status"`
}

func read(object runtime.Object) (at At) {
	fields := object.(*unstructured.Unstructured).Object
	check(runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &at))
	return at
}

// ending says how it ended. There is no exit code where the command did not run to an end.
func (at At) ending() string {
	if at.Status.ExitCode == nil {
		return fmt.Sprintf("%s: %s", at.Name, at.Status.Result)
	}
	return fmt.Sprintf("%s: %s, exit code %d", at.Name, at.Status.Result, *at.Status.ExitCode)
}

// check ends the program if there is an error. A rejection names every fault, each with its field.
func check(err error) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			fmt.Printf("%s: %s\n", cause.Field, cause.Message)
		}
	}
	if err != nil {
		log.Fatalln("error:", err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func main() {
	if len(os.Args) < 3 {
		log.Fatalln("usage: go-client NAME COMMAND [TEMPLATE]")
	}
	name, spec := os.Args[1], map[string]any{"schedule": "now", "command": os.Args[2]}
	if len(os.Args) > 3 {
		var template map[string]any
		check(json.Unmarshal([]byte(os.Args[3]), &template))
		spec["template"] = template
	}
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{})
	// That of the kubeconfig's context or, in a cluster, of the pod.
	namespace, _, err := kubeconfig.Namespace()
	check(err)
	ats := must(dynamic.NewForConfig(must(kubeconfig.ClientConfig()))).Resource(resource).Namespace(namespace)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()

	created := must(ats.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(),
		"kind":       "At",
		"metadata":   map[string]any{"name": name, "labels": map[string]any{"example.com/client": "go"}},
		"spec":       spec,
	}}, metav1.CreateOptions{}))
	fmt.Println("created", name)

	only := "metadata.name=" + name
	watched := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = only
			return ats.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only
			return ats.Watch(ctx, options)
		},
	}
	isOver := func(event watch.Event) (bool, error) {
		at := read(event.Object)
		if at.UID != created.GetUID() {
			return false, nil // an earlier or later one of the same name
		}
		if event.Type == watch.Deleted {
			return false, fmt.Errorf("%s was deleted before its end", name)
		}
		return at.Status.Result != "", nil
	}
	event := must(watchtools.UntilWithSync(ctx, watched, &unstructured.Unstructured{}, nil, isOver))
	fmt.Println(read(event.Object).ending())

	all := must(ats.List(ctx, metav1.ListOptions{LabelSelector: "example.com/client=go"}))
	for _, item := range all.Items {
		fmt.Println("listed", read(&item).ending())
	}
}

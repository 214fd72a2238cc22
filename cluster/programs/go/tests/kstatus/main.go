// Command kstatus says what Helm 4 and Flux make of objects: for each JSON object of standard input, the status that
// their module of kstatus computes, as a JSON string. It is in the Go module that Helm is built from, so that it has
// Helm's version of it, and Go has compiled nearly all of it. tests/oracle/gitops.rs asks it.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	log.SetFlags(0)
	encoder := json.NewEncoder(os.Stdout)
	for decoder := json.NewDecoder(os.Stdin); ; {
		var text json.RawMessage
		if err := decoder.Decode(&text); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(text); err != nil {
			log.Fatal(err)
		}
		result, err := status.Compute(&object)
		if err != nil {
			log.Fatal(err)
		}
		if err := encoder.Encode(result.Status); err != nil {
			log.Fatal(err)
		}
	}
}

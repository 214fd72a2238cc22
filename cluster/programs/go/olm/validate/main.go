// Command validate runs the validators of operator-framework/api on the bundle in a folder: those that
// `operator-sdk bundle validate` runs, and its suite operatorframework with good-practices. It prints each finding in a
// line, and ends with code 1 if there is an error or a warning.
package main

import (
	"fmt"
	"os"
	"regexp"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
)

// A rule of a role names no version of its API. The validator of removed APIs takes each one for events.k8s.io as one
// for v1beta1, which was removed; the operator uses v1.
var versionless = regexp.MustCompile(
	`Migrate the API\(s\) for events: \(\[("ClusterServiceVersion\.Spec\.InstallStrategy\.StrategySpec\.\w+\[\d+\]\.Rules\[\d+\]" ?)+\]\)$`)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: validate BUNDLE")
		os.Exit(2)
	}
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	validators := append(interfaces.Validators{
		validation.OperatorHubV2Validator,
		validation.StandardCapabilitiesValidator,
		validation.StandardCategoriesValidator,
		validation.ObjectValidator,
		validation.AlphaDeprecatedAPIsValidator,
		validation.GoodPracticesValidator,
	}, validation.DefaultBundleValidators...)
	findings := 0
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, finding := range append(result.Errors, result.Warnings...) {
			if versionless.MatchString(finding.Error()) {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s: %s\n", result.Name, finding.Error())
			findings++
		}
	}
	if findings > 0 {
		os.Exit(1)
	}
	fmt.Printf("%s: %d objects, no error and no warning\n", bundle.Name, len(bundle.Objects))
}

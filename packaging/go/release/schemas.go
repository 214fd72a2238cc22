// Package release pins the programs that a release is made with (the tool lines of go.mod), and the schemas of SBOMs.
package release

// The module has the JSON schemas of CycloneDX; the import keeps it in go.mod.
import _ "github.com/CycloneDX/cyclonedx-go"

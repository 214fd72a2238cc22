// What the kubelet would say of image strings: each with the verdict of ParseNormalizedNamed.
//
// The strings are the rows of picked.jsonl, one for each rule, and a few thousand that a seeded
// generator makes from the grammar and then damages. See README.md.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strings"

	// The kubelet links these for its image parser (pkg/util/parsers), and a digest whose hash is not
	// linked is refused as unknown.
	_ "crypto/sha256"
	_ "crypto/sha512"

	"github.com/distribution/reference"
)

// A row of the table. Without an error, the parts as the module normalises them.
type row struct {
	Image  string `json:"image"`
	Error  string `json:"error,omitempty"`
	Domain string `json:"domain,omitempty"`
	Path   string `json:"path,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Digest string `json:"digest,omitempty"`
}

func judge(image string) row {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return row{Image: image, Error: err.Error()}
	}
	out := row{Image: image, Domain: reference.Domain(named), Path: reference.Path(named)}
	if tagged, ok := named.(reference.Tagged); ok {
		out.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		out.Digest = digested.Digest().String()
	}
	return out
}

// The generator. Its sequence is fixed by the seed: the table must come out the same everywhere.
type maker struct{ random *rand.Rand }

func (m maker) one(list ...string) string   { return list[m.random.IntN(len(list))] }
func (m maker) chance(n int) bool           { return m.random.IntN(n) == 0 }
func (m maker) between(least, most int) int { return least + m.random.IntN(most-least+1) }

// Text of that length out of the characters of an alphabet.
func (m maker) text(alphabet string, length int) string {
	var out strings.Builder
	for range length {
		out.WriteByte(alphabet[m.random.IntN(len(alphabet))])
	}
	return out.String()
}

const (
	lower = "abcdefghijklmnopqrstuvwxyz0123456789"
	hex   = "0123456789abcdef"
	mixed = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

func (m maker) component() string {
	out := m.text(lower, m.between(1, 6))
	for m.chance(3) {
		out += m.one(".", "_", "__", "-", "--", "-----") + m.text(lower, m.between(1, 4))
	}
	return out
}

func (m maker) host() string {
	var out string
	switch m.random.IntN(8) {
	case 0:
		out = "localhost"
	case 1:
		out = m.one("docker.io", "index.docker.io", "registry-1.docker.io", "gcr.io", "registry.k8s.io")
	case 2:
		out = "[" + m.text("0123456789abcdefABCDEF:", m.between(1, 12)) + "]"
	case 3:
		out = m.one("127.0.0.1", "10.0.0.255", "999.1.1.1", "0.0")
	case 4:
		out = m.text(mixed, m.between(1, 8))
	default:
		out = m.text(mixed, m.between(1, 5))
		for range m.between(1, 3) {
			out += m.one(".", ".", "-", "--") + m.text(mixed, m.between(1, 5))
		}
	}
	if m.chance(2) {
		out += ":" + m.one("0", "80", "5000", "65535", "65536", "99999", "00443", "123456789012")
	}
	return out
}

func (m maker) path() string {
	if m.chance(25) {
		// About the longest.
		return m.text(lower, m.between(1, 6)) + strings.Repeat("/a", m.between(118, 128)) + m.text(lower, m.between(0, 9))
	}
	out := m.component()
	for m.chance(2) {
		out += "/" + m.component()
	}
	return out
}

func (m maker) tag() string {
	if m.chance(12) {
		return m.text(mixed, m.between(126, 130))
	}
	return m.text(mixed+"_", 1) + m.text(mixed+"_.-", m.between(0, 10))
}

func (m maker) digest() string {
	switch m.random.IntN(6) {
	case 0:
		return "sha512:" + m.text(hex, m.between(127, 129))
	case 1:
		return "sha384:" + m.text(hex, m.between(95, 97))
	case 2:
		return m.one("md5", "sha1", "sha224", "blake3", "sha512+b64", "SHA256", "sha256.x") + ":" + m.text(hex, m.either(32, 64))
	default:
		return "sha256:" + m.text(hex, m.between(63, 65))
	}
}

func (m maker) either(a, b int) int {
	if m.chance(2) {
		return a
	}
	return b
}

func (m maker) reference() string {
	out := m.path()
	if m.chance(2) {
		out = m.host() + "/" + out
	}
	if m.chance(2) {
		out += ":" + m.tag()
	}
	if m.chance(4) {
		out += "@" + m.digest()
	}
	return out
}

// The pieces that matter to the grammar, and some that never should.
var pieces = []string{
	".", "..", "_", "__", "___", "-", "--", "/", "//", ":", "::", "@", "@@", "[", "]", "A", "Z", "0", " ", "\t",
	"\n", "\x00", "\x7f", "\u00e4", "\u202e", "\ufeff", "\u4e2d", "\U0001F433", "%", "+", "#", "?", "\\", "\"",
	"localhost", "localhost/", "docker.io/", "index.docker.io/", "library/", "sha256:", "@sha256:", ":latest",
	"https://", "0x", "g",
}

// One small damage.
func (m maker) damage(text string) string {
	runes := []rune(text)
	at := m.random.IntN(len(runes) + 1)
	before, after := string(runes[:at]), string(runes[at:])
	switch m.random.IntN(6) {
	case 0: // Something in between.
		return before + m.one(pieces...) + after
	case 1: // One character less.
		if after != "" {
			return before + string(runes[at+1:])
		}
		return before
	case 2: // Cut off.
		return m.one(before, after)
	case 3: // Another character.
		if after != "" {
			return before + m.one(pieces...) + string(runes[at+1:])
		}
		return before + m.one(pieces...)
	case 4: // One capital letter.
		if after != "" {
			return before + strings.ToUpper(string(runes[at])) + string(runes[at+1:])
		}
		return strings.ToUpper(before)
	default: // Twice the same.
		return before + after[:len(after)/2] + after
	}
}

func (m maker) image() string {
	switch m.random.IntN(10) {
	case 0: // Pieces in any order.
		out := ""
		for range m.between(1, 7) {
			out += m.one(m.one(pieces...), m.text(lower, m.between(1, 3)), m.component())
		}
		return out
	case 1: // Anything visible.
		return m.text(mixed+".-_/:@[]", m.between(0, 9))
	case 2, 3, 4, 5:
		out := m.reference()
		for range m.between(1, 2) {
			out = m.damage(out)
		}
		return out
	default:
		return m.reference()
	}
}

func picked(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var images []string
	for decoder := json.NewDecoder(file); ; {
		var image string
		if err := decoder.Decode(&image); errors.Is(err, io.EOF) {
			return images, nil
		} else if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
}

func main() {
	log.SetFlags(0)
	images, err := picked("picked.jsonl")
	if err != nil {
		log.Fatal(err)
	}
	const generated, seed = 6000, 5
	m := maker{rand.New(rand.NewPCG(seed, seed))}
	seen := map[string]bool{}
	for _, image := range images {
		seen[image] = true
	}
	for end := len(images) + generated; len(images) < end; {
		image := m.image()
		// What is not UTF-8 is no JSON, so no such string can be in an object.
		image = strings.ToValidUTF8(image, "\ufffd")
		if !seen[image] {
			seen[image] = true
			images = append(images, image)
		}
	}
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for _, image := range images {
		if err := encoder.Encode(judge(image)); err != nil {
			log.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

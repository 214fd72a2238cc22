// Package lines is how the programs are asked that answer while the tests run: a JSON value a line.
package lines

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
)

// Answer writes the answer to each question of standard input to standard output, in their order.
func Answer[Q, A any](judge func(*Q) A) {
	log.SetFlags(0)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for decoder := json.NewDecoder(bufio.NewReader(os.Stdin)); ; {
		var asked Q
		if err := decoder.Decode(&asked); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			log.Fatal(err)
		}
		if err := encoder.Encode(judge(&asked)); err != nil {
			log.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

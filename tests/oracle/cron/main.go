// What Kubernetes makes of cron schedules: for each line {"spec": ..., "zone": ..., "from": ...} of standard
// input, whether the API server takes the two in a CronJob, and when its controller would start it the next
// three times. See ../README.md.
package main

import (
	"errors"
	"fmt"
	"log"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"

	"my-operator/tests/oracle/lines"
)

type question struct {
	Spec string `json:"spec"`
	Zone string `json:"zone"`
	// When to begin, as of RFC 3339.
	From time.Time `json:"from"`
}

type answer struct {
	// Why the API server refuses them; empty when it does not.
	Error string `json:"error"`
	// Fewer than three when there is no next time within five years.
	Next []time.Time `json:"next"`
}

// Some texts let the module panic, and the API server takes that for an error
// (ParseCronScheduleWithPanicRecovery in pkg/util/parsers).
func parse(spec string) (schedule cron.Schedule, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("invalid schedule format: %v", fault)
		}
	}()
	return cron.ParseStandard(spec)
}

// As validateScheduleFormat and validateTimeZone in pkg/apis/batch/validation do it. The latter also knows
// which characters a name may have; what has others is the name of no zone.
func validate(asked *question) error {
	if _, err := parse(asked.Spec); err != nil {
		return err
	}
	if strings.Contains(asked.Spec, "TZ") {
		return errors.New("cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	}
	if asked.Zone == "" || strings.EqualFold(asked.Zone, "Local") {
		return errors.New("timeZone must be an explicit time zone")
	}
	_, err := time.LoadLocation(asked.Zone)
	return err
}

func judge(asked *question) answer {
	out := answer{Next: []time.Time{}}
	if err := validate(asked); err != nil {
		out.Error = err.Error()
		return out
	}
	// formatSchedule in pkg/controller/cronjob.
	schedule, err := parse(fmt.Sprintf("TZ=%s %s", asked.Zone, asked.Spec))
	if err != nil {
		log.Fatal(err)
	}
	for at := asked.From; len(out.Next) < 3; {
		at = schedule.Next(at)
		if at.IsZero() {
			break
		}
		out.Next = append(out.Next, at.UTC())
	}
	return out
}

func main() {
	lines.Answer(judge)
}

package crash

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var (
	proofFor    = flag.Duration("for", 0, "run the proof of the package for this long")
	proofReport = flag.String("report", "", "write the result of the proof into this file")
)

// Report is the result of a part of the proof, as test/proof reads it.
type Report struct {
	Part        string         `json:"part"`
	Failed      bool           `json:"failed"` // also for another reason than its effects: the numbers may lack a round
	Seed        uint64         `json:"seed"`
	Rounds      int            `json:"rounds"`
	Seconds     float64        `json:"seconds"`
	Effects     int            `json:"effects"`
	Lost        int            `json:"lost"`
	Repeated    int            `json:"repeated"`   // after their record, or never wanted
	Unrecorded  int            `json:"unrecorded"` // repeated before their record
	OutOfOrder  int            `json:"out_of_order"`
	TakeOverP50 float64        `json:"take_over_p50"` // in seconds
	TakeOverP99 float64        `json:"take_over_p99"`
	TakeOvers   int            `json:"take_overs"`
	Faults      map[string]int `json:"faults"`
}

// Proof runs rounds of a part of the proof on three servers until the time of -for has passed, and writes their sum to the file of
// -report. Without -for the test is skipped. A round gets the generator of its choices and the time at which it stops to accept work: it
// injects faults until then, lets what it accepted come to an end, and judges its effect log. The test fails for what is lost, repeated
// after its record or out of order, and when nothing was accepted or no fault injected.
func Proof(t *testing.T, part string, round func(t *testing.T, on *Servers, r *rand.Rand, until time.Time) Result) {
	t.Helper()
	if *proofFor == 0 {
		t.Skip("a part of the proof: ./run proof")
	}
	s := Seed(t)
	report := Report{Part: part, Seed: s}
	defer func() {
		report.Failed = t.Failed()
		write(t, report)
	}()
	began := time.Now()
	var sum Result
	// A round of some minutes at most: a longer log needs memory of the judge, and servers that are new find other faults.
	for end := began.Add(*proofFor); time.Now().Before(end) && !t.Failed(); {
		report.Rounds++
		until := time.Now().Add(min(time.Until(end), 3*time.Minute))
		t.Run("round", func(t *testing.T) {
			sum.Add(round(t, ThreeServers(t), rand.New(rand.NewPCG(s, uint64(report.Rounds))), until)) //nolint:gosec // repeatable
		})
	}
	check.ErrorIs(t, conclude(sum), nil)
	report.Seconds = time.Since(began).Seconds()
	report.Effects, report.Unrecorded, report.Faults = sum.Wanted-len(sum.Lost), sum.Unrecorded, sum.Faults
	report.Lost, report.OutOfOrder = len(sum.Lost), len(sum.OutOfOrder)
	report.Repeated = len(sum.Repeated) + len(sum.Unwanted)
	if report.TakeOvers = len(sum.TakeOvers); report.TakeOvers > 0 {
		report.TakeOverP50 = percentile(sum.TakeOvers, 0.50).Seconds()
		report.TakeOverP99 = percentile(sum.TakeOvers, 0.99).Seconds()
	}
}

// conclude returns why a result proves nothing, or proves the contrary.
func conclude(sum Result) error {
	if sum.Wanted == 0 || len(sum.Faults) == 0 {
		return fmt.Errorf("%d effects and faults %v prove nothing: give it more time", sum.Wanted, sum.Faults)
	}
	return sum.Err()
}

// percentile returns a percentile of times that are sorted, by the nearest rank.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

func write(t *testing.T, r Report) {
	t.Helper()
	if *proofReport == "" {
		t.Logf("%+v", r)
		return
	}
	data := check.Must(json.Marshal(r))(t)
	check.OK(t, os.WriteFile(*proofReport, slices.Concat(data, []byte("\n")), 0o600))
}

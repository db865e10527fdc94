package readback

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunsSpanSmallGaps(t *testing.T) {
	t.Parallel()
	var refs []Ref
	for _, seq := range []uint64{1, 2, 6, 11, 600, 601, 1112, 1113} {
		refs = append(refs, Ref{Seq: seq})
	}
	long := make([]Ref, readSpan+1)
	for i := range long {
		long[i].Seq = uint64(i + 1)
	}
	var got []string
	for _, run := range append(runs(refs), runs(long)...) {
		got = append(got, fmt.Sprint(run[0].Seq, "-", run[len(run)-1].Seq))
	}
	want := []string{"1-6", "11-11", "600-601", "1112-1113", "1-512", "513-513"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(runs(nil)) != 0 {
		t.Error("there is a run of nothing")
	}
}

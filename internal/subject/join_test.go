package subject_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestJoin(t *testing.T) {
	t.Parallel()
	check.Equal(t, check.Must(subject.Join("jobs", subject.Name("priority", "high"), subject.ID("job", "a.b")))(t), "jobs.high.=YS5i",
		"joined")
	check.Equal(t, check.Must(subject.Join("", subject.ID("job", "j"), subject.ID("job", ">")))(t), "j.=Pg", "without a prefix")
	for name, test := range map[string]struct {
		part subject.Part
		want error
	}{
		"an empty id":         {subject.ID("job", ""), subject.ErrEmpty},
		"a long id":           {subject.ID("job", strings.Repeat("x", subject.MaxID+1)), subject.ErrTooLong},
		"a name with a dot":   {subject.Name("job", "a.b"), subject.ErrMalformed},
		"a wildcard":          {subject.Name("job", ">"), subject.ErrMalformed},
		"a name that is long": {subject.Name("job", strings.Repeat("x", subject.MaxName+1)), subject.ErrMalformed},
	} {
		joined, err := subject.Join("jobs", test.part)
		check.That(t, joined == "" && errors.Is(err, test.want) && strings.HasPrefix(err.Error(), "job: "), "%s: %q, %v", name, joined, err)
	}
}

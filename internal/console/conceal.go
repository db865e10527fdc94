package console

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// concealed replaces each value that concealSecrets removes.
const concealed = "(hidden)"

// messages are the types of the messages of the services, by their subjects.
var messages = []struct {
	subjects string
	of       reflect.Type
}{
	{contracts.EnrichJobsSubjects, reflect.TypeFor[contracts.EnrichJob]()},
	{contracts.EventsSubjects, reflect.TypeFor[struct {
		UserID        string                  `json:"user_id"       wire:"private"`
		RecipientType contracts.RecipientType `json:"recipientType"`
		Recipients    []contracts.Recipient   `json:"recipients"    wire:"private"`
	}]()},
	{contracts.ImportJobsSubjects, reflect.TypeFor[contracts.ImportJob]()},
	{"notify.plan.>", reflect.TypeFor[struct {
		Entries []contracts.Recipient `json:"entries"`
	}]()},
	{"notify.send.>", reflect.TypeFor[contracts.Notification]()},
}

// suspect matches the names of members that are personal or secret where no type marks them: in payloads, and in the jobs of other
// programs.
var suspect = lazyregexp.New(`(?i)address|authorization|cookie|email|password|phone|recipient|secret|token|(owner|user)[_-]?id|key$`)

// concealSecrets removes personal and secret members from the decoded JSON of a message, so that operators may see the rest. The type of
// the messages on the subject marks these members by `wire:"private"` at its fields. Where there is no type, the names of members decide.
// The secrets of URLs and the addresses of people are removed from texts. concealSecrets changes value, and returns the names of the
// removed members.
func concealSecrets(subjectOf string, value any) (shown any, hidden []string) {
	var of reflect.Type
	for _, m := range messages {
		if subject.Matches(m.subjects, subjectOf) {
			of = m.of
		}
	}
	names := map[string]bool{}
	shown = conceal(value, of, names)
	return shown, slices.Sorted(maps.Keys(names))
}

func conceal(value any, of reflect.Type, names map[string]bool) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			inner, private := memberOf(of, name)
			if private && member != nil {
				names[name], v[name] = true, concealed
				continue
			}
			v[name] = conceal(member, inner, names)
		}
	case []any:
		if of != nil && of.Kind() == reflect.Slice && of != reflect.TypeFor[json.RawMessage]() {
			of = of.Elem()
		}
		for i := range v {
			v[i] = conceal(v[i], of, names)
		}
	case string:
		return redact.People(v)
	}
	return value
}

// memberOf returns the type of a member, nil if its type does not know the member, and reports whether the member is to be removed.
func memberOf(of reflect.Type, name string) (inner reflect.Type, private bool) {
	if of != nil && of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of != nil && of.Kind() == reflect.Map {
		return of.Elem(), false
	}
	if of != nil && of.Kind() == reflect.Struct {
		for f := range of.Fields() {
			if known, _, _ := strings.Cut(f.Tag.Get("json"), ","); known == name {
				return f.Type, slices.Contains(strings.Split(f.Tag.Get("wire"), ","), "private")
			}
		}
	}
	return nil, suspect.MatchString(name)
}

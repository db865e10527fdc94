package contracts_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/contracts/internal/render"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// channels returns the streams of the described channels, by address.
func channels(t *testing.T) map[string]string {
	t.Helper()
	var doc struct {
		Channels map[string]struct {
			Address string `json:"address"`
			Stream  string `json:"x-stream"`
		} `json:"channels"`
	}
	files := check.Must(render.Files(root))(t)
	check.OK(t, json.Unmarshal(files["pkg/contracts/asyncapi.json"], &doc))
	all := map[string]string{}
	for _, c := range doc.Channels {
		all[c.Address] = c.Stream
	}
	return all
}

var parameter = regexp.MustCompile(`\{[a-zA-Z_]+\}`)

// covers reports whether a filter of subjects selects a subject.
func covers(filter, subject string) bool {
	pattern := regexp.QuoteMeta(filter)
	pattern = strings.ReplaceAll(strings.ReplaceAll(pattern, `\*`, `[^.]+`), ">", ".+")
	return regexp.MustCompile("^" + pattern + "$").MatchString(subject)
}

// Every subject of every stream and bucket is described, and every channel is one of its stream, or a change of its bucket.
func TestEveryStreamIsDescribed(t *testing.T) {
	t.Parallel()
	all := channels(t)
	for _, config := range contracts.Assets(contracts.AssetOptions{}) {
		filters := slices.Clone(config.Subjects)
		if config.RePublish != nil {
			filters = append(filters, config.RePublish.Destination)
		}
		for _, filter := range filters {
			found := false
			for address, stream := range all {
				if stream == config.Name && covers(filter, parameter.ReplaceAllString(address, "x")) {
					found = true
				}
			}
			check.That(t, found, "no channel is on %s of stream %s", filter, config.Name)
		}
		for address, stream := range all {
			sample := parameter.ReplaceAllString(address, "x")
			check.That(t, stream != config.Name || slices.ContainsFunc(filters, func(f string) bool { return covers(f, sample) }),
				"%s is no subject of stream %s, which has %v", address, stream, filters)
		}
	}
}

// The functions that make the subjects of messages make those that are described.
func TestSubjectsAreMadeAsDescribed(t *testing.T) {
	t.Parallel()
	must := func(subject string, err error) string { return check.Must(subject, err)(t) }
	all := channels(t)
	for address, subject := range map[string]string{
		"$KV.directory.{recipient_type}.{user_id}":                    "$KV.directory.CUSTOMER.u",
		"events.{aggregate_type}.{event_type}":                        must(contracts.EventSubject("a", "b")),
		"jobs.enrich.{provider}.{place_id}":                           must(contracts.EnrichJobSubject("wolt", "p.1")),
		"jobs.import.{priority}.{job_id}":                             must(contracts.ImportJobSubject("high", "j")),
		"notify.send.{channel}.{recipient_type}.{user_id}.{event_id}": must(contracts.NotifySendSubject("push", "CUSTOMER", "u", "e")),
	} {
		check.That(t, all[address] != "" && covers(parameter.ReplaceAllString(address, "*"), subject), "%s is not described as %s", subject,
			address)
	}
}

func TestDescriptionFollowsItsStandard(t *testing.T) {
	t.Parallel()
	// 3.0.0 of https://github.com/asyncapi/spec-json-schemas, under the Apache License 2.0.
	file := check.Must(os.Open(filepath.Join("testdata", "asyncapi-3.0.json.gz")))(t)
	defer file.Close()
	unpacked := check.Must(gzip.NewReader(file))(t)
	compiler := jsonschema.NewCompiler()
	check.OK(t, compiler.AddResource("standard.json", check.Must(jsonschema.UnmarshalJSON(unpacked))(t)))
	standard := check.Must(compiler.Compile("standard.json"))(t)
	content := check.Must(render.Files(root))(t)["pkg/contracts/asyncapi.json"]
	check.OK(t, standard.Validate(check.Must(jsonschema.UnmarshalJSON(bytes.NewReader(content)))(t)))
}

var subjectPattern = regexp.MustCompile(`^[-_=A-Za-z0-9]+(\.[-_=A-Za-z0-9]+)*$`)

// builders are all functions that put an id of the outside into a subject or a key.
var builders = map[string]struct {
	build  func(id string) (string, error)
	prefix string
	tokens int
}{
	"EnrichJobSubject":  {func(id string) (string, error) { return contracts.EnrichJobSubject("wolt", id) }, "jobs.enrich.wolt.", 4},
	"ImportJobSubject":  {func(id string) (string, error) { return contracts.ImportJobSubject("high", id) }, "jobs.import.high.", 4},
	"EventSubject":      {func(id string) (string, error) { return contracts.EventSubject(id, id) }, "events.", 3},
	"NotifySendSubject": {func(id string) (string, error) { return contracts.NotifySendSubject("email", "CUSTOMER", id, id) }, "notify.send.email.CUSTOMER.", 6},
	"EnrichEntryKey":    {func(id string) (string, error) { return contracts.EnrichEntryKey("wolt", id) }, "wolt.", 2},
	"InboxKey":          {func(id string) (string, error) { return contracts.InboxKey("CUSTOMER", id, id) }, "CUSTOMER.", 3},
}

func TestSubjectsAndKeysTakeAnyID(t *testing.T) {
	t.Parallel()
	ids := []string{
		"ChIJ123", "..", ".", "a.b", "*", ">", " ", "\t", "\x00", "a/b", `a\b`, "מסעדה", "\xff", "$KV.x", "=", "=YQ", "\u202e",
		strings.Repeat("é", contracts.MaxID/2),
	}
	for name, builder := range builders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(map[string]string)
			for _, id := range ids {
				subject, err := builder.build(id)
				if err != nil {
					t.Errorf("%q: %v", id, err)
					continue
				}
				check.That(t, subjectPattern.MatchString(subject) && strings.HasPrefix(subject, builder.prefix) &&
					strings.Count(subject, ".") == builder.tokens-1,
					"%q: got %q", id, subject)
				check.That(t, len(subject) <= kvlock.MaxKeyBytes, "%d bytes, at most %d", len(subject), kvlock.MaxKeyBytes)
				other, twice := seen[subject]
				check.That(t, !twice, "%q and %q are both %q", id, other, subject)
				seen[subject] = id
			}
		})
	}
}

func TestSubjectsAndKeysRefuseByName(t *testing.T) {
	t.Parallel()
	for name, builder := range builders {
		check.ErrorIs(t, check.Err(builder.build("")), contracts.ErrEmptyToken, name)
		_, err := builder.build(strings.Repeat("x", 10_000))
		check.That(t, errors.Is(err, contracts.ErrTokenTooLong) && len(err.Error()) <= 100,
			"%s: long: got %v", name, err)
	}
	for _, provider := range []string{"a.b", ">", "é", strings.Repeat("x", contracts.MaxName+1)} {
		_, err := contracts.EnrichEntryKey(provider, "p")
		check.That(t, errors.Is(err, contracts.ErrTokenMalformed) && strings.Contains(err.Error(), "provider"),
			"provider %q: got %v", provider, err)
	}
}

func TestMsgIDs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ got, want string }{
		"event":         {contracts.CloudEvent{Source: "/reservations", ID: "evt-001"}.MsgID(), "/reservations|evt-001"},
		"job":           {contracts.MsgID("job"), "job"},
		"bar in source": {contracts.CloudEvent{Source: "a|b", ID: "c"}.MsgID(), `a\|b|c`},
	} {
		check.That(t, test.got == test.want, "%s: got %q, want %q", name, test.got, test.want)
	}
	check.That(t, contracts.CloudEvent{Source: "a|b", ID: "c"}.MsgID() != contracts.CloudEvent{Source: "a", ID: "b|c"}.MsgID(),
		"two events share an id")
	for _, id := range []string{"", "a b", "é", "x\r\nNats-Rollup: all", strings.Repeat("x", 10_000), "sha256=x"} {
		got := contracts.MsgID(id)
		check.That(t, regexp.MustCompile(`^sha256=[\w-]{43}$`).MatchString(got), "%q: got %q", id, got)
	}
}

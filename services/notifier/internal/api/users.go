package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

const (
	// MaxUser bounds a request about one user.
	MaxUser = recipient.MaxDocument + 4<<10

	// MaxImport and maxEntries bound a request about many users.
	MaxImport  = 4 << 20
	maxEntries = 5000

	// lineMistakes and maxMistakes bound the reported mistakes of a line and of all lines, because the answer is one
	// message.
	lineMistakes, maxMistakes = 10, 1000

	// pageRecords is the number of records from which a page of users is made, unless the query has a limit.
	pageRecords = 8000
)

// UserRequest is a request about a user.
type UserRequest struct {
	// Body is the document to write.
	Body json.RawMessage `json:"body,omitempty"`

	// IfMatch is the ETag of the record to write over, "0" for no record and "*" for any. "" skips the check.
	IfMatch string `json:"if_match,omitempty"`

	// Merge reports whether Body is a merge patch.
	Merge bool `json:"merge,omitempty"`

	// RecipientType and UserID name the user.
	RecipientType contracts.RecipientType `json:"recipient_type"`
	UserID        string                  `json:"user_id"`

	// Own reports whether the user is the caller.
	Own bool `json:"-"`
}

// User is the document of a user.
type User struct {
	Body json.RawMessage `json:"body"`
	ETag string          `json:"etag"`
}

// MembersRequest is a request about the aggregates whose events concern a user. Add and Remove change them.
type MembersRequest struct {
	// Add are the memberships to add.
	Add []recipient.Member `json:"add,omitempty"`

	// Remove are the memberships to remove.
	Remove []recipient.Member `json:"remove,omitempty"`

	// RecipientType is the kind of recipient.
	RecipientType contracts.RecipientType `json:"recipient_type,omitempty"`

	// UserID is the id of the user.
	UserID string `json:"user_id,omitempty"`
}

// Validate implements [contracts.Message].
func (r MembersRequest) Validate() error {
	return recipient.ValidateMembers(map[string][]recipient.Member{"/add": r.Add, "/remove": r.Remove})
}

// Members has the aggregates whose events concern a user.
type Members struct {
	// Memberships are in the order of their types and ids.
	Memberships []recipient.Member `json:"memberships"`
}

// ReadUser returns a user. One round trip.
func (a *API) ReadUser(ctx context.Context, r UserRequest) (User, error) {
	if err := r.validate(); err != nil {
		return User{}, err
	}
	return user(a.cfg.Directory.Read(ctx, r.RecipientType, r.UserID))
}

// WriteUser changes a user, and returns it. Two round trips, and two to count a change of the user's own.
func (a *API) WriteUser(ctx context.Context, r UserRequest) (User, error) {
	revision, err := r.revision()
	if err != nil {
		return User{}, err
	}
	edit := recipient.Edit{Body: r.Body, Check: a.checkPreferences, Merge: r.Merge, Own: r.Own, Revision: revision}
	edit.Adds = sync.OnceValue(func() error {
		return a.within(ctx, "change", r.target(), bound{"new addresses of the user", r.UserID, maxChanges})
	})
	return user(a.cfg.Directory.Write(ctx, r.RecipientType, r.UserID, edit))
}

// checkPreferences refuses the channels and categories that an edit adds to preferences and that do not exist: they would have no effect.
// Names that were known once stay. Without any category in the rules, sources name their own.
func (a *API) checkPreferences(before, after contracts.Recipient) error {
	channels := append(slices.Collect(maps.Keys(a.cfg.Channels)), inapp.Name)
	slices.Sort(channels)
	known := map[string][]string{"category": a.cfg.Rules().CategoryNames(), "channel": channels}
	was := choices(before)
	var wrong contracts.Mistakes
	for _, c := range choices(after) {
		names := append(slices.Clone(known[c.what]), contracts.Anything)
		wrong.Add(len(names) > 1 && !slices.Contains(names, c.name) && !slices.Contains(was, c), c.path,
			fmt.Sprintf("names no %s: want %s", c.what, strings.Join(names, ", ")))
	}
	slices.SortStableFunc(wrong, func(a, b contracts.FieldError) int { return strings.Compare(a.Path, b.Path) })
	return wrong.In("Recipient")
}

// choice is a name in preferences: where, of a category or a channel, and which.
type choice struct{ path, what, name string }

func choices(r contracts.Recipient) (all []choice) {
	for category, on := range r.OptOut {
		all = append(all, choice{"/opt_out/" + category, "category", category})
		for _, channel := range on {
			all = append(all, choice{"/opt_out/" + category, "channel", channel})
		}
	}
	for category := range r.Mute {
		all = append(all, choice{"/mute/" + category, "category", category})
	}
	for category := range r.Digest {
		all = append(all, choice{"/digest/" + category, "category", category})
	}
	return all
}

// target names the user of a request in a record of the audit.
func (r *UserRequest) target() string {
	return fmt.Sprintf("user=%q type=%q", audit.User(r.UserID), r.RecipientType)
}

// DeleteUser removes a user: everything except the records of sent messages. No more messages are sent.
func (a *API) DeleteUser(ctx context.Context, r UserRequest) error {
	revision, err := r.revision()
	if err != nil {
		return err
	}
	return a.cfg.Audit.Do(ctx, "forget", r.target(), func(ctx context.Context) (int, error) {
		err := a.cfg.Directory.Remove(ctx, r.RecipientType, r.UserID, revision)
		if err != nil {
			return 0, err
		}
		return 1, nil
	})
}

// Members changes the memberships of a user, and returns all. Two round trips, and one for each change.
func (a *API) Members(ctx context.Context, r MembersRequest) (Members, error) {
	if err := errors.Join((contracts.Recipient{RecipientType: r.RecipientType, UserID: r.UserID}).Validate(), r.Validate()); err != nil {
		return Members{}, err
	}
	for _, m := range r.Add {
		if err := a.cfg.Directory.Join(ctx, r.RecipientType, r.UserID, m); err != nil {
			return Members{}, err
		}
	}
	for _, m := range r.Remove {
		if err := a.cfg.Directory.Leave(ctx, r.RecipientType, r.UserID, m); err != nil {
			return Members{}, err
		}
	}
	all, err := a.cfg.Directory.Memberships(ctx, r.RecipientType, r.UserID)
	return Members{Memberships: all}, err
}

func user(d recipient.Document, err error) (User, error) {
	return User{Body: d.Body, ETag: strconv.FormatUint(d.Revision, 10)}, err
}

func (r *UserRequest) validate() error {
	return contracts.Recipient{RecipientType: r.RecipientType, UserID: r.UserID}.Validate()
}

// revision returns the revision that a valid request names, nil for none.
func (r *UserRequest) revision() (*uint64, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	var n uint64 = recipient.Existing
	var err error
	switch r.IfMatch {
	case "":
		return nil, nil
	case "*":
	default:
		if n, err = strconv.ParseUint(r.IfMatch, 10, 64); err != nil || n == recipient.Existing {
			return nil, recipient.ErrChanged // not an ETag of this API
		}
	}
	return &n, nil
}

// checkLimit checks the limit of a page.
func checkLimit(m *contracts.Mistakes, n int) {
	m.Add(n < 0 || n > MaxLimit, "?limit", fmt.Sprintf("must be 1 to %d", MaxLimit))
}

// Imported is the outcome of a line of an import.
type Imported struct {
	Line          int                    `json:"line"`
	RecipientType string                 `json:"recipient_type,omitempty"`
	UserID        string                 `json:"user_id,omitempty"`
	Status        string                 `json:"status"` // stored, unchanged, invalid, or failed, which may be repeated
	Detail        string                 `json:"detail,omitempty"`
	Errors        []contracts.FieldError `json:"errors,omitempty"`
}

// Import stores the users in body, one JSON object in each line, and returns the outcome of each line. A field that a line does
// not name keeps its value. An invalid line does not prevent the storing of other lines.
func (a *API) Import(ctx context.Context, body []byte) ([]Imported, error) {
	lines := bytes.Split(bytes.TrimRight(body, "\r\n"), []byte("\n"))
	if len(lines) > maxEntries {
		return nil, contracts.Mistake("request", "", fmt.Sprintf("has %d lines, at most %d", len(lines), maxEntries))
	}
	var results []Imported
	var entries []recipient.Entry
	var at []int // the results of entries
	for i, line := range lines {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		result := Imported{Line: i + 1}
		_ = json.Unmarshal(line, &result) // the ids, as far as there are any
		result = Imported{Line: i + 1, RecipientType: result.RecipientType, UserID: result.UserID}
		e, err := recipient.ParseEntry(line)
		if err == nil {
			entries, at = append(entries, e), append(at, len(results))
		} else {
			result.fail(err)
		}
		results = append(results, result)
	}
	for i, done := range a.cfg.Directory.PutMany(ctx, entries) {
		result := &results[at[i]]
		switch {
		case done.Err != nil:
			result.fail(done.Err)
		case done.Changed:
			result.Status = "stored"
		default:
			result.Status = "unchanged"
		}
	}
	named := 0
	for i := range results {
		r := &results[i]
		r.Errors = r.Errors[:min(len(r.Errors), lineMistakes, maxMistakes-named)]
		if named += len(r.Errors); r.Status == "invalid" && len(r.Errors) == 0 {
			r.Detail = cmp.Or(r.Detail, "has mistakes that are not named: there are too many")
		}
	}
	return results, nil
}

// Lines writes results as lines of JSON.
func Lines(results []Imported) ([]byte, error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, r := range results {
		if err := lines.Encode(r); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func (r *Imported) fail(err error) {
	p := service.ErrorMapper(Problem).Of(err)
	r.Status, r.Detail, r.Errors = "failed", p.Detail, p.Errors
	if p.Status < 500 {
		r.Status = "invalid"
	}
	if len(p.Errors) > 0 {
		r.Detail = ""
	}
}

// UserQuery selects users.
type UserQuery struct {
	// Cursor is the next of the page before.
	Cursor string `json:"cursor" query:"cursor"`

	// Limit is the largest number of records that are looked at. Defaults to 8,000.
	Limit int `example:"10" json:"limit" jsonschema:"minimum=1,maximum=1000" query:"limit"`

	// RecipientType is the kind of recipient.
	RecipientType contracts.RecipientType `example:"CUSTOMER" json:"recipient_type" query:"type"`
}

// UserPage is a part of the directory, in the form of an import.
type UserPage struct {
	Next  string            `json:"next,omitempty"` // the cursor of the next page, "" when there is none
	Users []json.RawMessage `json:"users"`
}

// Users returns users in the form of an import. An empty page may have a next one, see [recipient.Directory.Page].
func (a *API) Users(ctx context.Context, q UserQuery) (UserPage, error) {
	from, err := parse(q.Cursor)
	if err != nil {
		return UserPage{}, err
	}
	var wrong contracts.Mistakes
	checkLimit(&wrong, q.Limit)
	if err := wrong.In("query"); err != nil {
		return UserPage{}, err
	}
	users, next, err := a.cfg.Directory.Page(ctx, q.RecipientType, from.revision, cmp.Or(q.Limit, pageRecords))
	if err != nil {
		return UserPage{}, err
	}
	return UserPage{Next: at(next).String(), Users: append([]json.RawMessage{}, users...)}, nil
}

package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"path"
	"strings"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// ofPeople returns the operations on users. A caller that is bound to a user may read this user, and change addresses and
// preferences by PATCH.
func (a *API) ofPeople() []service.Op {
	list := service.Op{
		Name: "exportUsers", Route: "GET /v1/users", Subject: "notifier.v1.users.list", Need: access.All(access.People), Strict: true,
		Tag: "people", Summary: "Lists the users, as POST takes them.", Good: map[int]string{http.StatusOK: "A page of users."},
		Bad: []int{http.StatusBadRequest},
	}
	imports := service.Op{
		Name: "importUsers", Route: "POST /v1/users", Subject: "notifier.v1.users.import", Need: access.All(access.People), MaxBody: MaxImport,
		Tag: "people", Summary: "Imports users.",
		Description: "Lines of JSON, at most 5,000 and 4 MiB. Fields that a line does not name keep their values, and opt-outs are added.",
		Takes:       map[string]any{ndjson: service.Schema("UserLine")}, Gives: map[string]any{ndjson: Imported{}},
		Example: map[string]string{ndjson: `{"user_id":"carla","recipient_type":"CUSTOMER","locale":"he-IL",` +
			`"addresses":{"webhook":"https://phone.example.com/hook"},"memberships":[{"type":"RESTAURANT","id":"5"}]}`},
		Good: map[int]string{http.StatusOK: "A line for each."},
	}
	profile := map[string]any{"application/json": service.Schema("Profile")}
	user := service.Op{
		Name: "getUser", Route: "GET /v1/users/{type}/{user}", Subject: "notifier.v1.users.get", Need: access.Own(access.People), Tag: "people",
		Summary: "Returns a user.", Gives: profile, Good: map[int]string{http.StatusOK: "The user."},
		Headers: map[string]string{"ETag": "Identifies the version of the user, for If-Match."},
		Bad:     []int{http.StatusBadRequest, http.StatusNotFound},
	}
	put := user
	put.Name, put.Route, put.Subject, put.MaxBody, put.Takes = "putUser", "PUT /v1/users/{type}/{user}", "", MaxUser, profile
	put.Summary, put.Description = "Replaces a user.", "Opt-outs that it does not name stay. A caller who is bound to a user may not."
	put.Example = service.JSON(`{"locale":"he-IL","time_zone":"Asia/Jerusalem","vip":true}`)
	put.Bad = []int{http.StatusPreconditionFailed}
	patch := put
	patch.Name, patch.Route, patch.Summary = "patchUser", "PATCH /v1/users/{type}/{user}", "Merges into a user (RFC 7396)."
	patch.Description = "Fields that are not named stay, null removes. A caller who is bound to a user changes addresses and preferences; " +
		"after 20 new addresses in an hour the answer is QUOTA_CHANGE."
	remove := user
	remove.Name, remove.Route, remove.Subject = "deleteUser", "DELETE /v1/users/{type}/{user}", ""
	remove.Summary = "Deletes a user."
	remove.Description = "Nothing more is sent, not even what was planned before. A caller who is bound to a user may not."
	remove.Good, remove.Headers = map[int]string{http.StatusNoContent: "The user is deleted."}, nil
	remove.Bad = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusPreconditionFailed}
	members := service.Op{
		Name: "getMemberships", Route: "GET /v1/memberships/{type}/{user}", Need: access.Own(access.People), Tag: "people",
		Summary: "Lists the aggregates whose events concern a user.", Good: map[int]string{http.StatusOK: "All memberships."},
		Bad: []int{http.StatusBadRequest},
	}
	change := members
	change.Name, change.Route, change.MaxBody = "changeMemberships", "PATCH /v1/memberships/{type}/{user}", MaxUser
	change.Summary, change.Description = "Adds and removes memberships of a user.", "A caller who is bound to a user may not."
	change.Example = service.JSON(`{"add":[{"type":"RESTAURANT","id":"5"}]}`)
	return []service.Op{
		service.NewOp(list, a.Users), service.NewOp(imports, a.importUsers),
		service.NewOp(user, a.readUser), service.NewOp(put, a.writer(false)), service.NewOp(patch, a.writer(true)),
		service.NewOp(service.Op{Subject: "notifier.v1.users.put"}, a.WriteUser),
		service.NewOp(remove, a.deleteUser),
		service.NewOp(service.Op{Subject: "notifier.v1.users.delete"}, func(ctx context.Context, r UserRequest) (struct{}, error) {
			return struct{}{}, a.DeleteUser(ctx, r)
		}),
		service.NewOp(members, a.members), service.NewOp(change, a.changeMembers),
		service.NewOp(service.Op{Subject: "notifier.v1.users.members"}, a.Members),
	}
}

func (a *API) ofAddresses() []service.Op {
	op := func(route string) service.Op {
		return service.Op{
			Route: route, Subject: "notifier.v1.endpoints." + path.Base(route), Need: access.Own(access.People), Strict: true,
			Tag: "people", Bad: []int{http.StatusBadRequest, http.StatusNotFound},
		}
	}
	secret := op("GET /v1/users/{type}/{user}/endpoints/{channel}/{id}/secret")
	rotate := op("POST /v1/users/{type}/{user}/endpoints/{channel}/{id}/rotate")
	test := op("POST /v1/users/{type}/{user}/endpoints/{channel}/{id}/test")
	replay := op("POST /v1/users/{type}/{user}/endpoints/{channel}/{id}/replay")
	secret.Name, secret.Summary = "getSecret", "Returns the secret that signs the messages to an address."
	secret.Good = map[int]string{http.StatusOK: "The secrets."}
	rotate.Name, rotate.Summary, rotate.Good = "rotateSecret", "Replaces the secret that signs the messages to an address.", secret.Good
	rotate.Description = "A second request within a minute changes nothing. After 10 for a user in an hour, except for operators, the " +
		"answer is QUOTA_ROTATE."
	test.Name, test.Summary = "testAddress", "Sends a message of the type TEST to an address now."
	test.Description = "After 20 for a user and to an address in an hour, and 5 to unverified addresses, except for operators, the answer " +
		"is QUOTA_TEST. Only a caller who is bound to no user chooses a template."
	test.Good = map[int]string{http.StatusOK: "The outcome."}
	replay.Name, replay.Summary = "replayAddress", "Resends notifications of an address that have failed since a time."
	replay.Description = "After 10 for a user in an hour, except for operators, the answer is QUOTA_REPLAY."
	replay.Good = map[int]string{http.StatusOK: "The number of notifications."}
	return []service.Op{
		service.NewOp(secret, onAddress(a.Secret)), service.NewOp(rotate, onAddress(a.Rotate)), service.NewOp(test, onAddress(a.Test)),
		service.NewOp(replay, onAddress(a.ReplayAddress)),
	}
}

const ndjson = "application/x-ndjson"

// UserLines are lines of JSON, each of which is a user.
type UserLines struct {
	Body []byte `body:"true" json:"-"`
}

// importUsers answers with the outcome of each line.
func (a *API) importUsers(ctx context.Context, r UserLines) (service.Text, error) {
	results, err := a.Import(ctx, r.Body)
	if err != nil {
		return service.Text{}, err
	}
	lines, err := Lines(results)
	return service.Text{Media: ndjson, Data: lines}, err
}

// UserName names a user.
type UserName struct {
	// RecipientType is the kind of recipient.
	RecipientType contracts.RecipientType `example:"CUSTOMER" json:"recipient_type" path:"type"`

	// UserID is the id of the user. That of the query precedes that of the path, which a client or a proxy may normalize if it is a dot;
	// "inbox" is another route.
	UserID string `example:"carla" json:"user_id" jsonschema:"maxLength=320" path:"user" query:"user"`
}

// UserMatch names a user and the version that is to be changed.
type UserMatch struct {
	UserName

	// Match is the ETag of the version that is to be replaced, * for any.
	Match string `header:"If-Match" json:"-"`

	// None is * to write only where there is no user.
	None string `header:"If-None-Match" json:"-"`
}

// UserWrite is the document of a user, or a merge patch of it.
type UserWrite struct {
	UserMatch

	Body json.RawMessage `body:"true" json:"-"`
}

// HTTP implements [service.Answer].
func (u User) HTTP(header http.Header) (status int, body any) {
	header.Set("ETag", `"`+u.ETag+`"`)
	return http.StatusOK, u.Body
}

// about returns the request about a user, if the caller may make it.
func (r UserName) about(ctx context.Context) (UserRequest, error) {
	request := UserRequest{Own: access.From(ctx).User != "", RecipientType: r.RecipientType, UserID: r.UserID}
	return request, isFor(ctx, r.RecipientType, r.UserID)
}

// change returns the request that changes a user, if the caller may make it.
func (r UserMatch) change(ctx context.Context, merge bool) (UserRequest, error) {
	request, err := r.about(ctx)
	if err == nil && request.Own && !merge {
		err = access.Forbidden("a user changes addresses and preferences, by PATCH")
	}
	request.IfMatch, request.Merge = r.Match, merge
	switch {
	case r.None == "*":
		request.IfMatch = "0"
	case r.Match != "" && r.Match != "*":
		request.IfMatch = cmp.Or(strings.Trim(r.Match, `"`), "-")
	}
	return request, err
}

// isFor returns an error for a caller that is bound to another user. Callers over NATS are operators.
func isFor(ctx context.Context, kind contracts.RecipientType, user string) error {
	caller := access.From(ctx)
	if caller.User != "" && caller.User != user || caller.RecipientType != "" && caller.RecipientType != string(kind) {
		return access.Forbidden("the key is that of another user")
	}
	return nil
}

func (a *API) readUser(ctx context.Context, r UserName) (User, error) {
	request, err := r.about(ctx)
	if err != nil {
		return User{}, err
	}
	return a.ReadUser(ctx, request)
}

// writer returns the handler that replaces a user, or merges into one.
func (a *API) writer(merge bool) func(context.Context, UserWrite) (User, error) {
	return func(ctx context.Context, r UserWrite) (User, error) {
		request, err := r.change(ctx, merge)
		if err != nil {
			return User{}, err
		}
		request.Body = r.Body
		return a.WriteUser(ctx, request)
	}
}

func (a *API) deleteUser(ctx context.Context, r UserMatch) (struct{}, error) {
	request, err := r.change(ctx, false)
	if err == nil {
		err = a.DeleteUser(ctx, request)
	}
	return struct{}{}, err
}

func (a *API) members(ctx context.Context, r UserName) (Members, error) {
	if err := isFor(ctx, r.RecipientType, r.UserID); err != nil {
		return Members{}, err
	}
	return a.Members(ctx, MembersRequest{RecipientType: r.RecipientType, UserID: r.UserID})
}

// MembersChange changes the memberships of a user.
type MembersChange struct {
	UserName

	Body MembersRequest `body:"true" json:"-"`
}

func (a *API) changeMembers(ctx context.Context, r MembersChange) (Members, error) {
	who, err := r.about(ctx)
	if err == nil && who.Own {
		err = access.Forbidden("a user does not change memberships")
	}
	if err != nil {
		return Members{}, err
	}
	r.Body.RecipientType, r.Body.UserID = who.RecipientType, who.UserID
	return a.Members(ctx, r.Body)
}

// onAddress returns a handler of requests about one of the addresses of a user.
func onAddress[T any](do func(context.Context, AddressRequest) (T, error)) func(context.Context, AddressRequest) (T, error) {
	return func(ctx context.Context, r AddressRequest) (answer T, err error) {
		if err := isFor(ctx, r.RecipientType, r.UserID); err != nil {
			return answer, err
		}
		if r.Template != "" && access.From(ctx).User != "" { // of which the operators may have any
			return answer, access.Forbidden("the test message of a user has the template TEST")
		}
		return do(ctx, r)
	}
}

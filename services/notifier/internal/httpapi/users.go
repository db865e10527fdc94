package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
)

// addUsers adds the routes of users. A caller that is bound to a user may read this user, and change addresses and
// preferences by PATCH.
func (h *handler) addUsers(r *service.Router) {
	r.Handle("GET /v1/users", access.All(access.People), onQuery(users, h.api.Users))
	r.Handle("POST /v1/users", access.All(access.People), h.importUsers)
	r.Handle("GET /v1/users/{type}/{user}", access.Own(access.People), h.readUser)
	r.Handle("PUT /v1/users/{type}/{user}", access.Own(access.People), h.writeUser)
	r.Handle("PATCH /v1/users/{type}/{user}", access.Own(access.People), h.writeUser)
	r.Handle("DELETE /v1/users/{type}/{user}", access.Own(access.People), h.deleteUser)
	r.Handle("GET /v1/memberships/{type}/{user}", access.Own(access.People), onQuery(members, h.api.Members))
	r.Handle("PATCH /v1/memberships/{type}/{user}", access.Own(access.People), h.changeMembers)
	r.Handle("GET /v1/users/{type}/{user}/endpoints/{channel}/{id}/secret", access.Own(access.People), onAddress(h.api.Secret))
	r.Handle("POST /v1/users/{type}/{user}/endpoints/{channel}/{id}/rotate", access.Own(access.People), onAddress(h.api.Rotate))
	r.Handle("POST /v1/users/{type}/{user}/endpoints/{channel}/{id}/test", access.Own(access.People), onAddress(h.api.Test))
	r.Handle("POST /v1/users/{type}/{user}/endpoints/{channel}/{id}/replay", access.Own(access.People), onAddress(h.api.ReplayAddress))
}

// users reads GET /v1/users?type=...&limit=...&cursor=..., whose answer has users in the form that POST takes.
func users(r *http.Request) (api.UserQuery, error) {
	v := params(r, "cursor", "limit", "type")
	q := api.UserQuery{Cursor: v.Get("cursor"), Limit: v.limit(), RecipientType: contracts.RecipientType(v.Get("type"))}
	return q, v.err()
}

// importUsers answers POST /v1/users, which takes lines of JSON, with the outcome of each line.
func (h *handler) importUsers(w http.ResponseWriter, r *http.Request) error {
	body, err := service.Body(w, r, api.MaxImport)
	if err != nil {
		return err
	}
	results, err := h.api.Import(r.Context(), body)
	if err != nil {
		return err
	}
	lines, err := api.Lines(results)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	_, _ = w.Write(lines) //nolint:gosec // JSON, and browsers do not guess types
	return nil
}

// readUser answers GET of /v1/users/{type}/{user}.
func (h *handler) readUser(w http.ResponseWriter, r *http.Request) error {
	request, err := about(r)
	if err != nil {
		return err
	}
	answer, err := h.api.ReadUser(r.Context(), request)
	return showUser(w, answer, err)
}

// writeUser answers PUT and PATCH of the same path.
func (h *handler) writeUser(w http.ResponseWriter, r *http.Request) error {
	request, err := change(r)
	if err != nil {
		return err
	}
	if request.Body, err = service.Body(w, r, api.MaxUser); err != nil {
		return err
	}
	answer, err := h.api.WriteUser(r.Context(), request)
	return showUser(w, answer, err)
}

// deleteUser answers DELETE of the same path.
func (h *handler) deleteUser(w http.ResponseWriter, r *http.Request) error {
	request, err := change(r)
	if err == nil {
		err = h.api.DeleteUser(r.Context(), request)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// members reads GET of /v1/memberships/{type}/{user}.
func members(r *http.Request) (api.MembersRequest, error) {
	who, err := about(r)
	return api.MembersRequest{RecipientType: who.RecipientType, UserID: who.UserID}, err
}

// changeMembers answers PATCH of the same path.
func (h *handler) changeMembers(w http.ResponseWriter, r *http.Request) error {
	who, err := about(r)
	if err == nil && who.Own {
		err = access.Forbidden("a user does not change memberships")
	}
	if err != nil {
		return err
	}
	body, err := service.Body(w, r, api.MaxUser)
	if err != nil {
		return err
	}
	request, err := contracts.Decode[api.MembersRequest](body)
	if err != nil {
		return err
	}
	request.RecipientType, request.UserID = who.RecipientType, who.UserID
	all, err := h.api.Members(r.Context(), request)
	return reply(w, all, err)
}

func showUser(w http.ResponseWriter, answer api.User, err error) error {
	if err == nil {
		w.Header().Set("ETag", `"`+answer.ETag+`"`)
	}
	return reply(w, answer.Body, err)
}

// about reads a request about a user. ?user overrides the user in the path, because a path that a client or a proxy normalizes cannot
// have "." or "..", and "inbox" is another route.
func about(r *http.Request) (api.UserRequest, error) {
	caller := access.From(r.Context())
	request := api.UserRequest{
		Own: caller.User != "", RecipientType: contracts.RecipientType(r.PathValue("type")),
		UserID: cmp.Or(r.URL.Query().Get("user"), r.PathValue("user")),
	}
	return request, isFor(caller, request.RecipientType, request.UserID)
}

// change reads a request that changes a user.
func change(r *http.Request) (api.UserRequest, error) {
	request, err := about(r)
	if err == nil && request.Own && r.Method != http.MethodPatch {
		err = access.Forbidden("a user changes addresses and preferences, by PATCH")
	}
	request.IfMatch, request.Merge = ifMatch(r), r.Method == http.MethodPatch
	return request, err
}

// isFor returns an error for a caller that is bound to another user.
func isFor(caller access.Caller, kind contracts.RecipientType, user string) error {
	if !caller.For(user) || caller.RecipientType != "" && caller.RecipientType != string(kind) {
		return access.Forbidden("the key is that of another user")
	}
	return nil
}

// onAddress answers the requests about one of the addresses of a user: ?since=...&cursor=... for a replay, ?template=... for a test.
func onAddress[T any](do func(context.Context, api.AddressRequest) (T, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		v := params(r, "cursor", "since", "template", "user")
		request := api.AddressRequest{
			Channel: r.PathValue("channel"), Cursor: v.Get("cursor"), ID: r.PathValue("id"),
			RecipientType: contracts.RecipientType(r.PathValue("type")), Since: v.since(),
			Template: v.Get("template"), UserID: cmp.Or(v.Get("user"), r.PathValue("user")),
		}
		if err := isFor(access.From(r.Context()), request.RecipientType, request.UserID); err != nil {
			return err
		}
		if err := v.err(); err != nil {
			return err
		}
		if request.Template != "" && access.From(r.Context()).User != "" { // of which the operators may have any
			return access.Forbidden("the test message of a user has the template TEST")
		}
		w.Header().Set("Cache-Control", "no-store")
		answer, err := do(r.Context(), request)
		return reply(w, answer, err)
	}
}

// ifMatch returns the ETag in a request's condition, "0" for If-None-Match: *, and "" without a condition.
func ifMatch(r *http.Request) string {
	if r.Header.Get("If-None-Match") == "*" {
		return "0"
	}
	tag := r.Header.Get("If-Match")
	if tag == "" || tag == "*" {
		return tag
	}
	return cmp.Or(strings.Trim(tag, `"`), "-")
}
